"""Values at the limits of what a field takes, and shapes of bodies that are costly to read. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

LIMIT = 200_000
"""The longest text that leaves room for the rest of a body of 256 KiB."""
SHORT = 60_000
"""The longest text in an address or a header: the web server rejects longer lines."""


def texts(longest: int, *, limit: int = LIMIT) -> Iterator[tuple[str, str]]:
    """Yield names and texts: as long as the field says (`longest`) or a little longer, and as long as a body may be."""
    for name, part in _PARTS.items():
        # Of those beyond the limit of a field, which is checked first, some are enough.
        for length in {min(longest, limit), limit if name in _BEYOND else min(longest, limit)}:
            yield f"{name} x{length}", (part * (length // len(part) + 1))[:length]
    for name, text in _WHOLE.items():
        if len(text) <= longest or name in _BEYOND:
            yield name, text
        if len(text) < longest < limit:
            yield f"{name} padded", text + "/" * (longest - len(text))


_PARTS = {
    "a": "a", "quotes": '"', "emoji": "\U0001f600", "combining": "\u0301\u0323", "ligature": "\ufdfa",
    "digits": "9", "spaces": " ", "backslashes": "\\", "labels": "a.", "commas": "0,", "hangul": "\u1100\u1161\u11a8",
    "brackets": "[",
    "percent": "%25", "dollars": "${PK_A}", "newlines": "\n", "ends": "</a>", "at": "@", "slash": "/../",
    "colons": ":", "equals": "A=1;", "dashes": "xn--", "controls": "\x01", "mixed": "é\u0301 ",
}  # fmt: skip
_BEYOND = {"emoji", "combining", "labels", "long idna", "cron ranges", "nested comments"}
_WHOLE = {
    "idna": "http://" + "ü." * 120 + "example/",
    "long idna": "http://" + "ß" * 60_000 + ".example/",
    "arabic idna": "http://" + ("\u0627" * 60 + ".") * 900,
    "many colons": "http://[" + ":" * 60_000 + "]/",
    "user": "http://" + "a:" * 30_000 + "@a.invalid/",
    "decimal host": "http://" + "9" * 60_000 + "/",
    "dotted numbers": "http://" + "0x7f." * 12_000 + "1/",
    "query": "http://a.invalid/?" + "a=b&" * 500,
    "port": "tcp://a.invalid:" + "9" * 60_000,
    "dns": "dns:" + "a." * 126 + "?type=MX",
    "dns with escapes": "dns:" + "\\000" * 15_000,
    "dns by resolver": "dns://[" + "0:" * 7 + "1]/a?type=TXT",
    "cron never": "59 23 31 2,4,6,9,11 *",
    "cron dense": "*/2 */2 */2 */2 */2",
    "cron list": ",".join(map(str, range(60))) + " * * * *",
    "cron ranges": "-".join(["1"] * 30_000) + " * * * *",
    "zone": "America/St_Johns",
    "zone path": "../" * 2_000 + "etc/passwd",
    "rule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;COUNT=3600",
    "rule never": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=100",
    "rule list": "FREQ=MONTHLY;BYMONTHDAY=" + ",".join(["1"] * 100) + ";COUNT=100",
    "rule secondly": "FREQ=SECONDLY;COUNT=999999999",
    "email": "a@" + "a." * 5_000 + "example",
    "quoted email": '"' + "\\" * 10_000 + '"@example.com',
    "nested comments": "(" * 30_000 + "a@example.com",
    "pem": "-----BEGIN CERTIFICATE-----\n" + "A" * 60_000,
    "base64": "A" * 65_536,
    "json": '{"a":' * 10_000,
    "color": "#" + "f" * 60_000,
    "apprise": "mailto://" + "a:b@" * 10_000 + "?" + "to=a&" * 2_000,
}  # fmt: skip


def values(schema: dict[str, Any], *, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield names and values for a resolved schema of openapi.json."""
    kinds = schema.get("type", "string")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind == "string":
            yield from texts(schema.get("maxLength", 2_048))
            yield from ((f"choice {word}", word) for word in schema.get("enum", [])[:12])
        elif kind in ("integer", "number"):
            yield from ((f"number {number:.3g}", number) for number in (0, -1, 2**31 - 1, 2**63, 10**39, 1e308))
            yield from ((bound, schema[bound]) for bound in ("minimum", "maximum") if bound in schema)
        elif kind == "boolean":
            yield from (("true", True), ("false", False))
        elif kind == "array":
            yield from _arrays(schema, depth)
        elif kind == "object":
            yield "wide object", {f"{number}": number for number in range(15_000)}
            yield "deep object", _nested(300)


def _arrays(schema: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    yield "60,000 nulls", [None] * 40_000
    yield "20,000 texts", ["a"] * 40_000
    yield "20,000 objects", [{}] * 60_000
    yield "deep array", _nested(300)
    if depth:
        return
    for name, value in values(schema.get("items", {}), depth=1):
        most = min(schema.get("maxItems", 1_000), 2_000)
        size = len(json.dumps(value)) + 2
        yield f"{most} times {name}", [value] * max(1, min(most, LIMIT // size))


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = {"a": [value]}
    return value


def shapes(limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and bodies in JSON, or nearly, of up to this size."""
    big = limit - 100
    yield "nothing", b""
    yield "deep arrays", b"[" * big
    yield "deep objects", b'{"a":' * (big // 5)
    yield "closed deep arrays", b"[" * 900 + b"]" * 900
    yield "wide array", b"[" + b"0," * (big // 2 - 1) + b"0]"
    yield "empty arrays", b"[" + b"[]," * (big // 3 - 1) + b"0]"
    yield "empty objects", b'{"a":[' + b"{}," * (big // 3 - 4) + b"0]}"
    yield "keys", json.dumps({f"{number:x}": 0 for number in range(big // 12)}).encode()
    yield "equal keys", b"{" + b'"a":0,' * (big // 6) + b'"a":0}'
    yield "digits", b'{"a":' + b"9" * big + b"}"
    yield "numbers", b"[" + b"1e308," * (big // 6 - 1) + b"0]"
    yield "fraction", b"0." + b"3" * big
    yield "exponent", b"1e" + b"9" * big
    yield "escapes", b'{"a":"' + b"\\u0041" * (big // 6 - 2) + b'"}'
    yield "pairs", b'{"a":"' + b"\\ud83d\\ude00" * (big // 12 - 2) + b'"}'
    yield "surrogates", b'{"a":"' + b"\\ud800" * (big // 6 - 2) + b'"}'
    yield "text", b'{"a":"' + b"a" * (big - 10) + b'"}'
    yield "one emoji", b'{"a":"' + "\U0001f600".encode() + b"a" * (big - 20) + b'"}'
    yield "no text", b"\xff" * big
    yield "blanks", b" " * big
    yield "too large", b"[" * 1_500_000
    yield "beyond any limit", b"[" * 1_600_000
