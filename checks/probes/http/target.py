"""The URL of an http request: what a user may enter, and what libcurl is given. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

import idna
import msgspec

from core.egress import literal_address

MAX_URL = 2_048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65_535
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}:)?//([^/?#]*)")
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_MAX_LABEL = 63
_MAX_AUTHORITY = 1_024  # urlsplit normalizes it as Unicode says, in quadratic time
_NO_NAME = "The URL cannot be used: its host is no valid domain name."
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
# What a path or query may contain unescaped: RFC 3986, and % because what is escaped stays escaped.
_URL_SAFE = "!$%&'()*+,-./:;=?@[]_~|^\\"

# A URL that is sent unchanged, as nearly all are: a name whose last label is letters, so no spelling of an address, or
# four decimal numbers, and nothing to escape. A test compares the result with that of the slow way.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_SENT_AS_IS = "[A-Za-z0-9" + re.escape(_URL_SAFE.replace("?", "")) + "]"
_PLAIN = re.compile(
    rf"(https?)://(((?:[a-z0-9-]+\.)+[a-z]{{2,}})|(?:{_OCTET}\.){{3}}{_OCTET})(?::([1-9][0-9]{{0,4}}))?"
    rf"(/{_SENT_AS_IS}*)?(\?{_SENT_AS_IS}+)?"
)


class BadRequestError(ValueError):
    """The request cannot be made of these values. The text is a sentence without any header's value."""


class Target(msgspec.Struct, frozen=True):
    """A URL as libcurl takes it: ASCII, host in IDNA form, no fragment. `host` is None for a literal address."""

    url: str
    scheme: str
    host: str | None
    origin: tuple[str, str, int]
    port: int


def _ascii_host(host: str) -> str:
    """Return the host in IDNA form, because the wheel's libcurl is built without IDN.

    As browsers do it (UTS 46, non-transitional): Python's own codec is IDNA 2003 and makes fass.de of faß.de,
    another site. The stricter rules of IDNA 2008 would refuse names with an emoji.
    """
    if host.isascii():
        return host
    try:
        labels = idna.uts46_remap(host, std3_rules=False, transitional=False).split(".")
        if any(len(label) > _MAX_LABEL for label in labels):  # before Punycode, which takes quadratic time
            raise BadRequestError(_NO_NAME)
        encoded = ".".join(
            label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in labels
        )
    except UnicodeError as error:
        raise BadRequestError(_NO_NAME) from error
    # The mapping to ASCII may produce a blank or a delimiter.
    if not _HOST.fullmatch(encoded) or any(len(label) > _MAX_LABEL for label in encoded.split(".")):
        raise BadRequestError(_NO_NAME)
    return encoded


def _ascii_netloc(parts: SplitResult) -> str:
    userinfo, at, rest = parts.netloc.rpartition("@")
    if rest.isascii():
        return parts.netloc
    host, colon, port = rest.rpartition(":") if not rest.endswith("]") and ":" in rest else (rest, "", "")
    return f"{userinfo}{at}{_ascii_host(host)}{colon}{port}"


def parse_target(url: str) -> Target:
    """Return the target of an http or https URL. Raises BadRequestError."""
    plain = _PLAIN.fullmatch(url)
    if plain is None or int(plain[4] or 0) > _LAST_PORT:
        return _parse_cached(url) if len(url) <= MAX_URL else _parse(url)
    scheme, host, name, port_text, path, query = plain.groups()
    port = int(port_text) if port_text else _DEFAULT_PORTS[scheme]
    return Target(
        url=url if path else f"{scheme}://{host}{':' + port_text if port_text else ''}/{query or ''}",
        scheme=scheme,
        host=name,
        origin=(scheme, host, port),
        port=port,
    )


def refuse_long_authority(url: str) -> None:
    found = _AUTHORITY.match(url)
    if found is not None and len(found[1]) > _MAX_AUTHORITY:
        raise BadRequestError(_NO_NAME)


def _parse(url: str) -> Target:
    if _CONTROLS.search(url):
        raise BadRequestError("The URL cannot be used: it holds a control character.")
    refuse_long_authority(url.strip())
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = parts.hostname
    except ValueError as error:
        raise BadRequestError(f"The URL cannot be used: {error}.") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise BadRequestError("The URL cannot be used: only http and https are supported.")
    if not host:
        raise BadRequestError("The URL cannot be used: it names no host.")
    if any(blank in parts.netloc for blank in " \\"):
        raise BadRequestError("The URL cannot be used: its host holds a blank or a backslash.")
    netloc = _ascii_netloc(parts)
    path = quote(parts.path or "/", safe=_URL_SAFE, errors="surrogateescape")
    query = quote(parts.query, safe=_URL_SAFE, errors="surrogateescape")
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    host = _ascii_host(host)
    return Target(
        url=urlunsplit((parts.scheme, netloc, path, query, "")),
        scheme=parts.scheme,
        host=None if literal_address(host) is not None else host,
        origin=(parts.scheme, host, port),
        port=port,
    )


_parse_cached = lru_cache(maxsize=4_096)(_parse)


class BadAddressError(ValueError):
    """The text is the reason, without the name of the field."""


def host_of(url: str, *, instead: str) -> str:
    """Return the host of an http or https address that a user entered. Raises BadAddressError.

    `instead` is what to use for a password.
    """
    if len(url) > MAX_URL:
        raise BadAddressError(f"must be at most {MAX_URL} characters.")
    if _CONTROLS.search(url) or any(c.isspace() for c in url) or "\\" in url:
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
        parse_target(url)  # refuse now what could not be sent
        if ":" not in host:
            host.encode("idna")  # labels that no name server has: empty ones, and those beyond 63 bytes
    except (BadRequestError, UnicodeError):
        raise BadAddressError("does not name a valid host.") from None
    return host
