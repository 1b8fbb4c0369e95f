"""An http request: its URL, and what a redirect or a refused HEAD makes of it. Pure.

A URL is parsed in one way for what users enter and for what libcurl is given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

import msgspec

from checks.probes.http.spec import HttpSpec
from checks.probes.target import MAX_URL, BadAddressError, BadHostError, ascii_host, split_address, valid_host
from core.egress import literal_address

METHODS = frozenset({"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TAKES_CONTENT = frozenset({"POST", "PUT", "PATCH"})  # an empty body is announced as empty (RFC 9110, 8.6)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_NOT_SEEN_BY_URLSPLIT = str.maketrans("", "", "\t\r\n")
_MAX_LOCATION = 8_192  # most servers reject longer requests
_ENDS_LINE = re.compile(r"[\r\n\0]")

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65_535
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}:)?//([^/?#]*)")
_MAX_AUTHORITY = 1_024  # urlsplit normalizes it as Unicode says, in quadratic time
_NO_NAME = "The URL cannot be used: its host is not a valid domain name."
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
    """A URL in libcurl's form: ASCII, host in IDNA form, no fragment. `host` is None for a literal address."""

    url: str
    scheme: str
    host: str | None
    origin: tuple[str, str, int]
    port: int


class Request(msgspec.Struct, frozen=True):
    """One request. `lines` are header lines in libcurl's spelling, beside those that libcurl adds itself."""

    target: Target
    method: str
    lines: tuple[bytes, ...] = ()
    body: bytes | None = None


def _ascii_netloc(parts: SplitResult) -> str:
    if parts.netloc.isascii():
        return parts.netloc
    userinfo, at, rest = parts.netloc.rpartition("@")
    userinfo = quote(userinfo, safe=_URL_SAFE, errors="surrogateescape")
    if rest.isascii():
        return f"{userinfo}{at}{rest}"
    host, colon, port = rest.rpartition(":") if not rest.endswith("]") and ":" in rest else (rest, "", "")
    return f"{userinfo}{at}{ascii_host(host)}{colon}{port}"


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


def _refuse_long_authority(url: str) -> None:
    found = _AUTHORITY.match(url)
    if found is not None and len(found[1]) > _MAX_AUTHORITY:
        raise BadRequestError(_NO_NAME)


def _parse(url: str) -> Target:
    if _CONTROLS.search(url):
        raise BadRequestError("The URL cannot be used: it contains a control character.")
    _refuse_long_authority(url.strip())
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
        raise BadRequestError("The URL cannot be used: its host contains a space or a backslash.")
    try:
        netloc = _ascii_netloc(parts)
        host = ascii_host(host)
    except BadHostError as error:
        raise BadRequestError(_NO_NAME) from error
    path = quote(parts.path or "/", safe=_URL_SAFE, errors="surrogateescape")
    query = quote(parts.query, safe=_URL_SAFE, errors="surrogateescape")
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    return Target(
        url=urlunsplit((parts.scheme, netloc, path, query, "")),
        scheme=parts.scheme,
        host=None if literal_address(host) is not None else host,
        origin=(parts.scheme, host, port),
        port=port,
    )


_parse_cached = lru_cache(maxsize=4_096)(_parse)


def host_of(url: str, *, instead: str) -> str:
    """Return the host of an http or https address that a user entered. Raises BadAddressError.

    `instead` is what to use for a password.
    """
    host = split_address(url, schemes=_DEFAULT_PORTS, instead=instead).hostname
    if not host:
        raise BadAddressError("must name a host.")
    try:
        parse_target(url)  # refuse now what could not be sent
    except BadRequestError:
        raise BadAddressError("does not name a valid host.") from None
    valid_host(host)
    return host


def _header_lines(headers: tuple[tuple[str, str], ...], method: str, body: bytes | None) -> tuple[bytes, ...]:
    if not headers and body is None and method not in _TAKES_CONTENT:
        return ()
    lines: list[str] = []
    names: set[str] = set()
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or _ENDS_LINE.search(value):
            raise BadRequestError("A request header cannot be sent: its name or value contains a forbidden character.")
        names.add(name.lower())
        if name.lower() == "host" and not value.strip():
            continue  # no request is valid with an empty one; libcurl sends the URL's host
        # libcurl reads "Name:" as "leave it out" and "Name;" as "send it empty".
        lines.append(f"{name}: {value}" if value.strip() else f"{name};")
    if body is not None:
        if "content-type" not in names:
            lines.append("Content-Type: application/json")
        if "expect" not in names:
            lines.append("Expect:")  # never wait for 100 Continue: it costs a round trip or a second
    elif method in _TAKES_CONTENT and "content-type" not in names:
        lines.append("Content-Type:")  # libcurl would claim a form
    try:
        return tuple(line.encode() for line in lines)
    except UnicodeEncodeError as error:
        raise BadRequestError("A request header cannot be sent: its value is not valid text.") from error


def first_request(spec: HttpSpec) -> Request:
    """Return the first request of a check. Raises BadRequestError if the spec cannot be sent."""
    method = "GET" if spec.rules and spec.method == "HEAD" else spec.method
    if method not in METHODS:
        raise BadRequestError("The request cannot be made: its method is unknown.")
    body = None if spec.body is None else spec.body.encode("utf-8", "replace")
    return Request(parse_target(spec.url), method, _header_lines(spec.headers, method, body), body)


def redirected(request: Request, spec: HttpSpec, *, status: int, location: str) -> Request:
    """Return the request that follows a redirect. Raises BadRequestError if it leads nowhere.

    Headers of the monitor go to its own origin only. 303, and 301 and 302 after POST, become a GET without body.
    """
    try:
        # urljoin takes an absolute URL without a host for a relative one.
        location = location.strip()
        if len(location) > _MAX_LOCATION:
            raise BadRequestError(f"The URL is longer than {_MAX_LOCATION} characters.")
        _refuse_long_authority(location.translate(_NOT_SEEN_BY_URLSPLIT))
        target = parse_target(location if _SCHEME.match(location) else urljoin(request.target.url, location))
    except ValueError as error:
        text = str(error) if isinstance(error, BadRequestError) else "The URL cannot be used."
        raise BadRequestError(text.replace("The URL", "Its Location", 1)) from error
    method, body = request.method, request.body
    if method != "HEAD" and (status == 303 or (status in {301, 302} and method == "POST")):
        method, body = "GET", None
    home = parse_target(spec.url).origin
    headers = spec.headers if target.origin == home else ()
    if body is None:
        headers = tuple(item for item in headers if item[0].lower() != "content-type")
    return Request(target, method, _header_lines(headers, method, body), body)
