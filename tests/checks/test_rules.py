from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.probes.http.rules import decode_body, find_broken_rule
from checks.spec import ContentRule, RuleType

NOT_JSON = "The body is not JSON"


def contains(value: str) -> ContentRule:
    return ContentRule(RuleType.TEXT_CONTAINS, value=value)


def absent(value: str) -> ContentRule:
    return ContentRule(RuleType.TEXT_ABSENT, value=value)


def field(path: str, equals: str | None = None) -> ContentRule:
    return ContentRule(RuleType.JSON_FIELD, path=path, equals=equals)


def broken(
    body: bytes | str, *rules: ContentRule, content_type: str | None = None, over_cap: bool = False
) -> str | None:
    raw = body.encode() if isinstance(body, str) else body
    return find_broken_rule(rules, raw, content_type=content_type, over_cap=over_cap)


@pytest.mark.parametrize(
    ("body", "rules", "start"),
    [
        ("hello world", [contains("world")], None),
        ("hello world", [contains("World")], 'The body does not contain "World";'),
        ("hello world", [absent("error")], None),
        ("an error", [absent("error")], 'The body contains "error", which must be absent;'),
        ("", [contains("x")], 'The body does not contain "x";'),
        ("abc", [contains("a"), absent("z"), contains("q")], 'The body does not contain "q";'),
        ('{"a": 1}', [contains('"a"'), field("a", "1")], None),
    ],
)
def test_text_rules(body: str, rules: list[ContentRule], start: str | None) -> None:
    found = broken(body, *rules)
    assert found == start if start is None or found is None else found.startswith(start)


@pytest.mark.parametrize(
    ("body", "path", "equals"),
    [
        ('{"a": {"b": "ok"}}', "a.b", "ok"),
        ('{"a": [10, {"b": 20}]}', "a.1.b", "20"),
        ("[[1, 2], [3]]", "1.0", "3"),
        ('{"a": 1.10}', "a", "1.10"),
        ('{"a": 1e3}', "a", "1e3"),
        ('{"a": -0}', "a", "-0"),
        ('{"a": 12345678901234567890123456789}', "a", "12345678901234567890123456789"),
        ('{"a": ' + "9" * 5000 + "}", "a", None),
        ('{"a": true}', "a", "true"),
        ('{"a": null}', "a", "null"),
        ('{"a": null}', "a", None),
        ('{"a": false}', "a", None),
        ('{"a": 0}', "a", None),
        ('{"a": ""}', "a", None),
        ('{"a": ""}', "a", ""),
        ('{"a": "true"}', "a", "true"),
        ('{"a": {"z": 1.0, "b": [true, null, "ü"]}}', "a", '{"z":1.0,"b":[true,null,"ü"]}'),
        ('{"a": []}', "a", "[]"),
        ('{"a": 1, "a": 2}', "a", "2"),
        ('{"0": "key"}', "0", "key"),
        ('{"": 1}', "", "1"),
        ('\ufeff{"a": 1}', "a", "1"),
        ('{"a": "\\ud800"}', "a", None),
        ('{"b": "cut \\ud83d", "a": "\\ud83d\\ude00\\n\\\\ud83d"}', "a", "\U0001f600\n\\ud83d"),
        (' [ {"a" : { "b" : 1 } } ] ', "0.a", '{"b":1}'),
        ('{"a\\"b": 1}', 'a"b', "1"),
        ('{"a": [' + "1, " * 1500 + "7]}", "a.1500", "7"),
        ('{"a": [' + "1, " * 999 + "7]}", "a.999", "7"),
        ('{"\\u0061": 1}', "a", "1"),
    ],
)
def test_json_field_passes(body: str, path: str, equals: str | None) -> None:
    assert broken(body, field(path, equals)) is None


