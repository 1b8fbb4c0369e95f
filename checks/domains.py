"""Registrable domains, by the bundled list of public suffixes. Plain Python without network."""

from __future__ import annotations

import re
from functools import cache

from publicsuffixlist import PublicSuffixList

from core.egress import literal_address

_MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@cache
def _suffixes() -> PublicSuffixList:
    # Suffixes of registries only: of foo.github.io, github.io is registered.
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of a host in ASCII form, in lower case.

    None for literal addresses, single labels, public suffixes themselves, unknown suffixes, and names under arpa, which
    are delegated with addresses and do not expire.
    """
    if literal_address(host) is not None:
        return None
    domain = _suffixes().privatesuffix(host.lower().rstrip("."))
    if (
        not domain
        or top_level(domain) == "arpa"
        or len(domain) > _MAX_NAME
        or not all(map(_LABEL.fullmatch, domain.split(".")))
    ):
        return None
    return domain


def top_level(domain: str) -> str:
    """Return the last label, which selects the registry."""
    return domain.rpartition(".")[2]
