"""The catalogue of failures: targets that misbehave, and the verdict that each must get. Data only.

`tests.targets.stage` starts them, `tests/checks/test_catalogue.py` checks them all in three ways, and
`python -m tests.generated` writes them into docs/use/checks.md.
"""

from tests.targets.catalogue import (
    addresses,
    breaks,
    codings,
    extremes,
    jsons,
    methods,
    redirects,
    resolvers,
    stalls,
    starttls,
    statuses,
    tcp,
    texts,
    tls,
    udp,
)
from tests.targets.catalogue.case import Case, Closed, Full, Place

GROUPS = (
    *(
        module.GROUP
        for module in (
            *(statuses, redirects, methods, stalls, breaks, codings, texts, jsons, tls, addresses, extremes),
            *(tcp, udp, resolvers),
        )
    ),
    starttls.DIRECT,
    starttls.STARTTLS,
)
CASES: tuple[Case, ...] = tuple(case for group in GROUPS for case in group.cases)

__all__ = ["CASES", "GROUPS", "Case", "Closed", "Full", "Place"]
