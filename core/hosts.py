"""Parse lists of servers, as settings have them. Plain Python: the agent of a location has the same options."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

PUBLIC_NAME_SERVERS = "1.1.1.1:443,8.8.8.8:443,9.9.9.9:443"
"""The default of CONNECTIVITY_TARGETS."""


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def name_servers(text: str) -> tuple[str, ...]:
    """Normalize IP addresses with optional ports for the resolver. Raises ValueError."""
    return tuple(map(_name_server, comma_separated(text)))


def _name_server(text: str) -> str:
    bracketed = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    try:
        parts = urlsplit(f"//{bracketed}")
        address, port = ip_address(parts.hostname or ""), parts.port
        normalized = f"[{address}]" if address.version == 6 else str(address)
        is_netloc_only = parts.netloc == bracketed and "@" not in bracketed
        valid = is_netloc_only and port != 0 and bracketed.startswith("[") is normalized.startswith("[")
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"{text!r} is not the address of a name server, like 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353"
        )
    return normalized if port is None else f"{normalized}:{port}"


def hosts_with_ports(text: str) -> tuple[tuple[str, int], ...]:
    """Parse comma-separated `host:port`, IPv6 addresses in brackets. Raises ValueError."""
    return tuple(map(_host_with_port, comma_separated(text)))


def _host_with_port(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        if port and re.fullmatch(r"[\w.:-]+", host) and parts.netloc == text and "@" not in text:
            return host, port
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a host with a port, like 192.0.2.1:443, [2001:db8::1]:443 or example.com:443")
