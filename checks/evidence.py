"""What a failed check saw, kept so that a person can see why: short, readable, and with secrets masked. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from core.text import printable

BODY_CHARS = 2048
_VALUE_CHARS = 300
_SEARCHED_CHARS = 4 * _VALUE_CHARS  # of a line, for what looks like a secret
_MASK = "***"
# A text is cut here before it is searched for request header values, which have at most 4,096 characters.
_LOOKED_AT = 8_192

# What helps to understand a failure. Nobody needs the rest, and any header may hold somebody's secret.
_SHOWN_HEADERS = frozenset(
    {
        "age",
        "alt-svc",
        "cache-control",
        "cf-cache-status",
        "cf-ray",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "location",
        "proxy-authenticate",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "transfer-encoding",
        "vary",
        "via",
        "www-authenticate",
        "x-amz-cf-id",
        "x-amzn-requestid",
        "x-cache",
        "x-powered-by",
        "x-request-id",
        "x-served-by",
        "x-vercel-id",
    }
)
_MOST_HEADERS = 20

# A target chooses what these search: none may scan the same characters from more than one start.
_COOKIE_VALUE = re.compile(r"=[^;]*")
_USER_INFO = re.compile(r"(https?://)[^/?#@\s]*@", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_QUERY_VALUE = re.compile(r"(?<=[?&;])([^?=&;#\s]*)=[^&;#\s]*")
# `token=…` of a form, `"api_key": "…"` of JSON, and their kin.
_NAMED_SECRET = re.compile(
    r"""((?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|signature|credential
        |session[_-]?id|jwt|\bsig)["']?\s*[:=]\s*["']?)([^\s"'&<>,;}]{3,})""",
    re.IGNORECASE | re.VERBOSE,
)
_MIN_SECRET = 4  # shorter values of a header, as `1` or `yes`, are found anywhere


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect that was followed: the answer's status, and where it led."""

    status: int
    url: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of the target until the check failed; None, or empty, where it did not come to that.

    `address` is `192.0.2.1:443` or `[2001:db8::1]:443`, `body` the first 2,048 characters after decoding.
    """

    address: str | None = None
    tls_version: str | None = None
    tls_issuer: str | None = None
    status_line: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    redirects: tuple[Redirect, ...] = ()

    def stored(self) -> dict[str, Any]:
        """As JSON, short: what is absent is left out, headers are [name, value], redirects [status, url]."""
        lists = {
            "headers": [list(header) for header in self.headers],
            "redirects": [[redirect.status, redirect.url] for redirect in self.redirects],
        }
        texts = {
            "address": self.address,
            "tls_version": self.tls_version,
            "tls_issuer": self.tls_issuer,
            "status_line": self.status_line,
            "body": self.body,
        }
        return {name: value for name, value in (texts | lists).items() if value}


class Mask:
    """Hides a monitor's own header values, which a target may send back."""

    def __init__(self, headers: Iterable[tuple[str, str]]) -> None:
        secrets = {part for _, value in headers for part in _spellings(value) if len(part) >= _MIN_SECRET}
        # The longest first: a value may contain another.
        self._own = sorted(secrets, key=lambda secret: (-len(secret), secret))

    def own(self, text: str, *, whole: bool = True) -> str:
        """Return `text` without the values of the monitor's request headers; of a long text only the beginning.

        `whole` is False for a text that was cut before: its end may be the beginning of a value.
        """
        cut = text[:_LOOKED_AT]
        for secret in self._own:
            cut = cut.replace(secret, _MASK)
        if self._own and not (whole and len(text) <= _LOOKED_AT):
            cut = cut[: -len(self._own[0])]
        return cut


def _spellings(value: str) -> set[str]:
    """A header's value, its parts, and what a `Basic` one is made of: a target may send any of them back."""
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    found = {value, rest.strip()}
    if scheme.lower() == "basic":
        try:
            user_password = base64.b64decode(rest, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return found
        found |= {user_password, user_password.partition(":")[2]}
    return found


def shown_headers(lines: Iterable[bytes], mask: Mask) -> tuple[tuple[str, str], ...]:
    """The header lines of a response that help, cookies by their names alone."""
    shown: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line[:_LOOKED_AT].decode("utf-8", "replace").partition(":")
        name = name.strip().lower()
        if not colon or name not in _SHOWN_HEADERS:
            continue
        if name == "set-cookie":
            first, *attributes = value.split(";")
            value = ";".join([_COOKIE_VALUE.sub(f"={_MASK}", first, count=1), *attributes])
        shown.append((name, _line(value, mask, whole=len(line) <= _LOOKED_AT, is_url=name == "location")))
        if len(shown) == _MOST_HEADERS:
            break
    return tuple(shown)


def shown_line(raw: bytes, mask: Mask) -> str | None:
    return _line(raw[:_LOOKED_AT].decode("utf-8", "replace"), mask, whole=len(raw) <= _LOOKED_AT) or None


def shown_url(url: str, mask: Mask) -> str:
    """A URL without the values of its query: sign-ins and signed addresses carry their secrets there."""
    return _line(url[:_LOOKED_AT], mask, whole=len(url) <= _LOOKED_AT, is_url=True)


def shown_body(text: str, mask: Mask, *, whole: bool = True) -> str | None:
    """The beginning of a body. `whole` is False where `text` is itself only a part of it."""
    masked = mask.own(printable(text, keep_lines=True), whole=whole)
    return _without_named_secrets(masked[: 2 * BODY_CHARS])[:BODY_CHARS] or None


def _line(text: str, mask: Mask, *, whole: bool, is_url: bool = False) -> str:
    masked = mask.own(printable(text).strip(), whole=whole)
    if is_url:
        masked = _QUERY_VALUE.sub(rf"\1={_MASK}", masked)
    whole = whole and len(masked) <= _SEARCHED_CHARS
    masked = _without_named_secrets(masked[:_SEARCHED_CHARS])
    return masked if whole and len(masked) <= _VALUE_CHARS else masked[: _VALUE_CHARS - 1] + "…"


def _without_named_secrets(text: str) -> str:
    text = _USER_INFO.sub(rf"\1{_MASK}@", text)
    text = _BEARER.sub(rf"\1 {_MASK}", text)
    return _NAMED_SECRET.sub(rf"\1{_MASK}", text)
