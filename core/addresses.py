"""Where a request came from, as throttles count it."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from core.egress import Address


def _parse(text: str) -> Address | None:
    """An address; IPv4 that a dual-stack socket shows as ::ffff:192.0.2.1 is IPv4."""
    try:
        address = ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_trusted(address: Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


def client_address(request: Request | HttpRequest) -> Address | None:
    """The peer of the connection. Only where TRUSTED_PROXIES names the peer, the address that it forwards for.

    X-Forwarded-For is read from its right end, where our own proxies write: the first address that is not one of
    them is the client, whatever the client itself wrote further left.
    """
    address = _parse(request.META.get("REMOTE_ADDR", ""))
    hops = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")
    while address is not None and hops and _is_trusted(address):
        forwarded = _parse(hops.pop())
        if forwarded is None:
            break
        address = forwarded
    return address


def is_forwarded_by_a_stranger(request: HttpRequest) -> bool:
    """Whether some proxy sent it on that TRUSTED_PROXIES does not name, so that `client_address` is the proxy's.

    One on this machine would otherwise lend 127.0.0.1 to the whole world.
    """
    forwarded = any(name in request.META for name in ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_VIA"))
    return forwarded and not is_from_trusted_proxy(request)


def is_from_trusted_proxy(request: HttpRequest) -> bool:
    """Whether the peer of the connection is a proxy whose word counts."""
    peer = _parse(request.META.get("REMOTE_ADDR", ""))
    return peer is not None and _is_trusted(peer)


def client_network(request: Request | HttpRequest) -> str:
    """What is counted as one client: an IPv4 address, or the /64 that one IPv6 subscriber has to himself."""
    address = client_address(request)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return str(address)
