"""Targets of every protocol: hosts in ASCII, and the addresses that users enter. Pure."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

import idna
import msgspec

from core.egress import literal_address

MAX_URL = 2_048
KEPT_ADDRESSES = 65_536
"""How many parsed addresses a process keeps; parsing would be a good part of the CPU of each check."""
MAX_LABEL = 63
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_MAPPED = bytes(10) + b"\xff\xff"  # of an IPv4 address in an IPv6 one
_BRACKETED = re.compile(r"\[[0-9A-Fa-f:.]+\](:[0-9]*)?")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\s\\]")


class BadAddressError(ValueError):
    """The text is the reason, without the name of the field."""


class BadHostError(ValueError):
    """The host is not a valid domain name."""


class HostPort(msgspec.Struct, frozen=True):
    """A server. `host` is in ASCII and lower case, `is_literal` if it is an address, then without brackets.

    `port` is 0 for a protocol without ports.
    """

    scheme: str
    host: str
    port: int
    is_literal: bool
    query: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def join_host_port(host: str, port: int) -> str:
    """Return `192.0.2.1:443` or `[2001:db8::1]:443`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ascii_host(host: str) -> str:
    """Return the host in IDNA form, because the wheel's libcurl is built without IDN. Raises BadHostError.

    As browsers do it (UTS 46, non-transitional): Python's own codec is IDNA 2003 and makes fass.de of faß.de,
    another site. The stricter rules of IDNA 2008 would refuse names with an emoji.
    """
    if host.isascii():
        return host
    try:
        labels = idna.uts46_remap(host, std3_rules=False, transitional=False).split(".")
        if any(len(label) > MAX_LABEL for label in labels):  # before Punycode, which takes quadratic time
            raise BadHostError(host)
        encoded = ".".join(
            label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in labels
        )
    except UnicodeError as error:
        raise BadHostError(host) from error
    # The mapping to ASCII may produce a blank or a delimiter.
    if not _HOST.fullmatch(encoded) or any(len(label) > MAX_LABEL for label in encoded.split(".")):
        raise BadHostError(host)
    return encoded


@lru_cache(maxsize=4_096)
def literal_form(host: str) -> str | None:
    """Return an address as sockets spell it, or None for a name. An IPv4-mapped one is that IPv4 address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, host)
        except OSError:
            continue
        if packed.startswith(_MAPPED):
            return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
        return socket.inet_ntop(family, packed)
    return None


def valid_host(host: str) -> str:
    """Return a host that a user entered in ASCII. Raises BadAddressError for a name that no name server has."""
    try:
        encoded = ascii_host(host)
        if ":" not in encoded:
            encoded.encode("idna")  # refuses empty labels, and those beyond 63 bytes
    except (BadHostError, UnicodeError):
        raise BadAddressError("does not name a valid host.") from None
    if encoded.startswith("-"):  # programs would take it for an option
        raise BadAddressError("does not name a valid host.")
    return encoded


def split_address(url: str, *, schemes: Collection[str], instead: str = "remove it") -> SplitResult:
    """Return the parts of a URL that a user entered. Raises BadAddressError. `instead` is what to use for a password.

    The host and the port, if there is one, are valid; whether they have to be there is the caller's to check.
    """
    if len(url) > MAX_URL:
        raise BadAddressError(f"must be at most {MAX_URL} characters.")
    if _UNUSABLE.search(url):
        raise BadAddressError("cannot contain spaces, backslashes or control characters.")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadAddressError("is not a valid address.") from None
    if parts.scheme not in schemes:
        raise BadAddressError(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}.")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise BadAddressError("must name a port from 1 to 65535.")
    if "@" in parts.netloc:
        raise BadAddressError(f"cannot contain a user name or password; {instead}.")
    return parts


def parse_host_port(
    url: str, *, schemes: Collection[str], example: str, has_port: bool = True, has_query: bool = False
) -> HostPort:
    """Return the server of a URL that names nothing else but perhaps a query. Raises BadAddressError.

    `example` is an address that is accepted; each reason ends with it.
    """
    try:
        return _parse_host_port(url, schemes=schemes, has_port=has_port, has_query=has_query)
    except BadAddressError as error:
        raise BadAddressError(f"{str(error).removesuffix('.')}, for example {example}.") from None


def _parse_host_port(url: str, *, schemes: Collection[str], has_port: bool, has_query: bool) -> HostPort:
    parts = split_address(url, schemes=schemes)
    host = parts.hostname
    if not host:
        raise BadAddressError("must name a host.")
    if "[" in parts.netloc:
        is_spelt_well = _BRACKETED.fullmatch(parts.netloc) is not None
    else:
        is_spelt_well = not host.isascii() or _HOST.fullmatch(host) is not None
    if not is_spelt_well:
        raise BadAddressError("does not name a valid host.")
    if has_port and parts.port is None:
        raise BadAddressError("must name a port from 1 to 65535.")
    if not has_port and ":" in parts.netloc.rpartition("]")[2]:
        raise BadAddressError("cannot contain a port.")
    if parts.path or "#" in url:
        raise BadAddressError("cannot contain a path or a fragment.")
    if "?" in url and not has_query:
        raise BadAddressError("cannot contain a query.")
    encoded = valid_host(host).lower()
    literal = literal_address(encoded)
    return HostPort(
        scheme=parts.scheme,
        host=encoded if literal is None else str(literal),
        port=parts.port or 0,
        is_literal=literal is not None,
        query=parts.query,
    )
