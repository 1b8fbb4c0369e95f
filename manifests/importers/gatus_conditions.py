"""Conditions of Gatus like `[STATUS] == 200`, by the protocol that they are about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from manifests.importers.mapped import MonitorBuilder, Row

Conditions = Mapping[re.Pattern[str], Callable[[MonitorBuilder, re.Match[str]], None]]

_MAX_CONDITION = 1_000
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_WHOLE_RECORDS = {"A", "AAAA", "CNAME", "PTR"}  # Gatus compares the whole record
_NAMES_IN_RECORDS = {"MX", "NS"}  # Gatus compares the name, and there are usually several records


def conditions(supported: Conditions, *, without: str = "", note: str = "") -> Row:
    """Map conditions like `[STATUS] == 200`. If no condition has the placeholder `without`, add the note."""

    def row(builder: MonitorBuilder, field: str) -> None:
        found = builder.source.get(field) or []
        if not isinstance(found, list):
            builder.reject(field, "is not a list")
        if not all(isinstance(condition, str) for condition in found):
            builder.reject(field, "has an item that is not text")
        for condition in found:
            _apply(builder, condition, supported)
        if note and not any(without in condition for condition in found):
            builder.note(field, note)

    return row


def _apply(builder: MonitorBuilder, condition: str, supported: Conditions) -> None:
    """Apply a condition, or note that it is not supported."""
    found = _OPERATOR.search(condition, 1) if len(condition) <= _MAX_CONDITION else None
    if found is not None:
        parts = f"{condition[: found.start()].strip()} {found[0]} {condition[found.end() :].strip()}"
        for pattern, apply in supported.items():
            if match := pattern.fullmatch(parts):
                apply(builder, match)
                return
    _skip(builder, condition)


def _skip(builder: MonitorBuilder, condition: str) -> None:
    builder.note("conditions", f"{condition[:200]} is not supported and is skipped")


def _inverted(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.reject("conditions", f"{condition[0][:200]}: inverted monitors are not supported")


def _response_time(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.body["slow_ms"] = int(condition[2]) + (condition[1] == "<=")
    builder.note("conditions", f"{condition[0]}: slower answers make it slow, not down")


def _expiry(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.body["check_ssl" if condition[1] == "CERTIFICATE" else "check_domain"] = True
    note = "warnings are sent 30, 14, 7, 3 and 1 days before expiry, and the monitor stays up"
    builder.note("conditions", f"{condition[0][:200]}: {note}")


def _text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    kind = "text_contains" if condition[1] == "==" else "text_absent"
    builder.add_rule("conditions", type=kind, value=condition[2])


def _json_field(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    path = re.sub(r"\[(\d+)\]", r".\1", condition["path"]).removeprefix(".")
    expected = {"equals": condition["equals"]} if "equals" in condition.groupdict() else {}
    builder.add_rule("conditions", type="json_field", path=path, **expected)


def _exact_text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.add_rule("conditions", type="text_contains", value=condition[1])
    builder.note("conditions", f"{condition[0][:200]}: an answer that contains it passes")


def _exact_record(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    record_type = builder.text("dns.query-type")
    if record_type in _WHOLE_RECORDS and "records" not in builder.body:
        builder.body["records"] = [condition[1]]
        builder.note("conditions", f"{condition[0][:200]}: it must be the only record; Gatus compares the last one")
    elif record_type in _NAMES_IN_RECORDS:
        builder.add_rule("conditions", type="text_contains", value=condition[1])
        builder.note("conditions", f"{condition[0][:200]}: any record that contains it passes; Gatus compares the last")
    else:
        _skip(builder, condition[0])


def _record_text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    if builder.text("dns.query-type") not in _WHOLE_RECORDS | _NAMES_IN_RECORDS:
        _skip(builder, condition[0])
        return
    _text(builder, condition)
    wanted = "any record may contain it" if condition[1] == "==" else "no record may contain it"
    builder.note("conditions", f"{condition[0][:200]}: {wanted}; Gatus compares the last one")


def _noerror(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.note("conditions", f"{condition[0]}: an answer without a record of the type fails too")


_PATH = r"(?P<path>(?:[A-Za-z0-9_-]+|\[[0-9]+\])(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*)"
_LITERAL = r"(?!(?:pat|any|len|has)\(|\[[A-Z_]+\])"
OF_ALL: Conditions = {
    re.compile(r"\[CONNECTED\] (?:== true|!= false)"): lambda _, __: None,  # this is always checked
    re.compile(r"\[CONNECTED\] (?:== false|!= true)"): _inverted,
    re.compile(r"\[RESPONSE_TIME\] (<=?) ([0-9]{1,6})"): _response_time,
    re.compile(r"\[(DOMAIN)_EXPIRATION\] >=? .*"): _expiry,
}
OF_TLS: Conditions = {re.compile(r"\[(CERTIFICATE)_EXPIRATION\] >=? .*"): _expiry}
_PATTERN = re.compile(r"\[BODY\] (==|!=) pat\(\*([^*?\[\]]+)\*\)")
_EQUAL = re.compile(rf"\[BODY\] == {_LITERAL}(.+)", re.DOTALL)
OF_HTTP: Conditions = {
    **OF_ALL,
    **OF_TLS,
    re.compile(r"\[STATUS\] == ([0-9]{1,3})"): lambda builder, found: builder.expect("conditions", {int(found[1])}),
    re.compile(r"\[STATUS\] (?:< 300|<= 299)"): lambda builder, _: builder.expect("conditions", {*range(200, 300)}),
    re.compile(r"\[STATUS\] (?:< 400|<= 399)"): lambda builder, _: builder.expect("conditions", {*range(200, 400)}),
    _PATTERN: _text,
    re.compile(rf"has\(\[BODY\]\.{_PATH}\) (?:== true|!= false)"): _json_field,
    re.compile(rf"\[BODY\](?:\.|(?=\[)){_PATH} == {_LITERAL}(?P<equals>.*)", re.DOTALL): _json_field,
}
OF_TEXT: Conditions = {**OF_ALL, _PATTERN: _text, _EQUAL: _exact_text}
OF_DNS: Conditions = {
    **OF_ALL,
    re.compile(r"\[DNS_RCODE\] == NOERROR"): _noerror,
    re.compile(r"\[DNS_RCODE\] (?:!= NOERROR|== [A-Z0-9]+)"): _inverted,
    _PATTERN: _record_text,
    _EQUAL: _exact_record,
}
