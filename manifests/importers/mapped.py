"""What mappers make of a source: a monitor's body as the API takes it, and what could not be said in it. Pure.

Whatever a file holds, a mapper raises UnreadableFileError or returns. Values of headers are secrets: they are in
`given` and nowhere else, in no note and no repr.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from checks.probes.http.target import MAX_URL
from core.text import shorten
from monitors.configuration import BODY_METHODS, MAX_HEADERS, MAX_RULES, MAX_TIMEOUT_MS, MIN_TIMEOUT_MS

MAX_NAME = 200


class UnreadableFileError(Exception):
    """The file is not what its source would have written."""


@dataclass(frozen=True, slots=True)
class Note:
    """What was not taken over as it is, or not at all. `field` is the source's name for it."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Mapped:
    """One monitor of the source. `given` is the body of a create, or None where it cannot be one; notes say why."""

    name: str
    given: Mapping[str, Any] | None = field(repr=False)
    enabled: bool = True
    notes: tuple[Note, ...] = ()


class Refused(Exception):
    """This monitor has no counterpart here."""

    def __init__(self, field: str, text: str) -> None:
        self.note = Note(field, text)
        super().__init__(text)


class Making:
    """A monitor on its way from a source's fields to ours."""

    def __init__(self, source: Mapping[str, Any], *, name: object) -> None:
        self.source = source
        self.name = shorten(name, limit=MAX_NAME) if isinstance(name, str) else ""
        self.name = self.name or "Untitled"
        self.given: dict[str, Any] = {"name": self.name}
        self.enabled = True
        self._notes: list[Note] = []

    def mapped(self) -> Mapped:
        return Mapped(self.name, self.given, self.enabled, tuple(self._notes))

    def left_out(self, refusal: Refused) -> Mapped:
        return Mapped(self.name, None, notes=(refusal.note,))

    def note(self, field: str, text: str) -> None:
        self._notes.append(Note(field, text))

    def note_if_there(self, fields: Mapping[str, str]) -> None:
        """Of fields that are set in the source and mean nothing here, by field the reason."""
        for name, text in fields.items():
            if self.source.get(name) not in (None, "", 0, False, [], {}):
                self.note(name, text)

    def text(self, field: str) -> str:
        """Empty where there is none; raises Refused for what is no text."""
        value = self.source.get(field)
        if value is None:
            return ""
        if not isinstance(value, str) or not _encodable(value):
            raise Refused(field, "is no text")
        return value

    def number(self, field: str) -> float | None:
        """None where there is none; raises Refused for what is no number."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = float(value)
            except ValueError:
                raise Refused(field, "is no number") from None
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
            raise Refused(field, "is no number")
        return value

    def seconds(self, field: str, *, to: str) -> None:
        """A field of seconds, as one of whole seconds of ours."""
        value = self.number(field)
        if value is not None:
            self.given[to] = round(value)

    def timeout(self, field: str, seconds: float) -> None:
        ms = round(seconds * 1000)
        self.given["timeout_ms"] = min(max(ms, MIN_TIMEOUT_MS), MAX_TIMEOUT_MS)
        if ms != self.given["timeout_ms"]:
            self.note(field, f"{ms} ms becomes {self.given['timeout_ms']} ms, the nearest that is taken")

    def header(self, field: str, name: str, value: object) -> None:
        """One more request header. Its value is a secret."""
        headers = self.given.setdefault("request_headers", [])
        known = {header["name"].lower() for header in headers}
        if name.lower() in known:
            self.note(field, f"{name} is there already and is not set a second time")
        elif len(headers) == MAX_HEADERS:
            self.note(field, f"{name} is left out: {MAX_HEADERS} headers are the most")
        else:
            headers.append({"name": name, "value": str(value), "type": _kind_of(name, str(value))})

    def headers(self, field: str) -> None:
        """Those of a mapping, which may be JSON in a text; raises Refused for what is neither."""
        value = self.source.get(field)
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise Refused(field, "is no JSON") from None
        if value in (None, "", [], {}):
            return
        if not isinstance(value, Mapping):
            raise Refused(field, "is no object of headers")
        for name, content in value.items():
            if isinstance(content, Mapping | list) or content is None:
                raise Refused(field, "holds what is no header")
            self.header(field, str(name), content)

    def url(self, field: str, text: str) -> None:
        """The address; a user name and password in it become a header, as the prober sends them nowhere else from."""
        if len(text) > MAX_URL:
            raise Refused(field, f"is longer than {MAX_URL} characters")
        try:
            parts = urlsplit(text)
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            raise Refused(field, "is no address") from None
        if user or password:
            self.basic_auth(field, user, password)
            text = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.given["url"] = text

    def basic_auth(self, field: str, user: str, password: str) -> None:
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.header(field, "Authorization", f"Basic {encoded}")

    def rule(self, field: str, **rule: str) -> None:
        rules = self.given.setdefault("content_rules", [])
        if len(rules) == MAX_RULES:
            self.note(field, f"is left out: {MAX_RULES} rules are the most")
        else:
            rules.append(rule)

    def body(self, field: str, text: str, *, content_type: str | None = None) -> None:
        """Sent along, where the method takes one. Ours is JSON unless a Content-Type header says otherwise."""
        if not text:
            return
        method = self.given.get("method")
        if method not in BODY_METHODS:
            self.note(field, f"is left out: no body is sent with {method}")
            return
        self.given["request_body"] = text
        there = {header["name"].lower() for header in self.given.get("request_headers", ())}
        if content_type is not None and "content-type" not in there:
            self.header(field, "Content-Type", content_type)

    def settle_type(self) -> None:
        """The type of ours that fits the rules."""
        kinds = {rule["type"] for rule in self.given.get("content_rules", ())}
        self.given["type"] = (
            "api"
            if "json_field" in kinds
            else "keyword"
            if kinds & {"text_contains", "text_absent"}
            else "http"
        )


def _encodable(text: str) -> bool:
    """JSON can hold halves of characters, which nothing else can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_of(name: str, value: str) -> str:
    """The display hint that fits."""
    if name.lower() == "authorization" and value.lower().startswith("bearer "):
        return "bearer"
    return "apikey" if name.lower().replace("-", "") in {"xapikey", "apikey"} else "custom"


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableFileError("the file is no JSON") from None


def items_of(found: object, *, what: str) -> list[Mapping[str, Any]]:
    """A list of objects, or an object of them by their ids; raises UnreadableFileError."""
    if isinstance(found, Mapping):
        found = list(found.values())
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise UnreadableFileError(f"{what} is no list of objects")
    return found


def status_codes(codes: Iterable[object]) -> set[int] | None:
    """The codes that `200`, `200-299` and `2xx` name; None for what names none."""
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


def expect(making: Making, field: str, codes: set[int] | None) -> None:
    """What of these accepted codes can be said here: exactly one, or any from 200 to 399."""
    if codes is not None and len(codes) == 1:
        making.given["expect_status"] = codes.pop()
        return
    whole = set(range(200, 400))
    follows = making.given.get("follow_redirects", False)
    if codes == whole or (codes == set(range(200, 300)) and follows):
        return  # a redirect that is followed is not the final answer
    if codes == set(range(200, 300)):
        making.note(field, "3xx passes here too, where redirects are not followed")
    else:
        making.note(field, "cannot be said here, where it is one code or any 2xx and 3xx; the latter is set")
