"""The question and server of a dns check, and its URL (RFC 4501)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, unquote

from checks.probes.target import KEPT_ADDRESSES, BadAddressError, literal_form, split_address, valid_host
from checks.spec import CheckSpec, ContentRule
from core.egress import literal_address

RECORD_TYPES = ("A", "AAAA", "CAA", "CNAME", "DNSKEY", "DS", "MX", "NS", "PTR", "SOA", "SRV", "TXT")
DEFAULT_PORT = 53
ROOT = "."
_EXAMPLE = "for example dns:example.com?type=MX or dns://192.0.2.53/example.com?type=MX"
_MAX_NAME = 253
# A wildcard's own records, and the slash of RFC 2317's reverse zones.
_LABELS = re.compile(r"[A-Za-z0-9_*/-]+(\.[A-Za-z0-9_*/-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsSpec(CheckSpec):
    """Ask for the records of a name. `name` is in ASCII, without the final dot, or `.` for the root.

    `server` is an IP address, None for the deployment's own servers. `records` is the exact set to expect.
    """

    name: str
    record_type: str = "A"
    server: str | None = None
    port: int = DEFAULT_PORT
    rules: tuple[ContentRule, ...] = ()
    records: tuple[str, ...] | None = None


@lru_cache(maxsize=KEPT_ADDRESSES)
def parse_dns(url: str) -> DnsSpec:
    """Return the question of `dns:name?type=MX` or `dns://resolver[:port]/name?type=MX`, without other settings.

    Raises BadAddressError.
    """
    if not url[:4].lower() == "dns:":
        raise BadAddressError(f"must begin with dns:, {_EXAMPLE}.")
    parts = split_address(url, schemes=("dns",))
    server: str | None = None
    path = parts.path
    if parts.netloc or url[4:].startswith("//"):
        literal = literal_address(parts.hostname or "")
        if literal is None:
            raise BadAddressError("must name the resolver by its IP address, or none, for example dns:example.com.")
        server, path = literal_form(str(literal)), path.removeprefix("/")
    if parts.fragment or "#" in url:
        raise BadAddressError(f"cannot contain a fragment, {_EXAMPLE}.")
    name, record_type = _name(path), _record_type(parts.query)
    return DnsSpec(name=name, record_type=record_type, server=server, port=parts.port or DEFAULT_PORT)


def _name(path: str) -> str:
    if not path:
        raise BadAddressError(f"must name what to look up, {_EXAMPLE}.")
    if "/" in path:  # an escaped one belongs to the name
        raise BadAddressError(f"cannot contain a path after the name, {_EXAMPLE}.")
    if unquote(path) == ROOT:
        return ROOT
    name = valid_host(unquote(path)).lower().removesuffix(".")
    if literal_address(name) is not None:
        raise BadAddressError("must contain a name; for an address use the reverse one, like 53.2.0.192.in-addr.arpa.")
    if len(name) > _MAX_NAME or not _LABELS.fullmatch(name):
        raise BadAddressError(f"does not name a valid domain, {_EXAMPLE}.")
    return name


def _record_type(query: str) -> str:
    too_much = BadAddressError(f"accepts only a type after the question mark, {_EXAMPLE}.")
    pairs = parse_qsl(query, separator=";", keep_blank_values=True)
    asked = {key.lower(): value.upper() for key, value in pairs}
    if len(asked) < len(pairs):
        raise too_much
    record_type = asked.pop("type", "A")
    if asked.pop("class", "IN") != "IN":
        raise BadAddressError("must ask for class IN, the only one that is checked; leave the class out.")
    if asked:
        raise too_much
    if record_type not in RECORD_TYPES:
        raise BadAddressError(f"must ask for one of these types: {', '.join(RECORD_TYPES)}; {_EXAMPLE}.")
    return record_type
