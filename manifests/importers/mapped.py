"""Build the API input for a monitor from a table of its fields, with notes about what could not be mapped. Pure.

For any file, a mapper returns or raises UnreadableFileError. Values of headers are secrets: they are only in `body`,
never in a note or a repr.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn

from core.text import shorten
from monitors.types.content import MAX_RULES
from monitors.types.http import BODY_METHODS, MAX_HEADERS
from monitors.types.settings import MAX_NAME, MonitorConfig, settings_of

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON may contain them alone, and no database stores them


class UnreadableFileError(Exception):
    """The file is not an export of this product."""


@dataclass(frozen=True, slots=True)
class Note:
    """A field that was changed or skipped. `field` is its name in the source."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class MappedMonitor:
    """A monitor of the source. `body` is the API input, or None if it is unsupported; notes have the reason."""

    name: str
    body: Mapping[str, Any] | None = field(repr=False)
    enabled: bool = True
    notes: tuple[Note, ...] = ()


class Outcome(StrEnum):
    CREATED = "created"
    EXISTING = "existing"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CreatedMonitor:
    """A monitor that an import created; `id` and `ping_url` are None in a dry run, `ping_url` is of heartbeats only."""

    id: str | None
    type: str
    url: str
    interval_sec: int
    schedule: str | None = None
    timezone: str | None = None
    ping_url: str | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome for one monitor of the file."""

    name: str
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    monitor: CreatedMonitor | None = None


class UnsupportedError(Exception):
    """This monitor is not supported. Its argument is the note."""


class MonitorBuilder:
    """Converts the fields of one monitor of a source."""

    def __init__(self, source: Mapping[str, Any], *, name: object) -> None:
        self.source = source
        self.name = (shorten(name, limit=MAX_NAME) if isinstance(name, str) else "") or "Untitled"
        self.body: dict[str, Any] = {"name": self.name}
        self.enabled = True
        self.notes: list[Note] = []

    def apply(self, table: Table) -> None:
        """Map the fields of a table in its order. A text is the note for a field that is set and not supported."""
        for name, row in table.items():
            if callable(row):
                row(self, name)
            elif self.source.get(name) not in (None, "", 0, False, [], {}):
                self.note(name, row)

    def apply_type(self, name: str, kind: str, tables: Mapping[str, Table]) -> None:
        """Map the fields of a type. Raises UnsupportedError if it has no table."""
        if kind not in tables:
            self.reject(name, f"{kind or 'nothing'} is not supported")
        self.apply(tables[kind])

    def mapped(self) -> MappedMonitor:
        """Return the monitor. Without a type, it gets the one that fits its rules. Raises UnsupportedError."""
        kinds = {rule["type"] for rule in self.body.get("content_rules", ())}
        self.body.setdefault("type", "api" if "json_field" in kinds else "keyword" if kinds else "http")
        for field_, value in self.body.items():
            if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
                self.reject(field_, "is not text")
        return MappedMonitor(self.name, self.body, self.enabled, tuple(self.notes))

    def reject(self, field: str, text: str) -> NoReturn:
        """Raise UnsupportedError."""
        raise UnsupportedError(Note(field, text)) from None

    def note(self, field: str, text: str) -> None:
        self.notes.append(Note(field, text))

    def text(self, field: str) -> str:
        """Return the text, or an empty one if it is missing. Raises UnsupportedError if it is not text."""
        value = self.source.get(field)
        if value is None:
            return ""
        if not isinstance(value, str) or _SURROGATE.search(value):
            self.reject(field, "is not text")
        return self.clean(field, value)

    def clean(self, field: str, text: str) -> str:
        """Return a text without the escapes of the source. Raises UnsupportedError."""
        return text

    def number(self, field: str) -> float | None:
        """Return the number, or None if it is missing. Raises UnsupportedError if it is not a number."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = float(value)
            except ValueError:
                self.reject(field, "is not a number")
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
            self.reject(field, "is not a number")
        return value

    def set_timeout(self, field: str, seconds: float) -> None:
        ms = round(seconds * 1000)
        self.body["timeout_ms"] = settings_of(MonitorConfig)["timeout_ms"].clamp(ms)
        if ms != self.body["timeout_ms"]:
            self.note(field, f"{ms} ms becomes {self.body['timeout_ms']} ms, the nearest allowed value")

    def set_body(self, field: str, text: str, *, content_type: str | None = None) -> None:
        """Set the request body if the method has one. The default Content-Type is JSON."""
        if not text:
            return
        method = self.body.get("method")
        if method not in BODY_METHODS:
            self.note(field, f"is skipped: {method} has no body")
            return
        self.body["request_body"] = text
        there = {header["name"].lower() for header in self.body.get("request_headers", ())}
        if content_type is not None and "content-type" not in there:
            self.add_header(field, "Content-Type", content_type)

    def add_header(self, field: str, name: str, value: object) -> None:
        """Add a request header. Its value is a secret."""
        headers = self.body.setdefault("request_headers", [])
        if name.lower() in {header["name"].lower() for header in headers}:
            self.note(field, f"{name} is set twice; the first value is used")
        elif len(headers) == MAX_HEADERS:
            self.note(field, f"{name} is skipped: the limit is {MAX_HEADERS} headers")
        else:
            headers.append({"name": name, "value": str(value), "type": _kind_of(name, str(value))})

    def add_basic_auth(self, field: str, user: str, password: str) -> None:
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.add_header(field, "Authorization", f"Basic {encoded}")

    def add_rule(self, field: str, **rule: str) -> None:
        rules = self.body.setdefault("content_rules", [])
        if len(rules) == MAX_RULES:
            self.note(field, f"is skipped: the limit is {MAX_RULES} rules")
        else:
            rules.append(rule)

    def expect(self, field: str, codes: set[int] | None) -> None:
        """Set the accepted codes. Supported are exactly one code, or any from 200 to 399."""
        if codes is not None and len(codes) == 1:
            self.body["expect_status"] = codes.pop()
        elif codes == set(range(200, 300)):
            if not self.body.get("follow_redirects", False):  # followed redirects are not the final answer
                self.note(field, "3xx is accepted too, as redirects are not followed")
        elif codes != set(range(200, 400)):
            self.note(field, "is not supported; any 2xx or 3xx is accepted instead")


Row = Callable[[MonitorBuilder, str], None]
Table = Mapping[str, Row | str]
"""How the fields of a source are mapped."""


def _kind_of(name: str, value: str) -> str:
    """Return the display hint of a header."""
    if name.lower() == "authorization" and value.lower().startswith("bearer "):
        return "bearer"
    return "apikey" if name.lower().replace("-", "") in {"xapikey", "apikey"} else "custom"


def map_items(
    items: object,
    mapper: Callable[[MonitorBuilder], None],
    *,
    what: str,
    name: Callable[[Mapping[str, Any]], object],
    builder_class: type[MonitorBuilder] = MonitorBuilder,
) -> list[MappedMonitor]:
    """Map each item of a list of objects, or of an object of them. Raises UnreadableFileError for anything else.

    Items for which `mapper` raises UnsupportedError are skipped, with a note. `what` names the list.
    """
    if isinstance(items, Mapping):
        items = list(items.values())
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise UnreadableFileError(f"{what} is not a list of objects")
    mapped = []
    for item in items:
        builder = builder_class(item, name=name(item))
        try:
            mapper(builder)
            mapped.append(builder.mapped())
        except UnsupportedError as error:
            mapped.append(MappedMonitor(builder.name, None, notes=error.args))
    return mapped


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableFileError("the file is not JSON") from None
