"""Which http addresses somebody may enter: of a monitor, of a webhook. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from checks.probes.http.request import BadRequestError, parse_target

MAX_URL = 2_048

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class BadAddressError(ValueError):
    """The text says why, without the name of the field."""


def host_of(url: str, *, instead: str) -> str:
    """The host of an http or https address; raises BadAddressError. `instead` says what to use for a password."""
    if len(url) > MAX_URL:
        raise BadAddressError(f"must be at most {MAX_URL} characters.")
    if _CONTROL.search(url) or any(c.isspace() for c in url) or "\\" in url:
        raise BadAddressError("must hold no blanks, backslashes or control characters.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddressError("is not a valid address.") from None
    if parts.scheme not in {"http", "https"}:
        raise BadAddressError("must begin with http:// or https://.")
    if not host or port == 0:
        raise BadAddressError("must name a host.")
    if "@" in parts.netloc:
        raise BadAddressError(f"must hold no user name or password; {instead}.")
    try:
        parse_target(url)  # what would be refused when it is sent is refused here
        if ":" not in host:
            host.encode("idna")  # labels that no name server has: empty ones, and those beyond 63 bytes
    except (BadRequestError, UnicodeError):
        raise BadAddressError("does not name a valid host.") from None
    return host
