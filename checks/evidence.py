"""Evidence of a failed check, to explain it: short, readable, and with secrets masked. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from core.text import printable

BODY_CHARS = 2048
MASKED = "***"
_HEX_BYTES = 256
_VALUE_CHARS = 300
_SEARCHED_CHARS = 4 * _VALUE_CHARS  # of a line, for what looks like a secret
# A text is cut here before it is searched for request header values, which have at most 4,096 characters.
LINE_BYTES = 8_192

# A target chooses what these search: none may scan the same characters from more than one start.
_USER_INFO = re.compile(r"(https?://)[^/?#@\s]*@", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_PLAIN_QUERIES = ("dns:", "tls:")  # a record type or a protocol, never a secret
_QUERY_VALUE = re.compile(r"(?<=[?&;])([^?=&;#\s]*)=[^&;#\s]*")
# `token=…` of a form, `"api_key": "…"` of JSON, and the like.
_NAMED_SECRET = re.compile(
    r"""((?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|signature|credential
        |session[_-]?id|jwt|\bsig)["']?\s*[:=]\s*["']?)([^\s"'&<>,;}]{3,})""",
    re.IGNORECASE | re.VERBOSE,
)
_MIN_SECRET = 4  # shorter header values, as `1` or `yes`, appear anywhere


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observations of the target until the check failed; None for steps that were not reached.

    `address` is `192.0.2.1:443` or `[2001:db8::1]:443`. `facts` are labels and texts specific to the protocol.
    `body` is the first 2,048 characters of what was received.
    """

    address: str | None = None
    tls_version: str | None = None
    tls_issuer: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    body: str | None = None

    def lines(self) -> list[tuple[str, str | None]]:
        """Return label and text of each fact, for a terminal."""
        tls = " by ".join(filter(None, [self.tls_version, self.tls_issuer]))
        return [("address", self.address), ("TLS", tls), *self.facts, ("body", self.body)]

    def stored(self) -> dict[str, Any]:
        """Return the JSON to store, without empty fields."""
        return {name: value for name, value in asdict(self).items() if value}


class Mask:
    """Hides a monitor's own header values, which a target may send back."""

    def __init__(self, headers: Iterable[tuple[str, str]]) -> None:
        secrets = {part for _, value in headers for part in _spellings(value) if len(part) >= _MIN_SECRET}
        # The longest first: a value may contain another.
        self._own = sorted(secrets, key=lambda secret: (-len(secret), secret))

    def hides(self, text: str) -> bool:
        """Return whether the text has one of the values."""
        return any(secret in text for secret in self._own)

    def own(self, text: str, *, whole: bool = True) -> str:
        """Return `text` without the values of the monitor's request headers; of a long text only the beginning.

        `whole` is False for a text that was cut before: its end may be the beginning of a value.
        """
        cut = text[:LINE_BYTES]
        for secret in self._own:
            cut = cut.replace(secret, MASKED)
        if self._own and not (whole and len(text) <= LINE_BYTES):
            cut = cut[: -len(self._own[0])]
        return cut


def mask_of_body(body: bytes | None) -> Mask:
    """Return a mask for what a monitor sends over a bare connection, where any word may be a password."""
    text = (body or b"").decode("utf-8", "replace")
    return Mask(("", part) for part in (text, *text.split()))


def _spellings(value: str) -> set[str]:
    """Return a header's value and its parts, those of `Basic` decoded: a target may send any of them back."""
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


def shown_line(raw: bytes, mask: Mask) -> str | None:
    return shown_text(raw[:LINE_BYTES].decode("utf-8", "replace"), mask, whole=len(raw) <= LINE_BYTES) or None


def shown_url(url: str, mask: Mask) -> str:
    """Return a URL without the values of its query, where sign-ins and signed addresses have their secrets."""
    has_secrets = not url.lower().startswith(_PLAIN_QUERIES)
    return shown_text(url[:LINE_BYTES], mask, whole=len(url) <= LINE_BYTES, is_url=has_secrets)


def shown_address(url: str) -> str:
    """Return a monitor's address for many readers: of a web page, without the values of its query."""
    return shown_url(url, Mask(()))


def shown_body(text: str, mask: Mask, *, whole: bool = True) -> str | None:
    """Return the beginning of a body. `whole` is False if `text` is itself only a part of it."""
    masked = mask.own(printable(text, keep_lines=True), whole=whole)
    return _mask_named_secrets(masked[: 2 * BODY_CHARS])[:BODY_CHARS] or None


def shown_hex(data: bytes) -> str:
    """Return the first bytes in lower-case hex, those of secrets replaced by `***` too."""
    masked = _mask_named_secrets(data[: 2 * _HEX_BYTES].decode("latin-1"))
    return masked.encode("latin-1")[:_HEX_BYTES].hex()


def shown_text(text: str, mask: Mask, *, whole: bool, is_url: bool = False) -> str:
    """Return one short line. `whole` is False if `text` was cut before."""
    masked = mask.own(printable(text).strip(), whole=whole)
    if is_url:
        masked = _QUERY_VALUE.sub(rf"\1={MASKED}", masked)
    whole = whole and len(masked) <= _SEARCHED_CHARS
    masked = _mask_named_secrets(masked[:_SEARCHED_CHARS])
    return masked if whole and len(masked) <= _VALUE_CHARS else masked[: _VALUE_CHARS - 1] + "…"


def _mask_named_secrets(text: str) -> str:
    text = _USER_INFO.sub(rf"\1{MASKED}@", text)
    text = _BEARER.sub(rf"\1 {MASKED}", text)
    return _NAMED_SECRET.sub(rf"\1{MASKED}", text)
