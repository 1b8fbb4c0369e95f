"""Addresses of monitors, from what people paste and from the hosts, ports and names of other products. Pure.

They are built and not checked: the API does that, with its reasons.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

_DELIMITERS = re.compile(r"[%/?#\s]+")
_DNS_PORT = 53
_MAX_RESOLVER = 100
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\xab": "\xbb", "<": ">"}
_SERVER = re.compile(
    r"(?:([a-z]+)://)?(\[[0-9a-f:.]{2,45}\]|[^\s\0:/?#@\[\]\\]{1,255})(?::([0-9]{1,5}))?(?:\?starttls=([a-z0-9]+))?",
    re.I,
)
_END_OF_AUTHORITY = re.compile(r"[/?#]")

BeginsTls = Callable[[str, int], bool]
"""Returns whether a host starts a TLS handshake on a port, with any certificate. Raises UntestedError."""


class UntestedError(Exception):
    """No worker could test a server in time."""


class Server(NamedTuple):
    """The parts of a server's address. `host` has no brackets; the others are empty if the text does not have them."""

    scheme: str
    host: str
    port: str
    starttls: str


def bare(text: str) -> str:
    """Return a pasted text without the blanks and quotes around it."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text


def split_server(text: str, *, schemes: Collection[str] = ()) -> Server | None:
    """Return the parts of `host`, `host:22` or `scheme://host:22`. Return None for any other text."""
    if is_address(text):
        return Server("", text, "", "")
    found = _SERVER.fullmatch(text)
    if found is None or (found[1] and found[1].lower() not in schemes):
        return None
    return Server((found[1] or "").lower(), found[2].strip("[]"), found[3] or "", (found[4] or "").lower())


def web_url(text: str, begins_tls: BeginsTls) -> str:
    """Return the URL of `shop.example` or `shop.example:8080/path`: https, or http if no TLS handshake begins.

    Return any other text unchanged. Raises UntestedError.
    """
    end = _END_OF_AUTHORITY.search(without := text.removeprefix("//"))
    authority, rest = (without[: end.start()], without[end.start() :]) if end else (without, "")
    server = split_server(authority)
    if server is None:
        return text
    scheme = "https" if begins_tls(server.host, int(server.port or 443)) else "http"
    return f"{server_url(scheme, server.host, server.port)}{rest}"


def tls_question(host: str, port: int) -> dict[str, Any]:
    """Return the settings of a port monitor that is up if the server begins a TLS handshake. Raises ValueError.

    It sends a ClientHello and expects a record of TLS 1.2 or 1.3 in the answer, so neither its certificate nor a
    request for a client certificate matters.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return {
        "type": "port",
        "url": server_url("tcp", host, port),
        "timeout_ms": 5_000,
        "request_body": outgoing.read().hex(),
        "request_body_encoding": "hex",
        "content_rules": [{"type": "text_contains", "value": "0303"}],
    }


def server_url(scheme: str, host: str, port: int | str | None = None) -> str:
    """Return `scheme://host[:port]`, with an IPv6 address in brackets."""
    host = host.strip()
    if ":" in host and is_address(host):
        host = f"[{host}]"
    return f"{scheme}://{host}" if port in (None, "") else f"{scheme}://{host}:{port}"


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
