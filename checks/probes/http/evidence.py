"""Evidence of a failed http check, beyond the connection. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from checks.evidence import LINE_BYTES, MASKED, Evidence, Mask, shown_text

# What helps to understand a failure. The rest is not needed, and any header may contain a secret.
_SHOWN_HEADERS = frozenset(
    """
    age alt-svc cache-control cf-cache-status cf-ray connection content-encoding content-length content-type date
    location proxy-authenticate retry-after server set-cookie strict-transport-security transfer-encoding vary via
    www-authenticate x-amz-cf-id x-amzn-requestid x-cache x-powered-by x-request-id x-served-by x-vercel-id
    """.split()  # noqa: SIM905
)
_MAX_HEADERS = 20
_COOKIE_VALUE = re.compile(r"=[^;]*")


@dataclass(frozen=True, slots=True)
class HttpEvidence(Evidence):
    """The last response, decoded, and the redirects that led to it, each with status and target."""

    status_line: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    redirects: tuple[tuple[int, str], ...] = ()

    def lines(self) -> list[tuple[str, str | None]]:
        *connection, body = Evidence.lines(self)
        return [
            *connection,
            *((str(status), f"to {url}") for status, url in self.redirects),
            ("answer", self.status_line),
            *self.headers,
            body,
        ]


def shown_headers(lines: Iterable[bytes], mask: Mask) -> tuple[tuple[str, str], ...]:
    """Return the header lines of a response that help, of cookies only the names."""
    shown: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line[:LINE_BYTES].decode("utf-8", "replace").partition(":")
        name = name.strip().lower()
        if not colon or name not in _SHOWN_HEADERS:
            continue
        if name == "set-cookie":
            first, *attributes = value.split(";")
            value = ";".join([_COOKIE_VALUE.sub(f"={MASKED}", first, count=1), *attributes])
        shown.append((name, shown_text(value, mask, whole=len(line) <= LINE_BYTES, is_url=name == "location")))
        if len(shown) == _MAX_HEADERS:
            break
    return tuple(shown)
