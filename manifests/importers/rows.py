"""Rows of tables: the ways to map a field that several sources have in common. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from checks.probes.target import MAX_URL
from manifests.importers.addresses import server_url
from manifests.importers.mapped import MonitorBuilder, Row


def constants(**values: Any) -> Row:
    return lambda builder, _: builder.body.update(values)


def notice(text: str) -> Row:
    """Always add a note."""
    return lambda builder, field: builder.note(field, text)


def whole_number(to: str, *, ignore_zero: bool = False) -> Row:
    """Copy a number, for example of seconds, as a whole number."""

    def row(builder: MonitorBuilder, field: str) -> None:
        value = builder.number(field)
        if value is not None and not (ignore_zero and value == 0):
            builder.body[to] = round(value)

    return row


def flag(to: str) -> Row:
    def row(builder: MonitorBuilder, field: str) -> None:
        if builder.source.get(field):
            builder.body[to] = True

    return row


def unsupported(text: str) -> Row:
    """Raise UnsupportedError if the field is set."""

    def row(builder: MonitorBuilder, field: str) -> None:
        if builder.source.get(field):
            builder.reject(field, text)

    return row


def url(builder: MonitorBuilder, field: str) -> None:
    """Set the URL. Its user name and password become a header, because the prober does not send them."""
    text = builder.text(field)
    if len(text) > MAX_URL:
        builder.reject(field, f"is longer than {MAX_URL} characters")
    try:
        parts = urlsplit(text)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        builder.reject(field, "is not a URL")
    if user or password:
        builder.add_basic_auth(field, user, password)
        text = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    builder.body["url"] = text


def server(scheme: str, *, port: str | None = None) -> Row:
    """Set the URL to a host, and to the port in the field `port` if that is given."""

    def row(builder: MonitorBuilder, field: str) -> None:
        host, number = builder.text(field), None
        if not host.strip():
            builder.reject(field, "is missing")
        if port is not None and (number := port_number(builder, port)) is None:
            builder.reject(port, "is missing")
        builder.body["url"] = server_url(scheme, host, number)

    return row


def port_number(builder: MonitorBuilder, field: str) -> int | None:
    """Return the port, or None if it is missing or 0. Raises UnsupportedError."""
    value = builder.number(field)
    if value is not None and value != int(value):
        builder.reject(field, "is not a port")
    return int(value) if value else None


def method(default: str, known: Iterable[str] | None = None) -> Row:
    def row(builder: MonitorBuilder, field: str) -> None:
        builder.body["method"] = (builder.text(field) or default).upper()
        if known is not None and builder.body["method"] not in known:
            builder.reject(field, "is not a supported method")

    return row


def timeout(builder: MonitorBuilder, field: str) -> None:
    if seconds := builder.number(field):
        builder.set_timeout(field, seconds)


def headers(builder: MonitorBuilder, field: str) -> None:
    """Add the headers of a mapping or of JSON text. Raises UnsupportedError for anything else."""
    value = builder.source.get(field)
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            builder.reject(field, "is not JSON")
    if value in (None, "", [], {}):
        return
    if not isinstance(value, Mapping):
        builder.reject(field, "is not an object of headers")
    for name, content in value.items():
        if isinstance(content, Mapping | list) or content is None:
            builder.reject(field, "has an invalid header")
        builder.add_header(field, str(name), builder.clean(field, str(content)))


def status_codes(*default: str) -> Row:
    """Map a list of texts like `200`, `200-299` and `2xx`. It follows the row of `follow_redirects`."""

    def row(builder: MonitorBuilder, field: str) -> None:
        codes = builder.source.get(field)
        if codes is None or isinstance(codes, list):
            builder.expect(field, _codes_of(codes or default))
        else:
            builder.expect(field, None)

    return row


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
