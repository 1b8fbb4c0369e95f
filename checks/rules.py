"""Content rules on a response body (decisions 22 and 23).

Pure. A hostile body ends in a sentence, never in an error.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from functools import cached_property

from checks.json_path import NotJsonError, comparable, find_value
from checks.spec import ContentRule, RuleType
from checks.wording import quote

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:+-]{1,40})""", re.IGNORECASE)
_QUOTABLE = 4096  # characters of a value that are looked at for secrets before it is quoted
# Codecs of Python's own that no server means by `charset`, some of them quadratic on a hostile body.
_NOT_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose little-endian BOM it starts with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _declared_charset(content_type: str | None) -> str | None:
    """The charset of a Content-Type, None where it names none that is known."""
    match = _CHARSET.search(content_type or "")
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1]).name
        b"a".decode(name, "replace")  # refuses codecs that make no text of bytes, as zlib and rot13
    except (LookupError, ValueError):
        return None
    return None if name.replace("_", "-") in _NOT_CHARSETS else name


def decode_body(body: bytes | bytearray, content_type: str | None) -> str:
    """The text of a body: charset of the Content-Type, then byte order mark, then UTF-8 with replacement."""
    charset = _declared_charset(content_type)
    if charset is None:
        charset = next((name for mark, name in _BOMS if body.startswith(mark)), "utf-8")
    try:
        text = body.decode(charset, "replace")
    except ValueError:  # a codec that knows no replacement
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


class _Body:
    """A body that is decoded at most once, and only for a rule that asks."""

    def __init__(self, raw: bytes | bytearray, content_type: str | None) -> None:
        self._raw = raw
        self._content_type = content_type

    @cached_property
    def text(self) -> str:
        return decode_body(self._raw, self._content_type)


def _check_json(rule: ContentRule, body: _Body, mask: Callable[[str], str]) -> str | None:
    name = quote(rule.path)
    try:
        value = find_value(body.text, rule.path)
        if rule.equals is None:
            return None
        found = comparable(value)
    except NotJsonError:
        return (
            f"The body is not JSON, so its field {name} cannot be read; check what the address answers with."
        )
    except LookupError:
        return f"The JSON of the body has no field {name}; check the path, or what the service left out."
    except RecursionError:
        return f"The JSON of the body is nested too deep to read its field {name}; check a smaller answer."
    if found == rule.equals:
        return None
    return (
        f"The JSON field {name} holds {quote(mask(found[:_QUOTABLE]))} instead of {quote(rule.equals)}; "
        "see what the service reports."
    )


def find_broken_rule(
    rules: tuple[ContentRule, ...],
    raw: bytes | bytearray,
    *,
    content_type: str | None,
    over_cap: bool,
    mask: Callable[[str], str] = str,
) -> str | None:
    """A sentence on the first rule that the body breaks, None when every rule passes.

    `over_cap` says that `raw` is only the first MiB: text rules look at what came, JSON cannot be read. `mask`
    hides what must not be shown in text of the body.
    """
    body = _Body(raw, content_type)
    for rule in rules:
        broken: str | None = None
        if rule.type is RuleType.TEXT_CONTAINS:
            if rule.value not in body.text:
                where = "The first MiB of the body" if over_cap else "The body"
                broken = f"{where} does not contain {quote(rule.value)}; open the page and see what it shows."
        elif rule.type is RuleType.TEXT_ABSENT:
            if rule.value in body.text:
                broken = (
                    f"The body contains {quote(rule.value)}, which must be absent; "
                    "open the page and see what it shows."
                )
        elif over_cap:
            broken = (
                f"The body is too large (over 1 MiB) to read its JSON field {quote(rule.path)}; "
                "check a smaller answer."
            )
        else:
            broken = _check_json(rule, body, mask)
        if broken is not None:
            return broken
    return None
