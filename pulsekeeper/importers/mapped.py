"""Build the API input for a monitor from its fields, with notes about what could not be mapped. Pure.

For any file, a mapper returns or raises UnreadableFileError. Values of headers are secrets: they are only in `body`,
never in a note or a repr.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from checks.addresses import BeginsTls, UntestedError, bare, server_url, split_server
from checks.evidence import shown_address
from checks.probes.target import MAX_URL
from core.text import shorten
from monitors import types
from monitors.types.content import MAX_RULES
from monitors.types.http import BODY_METHODS, MAX_HEADERS
from monitors.types.settings import MAX_NAME, MonitorConfig, settings_of
from monitors.types.tags import MAX_TAG, MAX_TAGS, normalized, tag_key

MAX_QUESTIONS = 50
"""Servers of one import that are asked whether https responds. Each may take seconds."""
MAX_CHANNELS = 50
"""Of a monitor. An account has as many."""
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON may contain them alone, and no database stores them

_NO_EXPORTS = {b"SQLite format 3\0": "a SQLite database", b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "a gzip file"}


class UnreadableFileError(Exception):
    """The file is not an export of this product."""


@dataclass(frozen=True, slots=True)
class Note:
    """A field that was changed or skipped. `field` is its name in the source."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class MappedMonitor:
    """A monitor of the source. `body` is the API input, or None if it is unsupported; notes have the reason.

    `group` is the name of its group in the source, which becomes a project, or empty. `channels` are the keys of the
    channels that it notifies there.
    """

    name: str
    body: Mapping[str, Any] | None = field(repr=False)
    enabled: bool = True
    notes: tuple[Note, ...] = ()
    group: str = ""
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappedChannel:
    """An alert channel of the source. `body` is the API input without monitors, or None if it is unsupported.

    Monitors name it by its `key`. Several channels have the same key if the source sends to several addresses.
    """

    key: str
    name: str
    body: Mapping[str, Any] | None = field(repr=False)
    enabled: bool = True
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class MappedFile:
    monitors: Sequence[MappedMonitor]
    channels: Sequence[MappedChannel] = ()

    @property
    def items(self) -> Sequence[MappedMonitor | MappedChannel]:
        """Return all items, in the order of the outcomes of an import."""
        return (*self.monitors, *self.channels)

    def supported(self) -> MappedFile:
        return MappedFile(
            [each for each in self.monitors if each.body is not None],
            [each for each in self.channels if each.body is not None],
        )


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
class ImportedChannel:
    """A created or existing channel; `id` is None in a dry run that would create it.

    `monitors` counts the created monitors that the import selected in it.
    """

    id: str | None
    kind: str
    hint: str
    monitors: int


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome for one monitor or channel of the file.

    `project` is the name of the project that it is in, None outside of projects. `is_private`: it was skipped because
    the network settings do not allow its address.
    """

    name: str
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    monitor: CreatedMonitor | None = None
    project: str | None = None
    is_private: bool = False
    channel: ImportedChannel | None = None


def combine(mapped: Sequence[MappedMonitor | MappedChannel], outcomes: Iterable[Imported]) -> list[Imported]:
    """Return an outcome for every item of the file. `outcomes` are those of the supported ones.

    Notes of the mapping matter only for new items.
    """
    of_supported = iter(outcomes)
    combined = []
    for one in mapped:
        if one.body is None:
            combined.append(Imported(one.name, Outcome.SKIPPED, one.notes))
            continue
        found = next(of_supported)
        notes = one.notes if found.outcome is Outcome.CREATED else ()
        combined.append(replace(found, notes=(*notes, *found.notes)))
    return combined


class UnsupportedError(Exception):
    """This monitor is not supported. Its argument is the note."""


class Builder:
    """Reads the fields of one object of a source, and collects notes about them."""

    def __init__(self, source: Mapping[str, Any], *, name: object, unnamed: str = "Untitled") -> None:
        self.source = source
        self.name = (short_name(name) if isinstance(name, str) else "") or unnamed
        self.body: dict[str, Any] = {"name": self.name}
        self.enabled = True
        self.notes: list[Note] = []

    def require_text(self) -> None:
        """Raise UnsupportedError if a value contains half a character."""
        for field_, value in self.body.items():
            if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
                self.reject(field_, "is not text")

    def reject(self, field: str, text: str) -> NoReturn:
        """Raise UnsupportedError."""
        raise UnsupportedError(Note(field, text)) from None

    def note(self, field: str, text: str) -> None:
        self.notes.append(Note(field, text))

    def note_ignored(self, notes: Mapping[str, str]) -> None:
        """Add the notes of those fields that are set."""
        for field_, text in notes.items():
            if self.source.get(field_):
                self.note(field_, text)

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


class MonitorBuilder(Builder):
    """Converts the fields of one monitor of a source."""

    def __init__(self, source: Mapping[str, Any], *, name: object) -> None:
        super().__init__(source, name=name)
        self.group = ""
        self.channels: tuple[str, ...] = ()

    def map_type(self, field: str, kind: str, mappers: Mapping[str, Callable[[MonitorBuilder], None]]) -> None:
        """Map the fields of a type. Raises UnsupportedError if it has no mapper."""
        if kind not in mappers:
            self.reject(field, f"{kind or 'nothing'} is not supported")
        mappers[kind](self)

    def mapped(self) -> MappedMonitor:
        """Return the monitor. Without a type, it gets the one that fits its rules. Raises UnsupportedError."""
        kinds = {rule["type"] for rule in self.body.get("content_rules", ())}
        self.body.setdefault("type", "api" if "json_field" in kinds else "keyword" if kinds else "http")
        self.require_text()
        return MappedMonitor(self.name, self.body, self.enabled, tuple(self.notes), self.group, self.channels)

    def set_group(self, *names: object) -> None:
        """Set the group to a path of names, the outermost first. Other values than text are left out."""
        self.group = short_name(" / ".join(name for name in names if isinstance(name, str) and name))

    def set_channels(self, keys: Iterable[object]) -> None:
        """Set the keys of the channels. Other values than text are left out."""
        found = dict.fromkeys(short_name(key) for key in keys if isinstance(key, str))
        self.channels = tuple(found)[:MAX_CHANNELS]

    def set_tags(self, field: str, names: Iterable[object]) -> None:
        """Set the tags. Other values than text, and repetitions, are left out."""
        tags: dict[str, str] = {}
        for name in names:
            if not isinstance(name, str) or not name.strip():
                continue
            tag, problem = normalized(shorten(name.replace(",", " "), limit=MAX_TAG))
            if problem:
                self.note(field, f"{shorten(name, limit=MAX_TAG)} is skipped: a tag {problem}")
            elif tag_key(tag) in tags:
                continue
            elif len(tags) == MAX_TAGS:
                self.note(field, f"the limit is {MAX_TAGS} tags; the others are skipped")
                break
            else:
                tags[tag_key(tag)] = tag
                if tag != unicodedata.normalize("NFC", name.strip()):
                    self.note(field, f"{shorten(name.strip(), limit=100)} becomes {tag}")
        if tags:
            self.body["tags"] = list(tags.values())

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

    def port(self, field: str) -> int | None:
        """Return the port, or None if it is missing or 0. Raises UnsupportedError."""
        value = self.number(field)
        if value is not None and value != int(value):
            self.reject(field, "is not a port")
        return int(value) if value else None

    def copy_number(self, field: str, to: str) -> None:
        """Copy a number, for example of seconds, as a whole number."""
        if (value := self.number(field)) is not None:
            self.body[to] = round(value)

    def copy_flag(self, field: str, to: str) -> None:
        if self.source.get(field):
            self.body[to] = True

    def set_url(self, field: str) -> None:
        """Set the URL. Its user name and password become a header, because the prober does not send them."""
        text = bare(self.text(field))
        if len(text) > MAX_URL:
            self.reject(field, f"is longer than {MAX_URL} characters")
        try:
            parts = urlsplit(text)
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            self.reject(field, "is not a URL")
        if user or password:
            self.add_basic_auth(field, user, password)
            text = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.body["url"] = text

    def set_server(self, scheme: str, field: str, *, port: str | None = None) -> None:
        """Set the URL to a host, and to the port in the field `port` if that is given. `host:22` has its own."""
        host = bare(self.text(field))
        if not host:
            self.reject(field, "is missing")
        if port is None:
            self.body["url"] = server_url(scheme, host)
            return
        number, server = self.port(port), split_server(host)
        if number is None and server is not None and server.port:
            host, number = server.host, int(server.port)
        if number is None:
            self.reject(port, "is missing")
        self.body["url"] = server_url(scheme, host, number)

    def set_method(self, field: str, default: str, known: Collection[str] | None = None) -> None:
        self.body["method"] = (self.text(field) or default).upper()
        if known is not None and self.body["method"] not in known:
            self.reject(field, "is not a supported method")

    def set_timeout(self, field: str, seconds: float | None) -> None:
        if not seconds:
            return
        ms = round(seconds * 1000)
        self.body["timeout_ms"] = settings_of(MonitorConfig)["timeout_ms"].clamp(ms)
        if ms != self.body["timeout_ms"]:
            self.note(field, f"{ms} ms becomes {self.body['timeout_ms']} ms, the nearest allowed value")

    def set_confirmation(self, field: str, seconds: float) -> None:
        wanted = round(seconds)
        self.body["confirmation_sec"] = settings_of(MonitorConfig)["confirmation_sec"].clamp(wanted)
        if wanted != self.body["confirmation_sec"]:
            self.note(field, f"{wanted} s becomes {self.body['confirmation_sec']} s, the nearest allowed value")

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

    def add_headers(self, field: str) -> None:
        """Add the headers of a mapping or of JSON text. Raises UnsupportedError for anything else."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                self.reject(field, "is not JSON")
        if value in (None, "", [], {}):
            return
        if not isinstance(value, Mapping):
            self.reject(field, "is not an object of headers")
        for name, content in value.items():
            if isinstance(content, Mapping | list) or content is None:
                self.reject(field, "has an invalid header")
            self.add_header(field, str(name), self.clean(field, str(content)))

    def add_basic_auth(self, field: str, user: str, password: str) -> None:
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.add_header(field, "Authorization", f"Basic {encoded}")

    def add_rule(self, field: str, **rule: str) -> None:
        rules = self.body.setdefault("content_rules", [])
        if len(rules) == MAX_RULES:
            self.note(field, f"is skipped: the limit is {MAX_RULES} rules")
        else:
            rules.append(rule)

    def expect_listed(self, field: str, *default: str) -> None:
        """Set the accepted codes to a list of texts like `200`, `200-299` and `2xx`. Set `follow_redirects` before."""
        codes = self.source.get(field)
        self.expect(field, _codes_of(codes or default) if codes is None or isinstance(codes, list) else None)

    def expect(self, field: str, codes: set[int] | None) -> None:
        """Set the accepted codes. Supported are exactly one code, or any from 200 to 399."""
        if codes is not None and len(codes) == 1:
            self.body["expect_status"] = codes.pop()
        elif codes == set(range(200, 300)):
            if not self.body.get("follow_redirects", False):  # followed redirects are not the final answer
                self.note(field, "3xx is accepted too, as redirects are not followed")
        elif codes != set(range(200, 400)):
            self.note(field, "is not supported; any 2xx or 3xx is accepted instead")


