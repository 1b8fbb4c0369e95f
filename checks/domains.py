"""Which domain is the one that was registered. Plain Python, and no network: the list of suffixes is bundled."""

from __future__ import annotations

import re
from functools import cache

from publicsuffixlist import PublicSuffixList

from core.egress import literal_address

_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@cache
def _suffixes() -> PublicSuffixList:
    # Suffixes of registries only: foo.github.io is a name that GitHub lets, github.io what is registered.
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def registrable_domain(host: str) -> str | None:
    """The registrable domain of a host in ASCII form, in lower case.

    None where nothing is registered: literal addresses, single labels, bare public suffixes, unknown suffixes.
    """
    if literal_address(host) is not None:
        return None
    domain = _suffixes().privatesuffix(host.lower().rstrip("."))
    if not domain or len(domain) > _MAX_NAME or not all(map(_LABEL.fullmatch, domain.split("."))):
        return None
    return domain


def top_level(domain: str) -> str:
    """The last label, which tells whose registry is asked."""
    return domain.rpartition(".")[2]
