"""Build the API input for a monitor, with notes about fields that could not be mapped. Pure.

For any file, a mapper returns or raises UnreadableFileError. Values of headers are secrets: they are only in `body`,
never in a note or a repr.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from checks.probes.http.target import MAX_URL
from core.text import shorten
from monitors.types.http import BODY_METHODS, MAX_HEADERS, MAX_RULES
from monitors.types.settings import MAX_NAME, MonitorConfig, settings_of


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


class UnsupportedError(Exception):
    """This monitor is not supported."""

    def __init__(self, field: str, text: str) -> None:
        self.note = Note(field, text)
        super().__init__(text)


class MonitorBuilder:
    """Converts the fields of one monitor of a source."""

    def __init__(self, source: Mapping[str, Any], *, name: object) -> None:
        self.source = source
        self.name = shorten(name, limit=MAX_NAME) if isinstance(name, str) else ""
        self.name = self.name or "Untitled"
        self.body: dict[str, Any] = {"name": self.name}
        self.enabled = True
        self._notes: list[Note] = []

    def mapped(self) -> MappedMonitor:
        return MappedMonitor(self.name, self.body, self.enabled, tuple(self._notes))

    def note(self, field: str, text: str) -> None:
        self._notes.append(Note(field, text))

    def note_ignored(self, fields: Mapping[str, str]) -> None:
        """Add a note for each of these fields that is set; `fields` has the texts."""
        for name, text in fields.items():
            if self.source.get(name) not in (None, "", 0, False, [], {}):
                self.note(name, text)

    def text(self, field: str) -> str:
        """Return the text, or an empty one if it is missing. Raises UnsupportedError if it is not text."""
        value = self.source.get(field)
        if value is None:
            return ""
        if not isinstance(value, str) or not _encodable(value):
            raise UnsupportedError(field, "is not text")
        return value

    def number(self, field: str) -> float | None:
        """Return the number, or None if it is missing. Raises UnsupportedError if it is not a number."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = float(value)
            except ValueError:
                raise UnsupportedError(field, "is not a number") from None
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
            raise UnsupportedError(field, "is not a number")
        return value

    def seconds(self, field: str, *, to: str) -> None:
        """Copy a field of seconds as whole seconds."""
        value = self.number(field)
        if value is not None:
            self.body[to] = round(value)

    def timeout(self, field: str, seconds: float) -> None:
        ms = round(seconds * 1000)
        self.body["timeout_ms"] = settings_of(MonitorConfig)["timeout_ms"].clamp(ms)
        if ms != self.body["timeout_ms"]:
            self.note(field, f"{ms} ms becomes {self.body['timeout_ms']} ms, the nearest allowed value")

    def header(self, field: str, name: str, value: object) -> None:
        """Add a request header. Its value is a secret."""
        headers = self.body.setdefault("request_headers", [])
        known = {header["name"].lower() for header in headers}
        if name.lower() in known:
            self.note(field, f"{name} is set twice; the first value is used")
        elif len(headers) == MAX_HEADERS:
            self.note(field, f"{name} is skipped: the limit is {MAX_HEADERS} headers")
        else:
            headers.append({"name": name, "value": str(value), "type": _kind_of(name, str(value))})

    def headers(self, field: str) -> None:
        """Add the headers of a mapping or of JSON text. Raises UnsupportedError for anything else."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise UnsupportedError(field, "is not JSON") from None
        if value in (None, "", [], {}):
            return
        if not isinstance(value, Mapping):
            raise UnsupportedError(field, "is not an object of headers")
        for name, content in value.items():
            if isinstance(content, Mapping | list) or content is None:
                raise UnsupportedError(field, "has an invalid header")
            self.header(field, str(name), content)

    def url(self, field: str, text: str) -> None:
        """Set the URL. Its user name and password become a header, because the prober does not send them."""
        if len(text) > MAX_URL:
            raise UnsupportedError(field, f"is longer than {MAX_URL} characters")
        try:
            parts = urlsplit(text)
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            raise UnsupportedError(field, "is not a URL") from None
        if user or password:
            self.basic_auth(field, user, password)
            text = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.body["url"] = text

    def basic_auth(self, field: str, user: str, password: str) -> None:
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.header(field, "Authorization", f"Basic {encoded}")

    def rule(self, field: str, **rule: str) -> None:
        rules = self.body.setdefault("content_rules", [])
        if len(rules) == MAX_RULES:
            self.note(field, f"is skipped: the limit is {MAX_RULES} rules")
        else:
            rules.append(rule)

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
            self.header(field, "Content-Type", content_type)

    def set_type(self) -> None:
        """Choose the monitor type that fits the rules."""
        kinds = {rule["type"] for rule in self.body.get("content_rules", ())}
        self.body["type"] = (
            "api" if "json_field" in kinds else "keyword" if kinds & {"text_contains", "text_absent"} else "http"
        )


def _encodable(text: str) -> bool:
    """Return whether the text is valid Unicode: JSON may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_of(name: str, value: str) -> str:
    """Return the display hint of a header."""
    if name.lower() == "authorization" and value.lower().startswith("bearer "):
        return "bearer"
    return "apikey" if name.lower().replace("-", "") in {"xapikey", "apikey"} else "custom"


def map_items(
    items: Iterable[Mapping[str, Any]],
    mapper: Callable[[MonitorBuilder], None],
    *,
    name: Callable[[Mapping[str, Any]], object],
) -> list[MappedMonitor]:
    """Map each item. Items for which `mapper` raises UnsupportedError are skipped, with a note."""
    mapped = []
    for item in items:
        builder = MonitorBuilder(item, name=name(item))
        try:
            mapper(builder)
        except UnsupportedError as error:
            mapped.append(MappedMonitor(builder.name, None, notes=(error.note,)))
        else:
            mapped.append(builder.mapped())
    return mapped


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableFileError("the file is not JSON") from None


def items_of(found: object, *, what: str) -> list[Mapping[str, Any]]:
    """Return a list of objects, given a list or an object of them. Raises UnreadableFileError."""
    if isinstance(found, Mapping):
        found = list(found.values())
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise UnreadableFileError(f"{what} is not a list of objects")
    return found


def status_codes(codes: Iterable[object]) -> set[int] | None:
    """Return the codes of texts like `200`, `200-299` and `2xx`, or None if one is invalid."""
    found: set[int] = set()
    for code in codes:
        text = str(code).strip().lower()
        if text.endswith("xx") and text[:-2].isdecimal():
            text = f"{text[:-2]}00-{text[:-2]}99"
        first, dash, last = text.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(text) > 7:
            return None
        found |= set(range(int(first), int(last or first) + 1))
    return found


def expect(builder: MonitorBuilder, field: str, codes: set[int] | None) -> None:
    """Set the accepted codes. Supported are exactly one code, or any from 200 to 399."""
    if codes is not None and len(codes) == 1:
        builder.body["expect_status"] = codes.pop()
        return
    whole = set(range(200, 400))
    follows = builder.body.get("follow_redirects", False)
    if codes == whole or (codes == set(range(200, 300)) and follows):
        return  # followed redirects are not the final answer
    if codes == set(range(200, 300)):
        builder.note(field, "3xx is accepted too, as redirects are not followed")
    else:
        builder.note(field, "is not supported; any 2xx or 3xx is accepted instead")
