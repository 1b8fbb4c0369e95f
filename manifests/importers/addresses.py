"""Addresses of port, udp, ping and dns monitors, from the hosts, ports and names of other products. Pure.

They are built and not checked: the API does that, with its reasons.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, urlsplit

_DELIMITERS = re.compile(r"[%/?#\s]+")
_DNS_PORT = 53
_MAX_RESOLVER = 100


def server_url(scheme: str, host: str, port: int | None = None) -> str:
    """Return `scheme://host[:port]`, with an IPv6 address in brackets."""
    host = host.strip()
    if ":" in host and is_address(host):
        host = f"[{host}]"
    return f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}"


def dns_url(name: str, record_type: str, *, server: str | None = None, port: int | None = None) -> str:
    """Return the URL of a DNS query. `server` is the IP address of the resolver, None for the deployment's own.

    A PTR query for an IP address becomes one for its reverse name, as in the products that take both.
    """
    name = name.strip()
    if record_type.upper() == "PTR" and is_address(bare := name.removesuffix(".")):
        name = ipaddress.ip_address(bare).reverse_pointer
    name = _DELIMITERS.sub(lambda found: quote(found[0], safe=""), name)
    asked = f"{name}?type={quote(record_type, safe='')}"
    if server is None:
        return f"dns:{asked}"
    return f"{server_url('dns', server, None if port == _DNS_PORT else port)}/{asked}"


def split_resolver(text: str) -> tuple[str, int | None] | None:
    """Return address and port of a resolver like `192.0.2.53`, `192.0.2.53:5353` or `[2001:db8::53]:53`.

    Return None if it is not named by an IP address.
    """
    if is_address(text):
        return text, None
    if len(text) > _MAX_RESOLVER:
        return None
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    return (host, port) if is_address(host) and parts.netloc == text and "@" not in text else None


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
