"""The settings of a ping check, and its address. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from checks.probes.target import KEPT_ADDRESSES, HostPort, parse_host_port
from checks.spec import CheckSpec

MAX_PACKETS = 10
_EXAMPLE = "icmp://router.example"


@dataclass(frozen=True, slots=True, kw_only=True)
class PingSpec(CheckSpec):
    """`host` is in ASCII, an address without brackets. Passes if at least `min_replies` of the packets return."""

    host: str
    packets: int = 3
    min_replies: int = 1


@lru_cache(maxsize=KEPT_ADDRESSES)
def parse_ping(url: str) -> HostPort:
    """Return the host of `icmp://host`. Raises BadAddressError."""
    return parse_host_port(url, schemes=("icmp",), example=_EXAMPLE, has_port=False)
