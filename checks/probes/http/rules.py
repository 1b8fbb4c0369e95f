"""Content rules on a response body. Pure. A hostile body breaks a rule, but never raises."""

from __future__ import annotations

import codecs
import encodings
import re
from collections.abc import Callable
from encodings.aliases import aliases
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules

from checks.probes.http.json_path import Document, NotJsonError, comparable
from checks.spec import ContentRule, RuleType
from checks.verdict import broken_text_rule
from core.text import quote

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9._:+-]{1,40})""", re.IGNORECASE)
# Python caches unknown names, so only known ones are looked up. These are not charsets of the web, and some take
# quadratic time.
_NOT_CHARSETS = {
    "aliases",
    "charmap",
    "idna",
    "mbcs",
    "oem",
    "punycode",
    "raw_unicode_escape",
    "undefined",
    "unicode_escape",
    "utf_7",
}
_CHARSETS = frozenset(module.name for module in iter_modules(encodings.__path__)) - _NOT_CHARSETS
_MOST_FAULTS = 1_000
_BOMS = (
    (codecs.BOM_UTF8, "utf_8"),
    (codecs.BOM_UTF32_LE, "utf_32"),  # before UTF-16, whose little-endian BOM it starts with
    (codecs.BOM_UTF32_BE, "utf_32"),
    (codecs.BOM_UTF16_LE, "utf_16"),
    (codecs.BOM_UTF16_BE, "utf_16"),
)


def _declared_charset(content_type: str | None) -> str | None:
    """Return the charset of a Content-Type, or None if it names none that is known."""
    match = _CHARSET.search(content_type or "")
    if match is None:
        return None
    name = encodings.normalize_encoding(match[1].lower()).replace(".", "_")
    name = aliases.get(name, name)
    if name not in _CHARSETS:
        return None
    try:
        b"a".decode(name, "replace")  # refuses codecs that do not produce text, as zlib and rot13
    except (LookupError, ValueError):
        return None
    return name


@cache
def _characters(charset: str) -> str | None:
    """Return the 256 characters of a single-byte charset, None for others.

    With them a mebibyte takes 1 ms. Python's own decoders take 0.1 s if every byte is invalid.
    """
    if not hasattr(import_module(f"encodings.{charset}"), "decoding_table"):
        return None
    return bytes(range(256)).decode(charset, "replace")


def _replace_some(fault: UnicodeError) -> tuple[str, int]:
    """Replace invalid bytes like "replace", but drop the rest after the thousandth: each takes time."""
    if not isinstance(fault, UnicodeDecodeError):
        raise fault
    met = vars(fault).get("met", 0) + 1  # Python passes the same object for all faults of a text
    vars(fault)["met"] = met
    return "\ufffd", fault.end if met < _MOST_FAULTS else len(fault.object)


codecs.register_error("replace-some", _replace_some)


def decode_body(body: bytes | bytearray, content_type: str | None) -> str:
    """Decode a body by the charset of the Content-Type, else by its byte order mark, else as UTF-8 with replacement."""
    charset = _declared_charset(content_type)
    if charset is None:
        charset = next((name for mark, name in _BOMS if body.startswith(mark)), "utf_8")
    if (characters := _characters(charset)) is not None:
        # Typeshed lacks the fast form of the mapping, a string of 256 characters.
        return codecs.charmap_decode(body, "replace", characters)[0]  # type: ignore[arg-type]
    try:
        text = body.decode(charset, "replace-some" if charset.startswith(("utf_16", "utf_32")) else "replace")
    except ValueError:  # a codec without replacement
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


class _Body:
    """A body, decoded and parsed at most once, and only if a rule needs it."""

    def __init__(self, raw: bytes | bytearray, content_type: str | None) -> None:
        self._raw = raw
        self._content_type = content_type

    @cached_property
    def text(self) -> str:
        return decode_body(self._raw, self._content_type)

    @cached_property
    def json(self) -> Document:
        """Raises NotJsonError."""
        return Document(self.text)


def _check_json(rule: ContentRule, body: _Body, mask: Callable[[str], str]) -> str | None:
    name = quote(rule.path)
    try:
        value = body.json.find(rule.path)
        if rule.equals is None:
            return None
        found = comparable(value)
    except NotJsonError:
        return f"The body is not JSON, so its field {name} cannot be read; check what the address answers with."
    except LookupError:
        return f"The JSON of the body has no field {name}; check the path, or what the service left out."
    except RecursionError:
        return f"The JSON of the body is nested too deep to read its field {name}; check a smaller answer."
    if found == rule.equals:
        return None
    return (
        f"The JSON field {name} is {quote(mask(found))} instead of {quote(rule.equals)}; see what the service reports."
    )


def _check(rule: ContentRule, body: _Body, mask: Callable[[str], str], *, over_cap: bool) -> str | None:
    if rule.type is RuleType.JSON_FIELD:
        if not over_cap:
            return _check_json(rule, body, mask)
        return f"The body is too large (over 1 MiB) to read its JSON field {quote(rule.path)}; check a smaller answer."
    where = "The first MiB of the body" if over_cap and rule.type is RuleType.TEXT_CONTAINS else "The body"
    return broken_text_rule(rule, body.text, where=where, look="open the page and see what it shows")


def find_broken_rule(
    rules: tuple[ContentRule, ...],
    raw: bytes | bytearray,
    *,
    content_type: str | None,
    over_cap: bool,
    mask: Callable[[str], str] = str,
) -> str | None:
    """Return a sentence about the first rule that the body breaks, None if every rule passes.

    `over_cap`: `raw` is only the first MiB, which text rules search, but JSON cannot be read. `mask` removes secrets
    from quoted text.
    """
    body = _Body(raw, content_type)
    return next(filter(None, (_check(rule, body, mask, over_cap=over_cap) for rule in rules)), None)
