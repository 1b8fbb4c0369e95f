"""The client address of a request, as throttles count it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from core.egress import Address

_LONGEST = 100  # an address, its zone and a port; longer text is not cached
_MAX_HOPS = 16
"""Trusted proxies that one request may have passed."""
_WITH_PORT = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+(?:%[^\]]+)?)\])(?::[0-9]{1,5})?", re.ASCII)
"""192.0.2.1:1234 or [2001:db8::1]:1234, as some proxies write it, the port optional."""


def _parse(text: str) -> Address | None:
    """Parse an address, with or without a port. ::ffff:192.0.2.1 of a dual-stack socket becomes IPv4."""
    return _parse_short(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=4_096)
def _parse_short(text: str) -> Address | None:
    text = text.strip()
    if found := _WITH_PORT.fullmatch(text):
        text = found[1] or found[2]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


def address_of(meta: Mapping[str, Any]) -> Address | None:
    """Return the peer of the connection, or the address that it forwards for if TRUSTED_PROXIES contains the peer.

    X-Forwarded-For is read from its right end, where our own proxies write. The first address outside TRUSTED_PROXIES
    is the client; what the client wrote further left is ignored. Return None if a trusted proxy forwards a value that
    cannot be parsed: the client is unknown, and must not count as the proxy. `meta`: that of a request, or a WSGI
    environ.
    """
    address = _parse(meta.get("REMOTE_ADDR", ""))
    forwarded = meta.get("HTTP_X_FORWARDED_FOR", "")
    if not forwarded.strip():
        return address
    hops = forwarded.rsplit(",", _MAX_HOPS)
    del hops[: len(hops) - _MAX_HOPS]
    while address is not None and hops and _is_trusted(address):
        address = _parse(hops.pop())
    return address


def is_forwarded_by_unknown_proxy(request: HttpRequest) -> bool:
    """Return whether a proxy that is not in TRUSTED_PROXIES forwarded it, so that `address_of` is the proxy's.

    Otherwise every client of a proxy on this machine would count as 127.0.0.1.
    """
    forwarded = any(name in request.META for name in ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_VIA"))
    return forwarded and not is_from_trusted_proxy(request.META)


def is_from_trusted_proxy(meta: Mapping[str, Any]) -> bool:
    """Return whether the peer of the connection is in TRUSTED_PROXIES."""
    peer = _parse(meta.get("REMOTE_ADDR", ""))
    return peer is not None and _is_trusted(peer)


def client_network(request: Request | HttpRequest) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 of an IPv6 subscriber."""
    return client_of(request.META).network


class Client(NamedTuple):
    """The texts of a client's address, or None without one, and of its network, which throttles count."""

    address: str | None
    network: str


def client_of(meta: Mapping[str, Any]) -> Client:
    """Return the client of a request. `meta` is that of a request, or a WSGI environ."""
    if meta.get("HTTP_X_FORWARDED_FOR"):
        return _client(address_of(meta))
    return _client_at(meta.get("REMOTE_ADDR", ""))


@lru_cache(maxsize=4_096)
def _client_at(peer: str) -> Client:
    return _client(_parse(peer))


@lru_cache(maxsize=4_096)
def _client(address: Address | None) -> Client:
    if isinstance(address, IPv6Address):
        return Client(str(address), str(IPv6Network((address, 64), strict=False)))
    return Client(None if address is None else str(address), str(address))
