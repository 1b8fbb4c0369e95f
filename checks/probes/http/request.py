"""The requests of an http check: the first one, and what a redirect or a refused HEAD makes of it. Pure."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import msgspec

from checks.probes.http.spec import HttpSpec
from checks.probes.http.target import BadRequestError, Target, parse_target, refuse_long_authority

METHODS = frozenset({"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TAKES_CONTENT = frozenset({"POST", "PUT", "PATCH"})  # an empty body is announced as empty (RFC 9110, 8.6)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_NOT_SEEN_BY_URLSPLIT = str.maketrans("", "", "\t\r\n")
_MAX_LOCATION = 8_192  # most servers take no longer request
_ENDS_LINE = re.compile(r"[\r\n\0]")


class Request(msgspec.Struct, frozen=True):
    """One request. `lines` are header lines in libcurl's spelling, beside those that libcurl adds itself."""

    target: Target
    method: str
    lines: tuple[bytes, ...] = ()
    body: bytes | None = None


def _header_lines(headers: tuple[tuple[str, str], ...], method: str, body: bytes | None) -> tuple[bytes, ...]:
    if not headers and body is None and method not in _TAKES_CONTENT:
        return ()
    lines: list[str] = []
    names: set[str] = set()
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or _ENDS_LINE.search(value):
            raise BadRequestError("A request header cannot be sent: its name or value holds a forbidden character.")
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
        raise BadRequestError("A request header cannot be sent: its value is no valid text.") from error


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
        refuse_long_authority(location.translate(_NOT_SEEN_BY_URLSPLIT))
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
