"""Find one value of a JSON body by a dot path. Pure.

The body is scanned, not parsed: a hostile mebibyte of `[1,1,…]` would be 50 MB of objects and a quarter of a second in
the thread that runs all other checks. The value is found as its text in the body, and numbers are compared as text:
1.10 stays 1.10, and no integer is too long.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

_ABSENT = Raw(b"")
_BLANKS = b" \t\n\r"
# Beyond this index of an array, an object is created for each item before: acceptable, since the path is the owner's.
_MOST_FIELDS = 1_000
# Limit of bytes that all steps into one body scan: enough for all rules of a monitor and a mebibyte below ten layers.
_MOST_SCANNED = 16 * 1024 * 1024
_ITEM_COST = 16  # creating an object takes as long as skipping this many bytes
# A longer object or array is not formatted: `equals` is never as long.
_LONGEST_COMPACT = 64 * 1024
# Escapes of half a character are valid JSON and occur in text that was cut within an emoji. msgspec refuses them, so
# they are removed. Escaped backslashes are replaced first, or the u after one would match.
_LONE_SURROGATE = re.compile(
    rb"""\\u[dD][89abAB][0-9a-fA-F]{2} (?! \\u[dD][c-fC-F][0-9a-fA-F]{2})
       | (?<! \\u[dD][89abAB][0-9a-fA-F]{2}) \\u[dD][c-fC-F][0-9a-fA-F]{2}""",
    re.VERBOSE,
)
_BACKSLASH, _STAND_IN = rb"\\", b"\0\0"
_MOST_REPAIRS = 1_000


class NotJsonError(ValueError):
    """The text is not JSON. NaN and Infinity are not JSON."""


class _Number(str):
    """A JSON number as its digits."""

    __slots__ = ()


class Document:
    """A JSON body. Each step of a path scans one value, `_MOST_SCANNED` bytes in total."""

    def __init__(self, text: str) -> None:
        """Raises NotJsonError."""
        body = text.encode(errors="replace")
        try:
            whole = msgspec.json.decode(body, type=Raw)
        except DecodeError:
            whole = _decode_repaired(body)
        self._values: dict[tuple[str, ...], bytes] = {(): bytes(whole)}
        self._items: dict[tuple[str, ...], list[Raw]] = {}
        self._scanned = len(body)

    def find(self, path: str) -> bytes:
        """Return the JSON text at `path`: objects by key (of duplicates the last), arrays by index.

        Raises LookupError if the value is missing, RecursionError if it is nested too deep.
        """
        steps = tuple(path.split("."))
        for depth in range(len(steps)):
            inner = steps[: depth + 1]
            if inner not in self._values:
                self._values[inner] = self._step(steps[:depth], steps[depth])
        return self._values[steps]

    def _step(self, path: tuple[str, ...], step: str) -> bytes:
        value = self._values[path]
        self._scan(len(value))
        first = value.lstrip(_BLANKS)[:1] if value[:1].isspace() else value[:1]
        found: Any = _ABSENT
        if first == b"{":
            found = _member(value, step)
        elif first == b"[" and step.isascii() and step.isdecimal() and len(step) < 10:
            index = int(step)
            if index < _MOST_FIELDS:
                found = getattr(msgspec.json.decode(value, type=_array_until(index)), f"item_{index}")
            else:
                found = self._far_item(path, index)
        text = bytes(found)
        if not text:
            raise LookupError(step)
        return text

    def _far_item(self, path: tuple[str, ...], index: int) -> Raw:
        if path not in self._items:
            self._items[path] = msgspec.json.decode(self._values[path], type=list[Raw])
            self._scan(len(self._items[path]) * _ITEM_COST)
        items = self._items[path]
        return items[index] if index < len(items) else _ABSENT

    def _scan(self, size: int) -> None:
        self._scanned += size
        if self._scanned > _MOST_SCANNED:
            raise RecursionError


def _member(value: bytes, name: str) -> Any:
    try:
        kind = _object_with(name)
    except ValueError:  # a name with a quote, backslash or control character
        return msgspec.json.decode(value, type=dict[str, Raw]).get(name, _ABSENT)
    return msgspec.json.decode(value, type=kind).item_0


def _decode_repaired(body: bytes) -> Raw:
    if _STAND_IN[:1] in body:
        raise NotJsonError("a control character")
    body = _LONE_SURROGATE.sub(b"", body.replace(_BACKSLASH, _STAND_IN), count=_MOST_REPAIRS)
    try:
        return msgspec.json.decode(body.replace(_STAND_IN, _BACKSLASH), type=Raw)
    except DecodeError as error:
        raise NotJsonError(str(error)) from error


@lru_cache(maxsize=512)
def _object_with(name: str) -> Any:
    """Return a type that decodes only one member of an object. Raises ValueError for some names."""
    return msgspec.defstruct("Object", [("item_0", Raw, _ABSENT)], rename={"item_0": name})


@lru_cache(maxsize=64)
def _array_until(index: int) -> Any:
    """Return a type that decodes only the first items of an array."""
    fields = [(f"item_{number}", Raw, _ABSENT) for number in range(index + 1)]
    return msgspec.defstruct("Array", fields, array_like=True)


def comparable(value: bytes) -> str:
    """Return a value in the form of `equals`: strings unquoted, all else as compact JSON in the body's order."""
    if value[:1] == b'"':
        return msgspec.json.decode(value, type=str)
    if value[:1] not in b"{[" or len(value) > _LONGEST_COMPACT:
        return value.decode()
    return _compact(json.loads(value, parse_float=_Number, parse_int=_Number))


def _compact(value: object) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{_compact(key)}:{_compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