@pytest.mark.parametrize(
    ("body", "path", "equals", "sentence"),
    [
        ("<html>", "a", None, NOT_JSON),
        ("", "a", None, NOT_JSON),
        ('{"a": NaN}', "a", None, NOT_JSON),
        ('{"a": 1, "b": -Infinity}', "a", None, NOT_JSON),
        ('{"a": 1} x', "a", None, NOT_JSON),
        ('{"a": "\x01"}', "a", None, NOT_JSON),
        ('{"b": 1}', "a", None, 'no field "a"'),
        ('{"a": [1]}', "a.1", None, 'no field "a.1"'),
        ('{"a": [1]}', "a.-1", None, "no field"),
        ('{"a": [1]}', "a.²", None, "no field"),
        ('{"a": "text"}', "a.0", None, "no field"),
        ("7", "a", None, "no field"),
        ('{"a": [1]} x', "b", None, NOT_JSON),
        ('{"a": 1}', "b.c", None, "no field"),
        ('{"a": []}', "a.1500", None, "no field"),
        ('{"a": 1}', 'a"b', None, "no field"),
        ('{"a": "\\ud800" x}', "a", None, NOT_JSON),
        ('{"a.b": 1}', "a.b", None, "no field"),
        ('{"a": 1.0}', "a", "1", 'is "1.0" instead of "1"'),
        ('{"a": true}', "a", "True", 'is "true" instead of "True"'),
        ('{"a": "x\\u0000\\ny"}', "a", "z", 'is "x y" instead of "z"'),
        ("[" * 100_000, "a", None, "nested too deep"),
        ('{"a":' * 100_000, "a", None, "nested too deep"),
    ],
)
def test_json_field_fails(body: str, path: str, equals: str | None, sentence: str) -> None:
    found = broken(body, field(path, equals))
    assert found is not None
    assert sentence in found


def test_a_long_value_is_quoted_in_part() -> None:
    found = broken(json.dumps({"a": "x" * 1_000_000}), field("a", "y" * 256))
    assert found is not None
    assert len(found) < 300


def test_over_the_cap() -> None:
    assert broken("abc", contains("abc"), over_cap=True) is None
    assert broken("abc", absent("z"), over_cap=True) is None
    assert "first MiB" in (broken("abc", contains("z"), over_cap=True) or "")
    assert "too large" in (broken('{"a": 1}', field("a"), over_cap=True) or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(document=JSON)
def test_json_field_agrees_with_a_plain_reading(document: object) -> None:
    """For documents whose numbers Python writes unchanged, `equals` is json.dumps of the value."""
    body = json.dumps({"a": [document]})
    expected = (
        document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    )
    assert broken(body, field("a.0", expected)) is None
    assert broken(body, field("a.0", expected + "x")) is not None


@given(body=st.binary(), content_type=st.none() | st.text())
def test_no_body_is_too_odd(body: bytes, content_type: str | None) -> None:
    broken(body, contains("a"), content_type=content_type)
    broken(body, field("a.b", "c"), content_type=content_type)


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grün".encode(), None, "grün"),
        ("grün".encode("latin-1"), "text/html; charset=ISO-8859-1", "grün"),
        ("grün".encode("latin-1"), 'text/html; Charset="iso-8859-1"', "grün"),
        ("grün".encode("latin-1"), "text/html", "gr\ufffdn"),
        ("grün".encode(), "text/html; charset=klingon", "grün"),
        ("grün".encode(), "text/html; charset=zlib", "grün"),
        ("grün".encode(), "text/html; charset=idna", "grün"),
        ("grün".encode("utf-16"), None, "grün"),
        (codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"), None, "grün"),
        ("grün".encode("utf-32"), None, "grün"),
        ("grün".encode("utf-8-sig"), None, "grün"),
        ("grün".encode("utf-8-sig"), "text/html; charset=utf-8", "grün"),
        ("日本".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本"),
        (b"\xff\xfe\xff", "text/html; charset=utf-8", "\ufffd" * 3),
    ],
)
def test_decodes(body: bytes, content_type: str | None, text: str) -> None:
    assert decode_body(body, content_type) == text