def _kind_of(name: str, value: str) -> str:
    """Return the display hint of a header."""
    if name.lower() == "authorization" and value.lower().startswith("bearer "):
        return "bearer"
    return "apikey" if name.lower().replace("-", "") in {"xapikey", "apikey"} else "custom"


def _codes_of(codes: Iterable[object]) -> set[int] | None:
    """Return the status codes, or None if a text is invalid."""
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


def complete_addresses(mapped: Iterable[MappedMonitor], begins_tls: BeginsTls) -> list[MappedMonitor]:
    """Return the monitors with https:// or http:// before addresses without it, and a note about each.

    Monitors whose server could not be tested are skipped.
    """
    asked: dict[tuple[str, int], bool | None] = {}  # None: no answer

    def ask(host: str, port: int) -> bool:
        key = host.lower(), port
        if key not in asked:
            if None in asked.values() or len(asked) == MAX_QUESTIONS:
                raise UntestedError
            asked[key] = None
            asked[key] = begins_tls(host, port)
        if (found := asked[key]) is None:
            raise UntestedError
        return found

    return [_completed(each, ask) for each in mapped]


def _completed(mapped: MappedMonitor, begins_tls: BeginsTls) -> MappedMonitor:
    body = mapped.body or {}
    kind, given = types.get(body["type"]) if body else None, body.get("url")
    if kind is None or not given or kind.takes_host:
        return mapped
    try:
        url = kind.complete({"url": given}, begins_tls)
    except UntestedError:
        note = Note("url", "has no scheme and could not be tested for https; add https:// or http://")
        return replace(mapped, body=None, notes=(*mapped.notes, note))
    if url == given:
        return mapped
    why = ", as https did not respond" if url.startswith("http:") else ""
    note = Note("url", f"is completed to {shown_address(url)}{why}")
    return replace(mapped, body={**body, "url": url}, notes=(*mapped.notes, note))


def short_name(text: str) -> str:
    """Return the text as the name of a monitor, project or channel."""
    return shorten(text, limit=MAX_NAME)


def decode(data: bytes) -> str:
    """Return the text of an exported file. Raises UnreadableFileError."""
    for start, kind in _NO_EXPORTS.items():
        if data.startswith(start):
            raise UnreadableFileError(f"the file is {kind}, not an export")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFileError("the file is not UTF-8 text") from None


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableFileError("the file is not JSON") from None
