"""Parsing YAML into values with lines: accepted and rejected input, positions, and limits of time and memory."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsekeeper.manifest.problems import InvalidManifest, Mark, format_path, parse_path
from pulsekeeper.manifest.yaml_reader import MAX_BYTES, read
from pulsekeeper.manifest.yaml_writer import write
from tests.helpers import examples


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        read(text if isinstance(text, bytes) else text.encode())
    return [problem.format("f.yaml") for problem in refused.value.problems]


def test_values_are_those_of_yaml_1_2() -> None:
    text = "a: [yes, on, 012, 1.5, true, ~, 2026-01-01, '1', -3]\nb: {c: x}\n"
    assert read(text.encode()).root == {"a": ["yes", "on", 12, 1.5, True, None, "2026-01-01", "1", -3], "b": {"c": "x"}}


def test_every_value_knows_its_line() -> None:
    document = read(b"monitors:\n  - name: a\n    rules:\n      - {x: 1}\n  - name: b\n")
    assert document.mark(("monitors", 1, "name")) == Mark(5, 11)
    assert document.mark(("monitors", 0, "rules", 0, "x")) == Mark(4, 13)
    assert document.mark(("monitors", 1, "missing", 3)) == Mark(5, 5)
    assert document.keys[("monitors", 1, "name")] == Mark(5, 5)


def test_anchors_and_merge_keys() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2}\nc: {z: 0, <<: [*b, {x: 9, w: 4}]}\nd: *a\n"
    assert read(text.encode()).root == {
        "a": {"x": 1, "y": 1},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 2, "z": 0, "w": 4},
        "d": {"x": 1, "y": 1},
    }


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", ["f.yaml:1:1: the file is empty."]),
        (b"a: \xff", ["f.yaml:1:1: is not UTF-8."]),
        ("a: 1\nb: 2\na: 3\nb: 4\n", ["f.yaml:3:1: a: is already in line 1.", "f.yaml:4:1: b: is already in line 2."]),
        ("a: [1\nb: 2", ["f.yaml:2:2: while parsing a flow sequence, expected ',' or ']', but got ':'"]),
        ('a: "\\ud800"', ["f.yaml:1:4: a: has an escape that is no character."]),
        ('"\\ud800": 1', ["f.yaml:1:1: a key has an escape that is no character."]),
        ("a: 1e999", ["f.yaml:1:4: a: is not a number; quote it if it is text."]),
        ("a: *nowhere", ["f.yaml:1:4: found undefined alias 'nowhere'"]),
        ("a: &a [*a]", ["f.yaml:1:4: a[0]: is an alias of its own parent."]),
        ("a: &a {<<: *a}", ["f.yaml:1:4: a: is an alias of its own parent."]),
        ("a: {<<: 3}", ["f.yaml:1:9: a: << takes a map or a list of maps."]),
        ("1: x", ["f.yaml:1:1: a key must be text; quote it."]),
        ("a: 0x10", ["f.yaml:1:4: a: is not a decimal whole number; quote it if it is text."]),
        ("%YAML 1.1\n---\na: yes", ["f.yaml:3:4: a: write true or false, or quote the text."]),
        (BOMB, ["f.yaml:1:1: the file has more than 200000 values, with aliases expanded."]),
        ("[" * 1_000, ["f.yaml:1:1: is nested too deeply."]),
        ("- " * 500 + "x", ["f.yaml:1:1: is nested too deeply."]),
        (b"a" * (MAX_BYTES + 1), ["f.yaml:1:1: the file is larger than 4 MiB."]),
    ],
)
def test_what_is_refused(text: str | bytes, errors: list[str]) -> None:
    assert problems(text) == errors


def test_a_tag_makes_nothing() -> None:
    told = problems("a: !!python/object/apply:os.system [touch /tmp/x]\nb: !mine 3\n")
    assert [line.partition(" ")[0] for line in told] == ["f.yaml:1:4:", "f.yaml:2:4:"]
    assert all("tags are not accepted" in line for line in told)


def test_two_documents_are_refused() -> None:
    assert "but found another document" in problems("a: 1\n---\nb: 2\n")[0]


def test_a_path_is_spelled_as_services_spell_it() -> None:
    path = ("groups", 0, "monitors", 12, "name")
    assert format_path(path) == "groups[0].monitors[12].name"
    assert parse_path(format_path(path)) == path


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)


@settings(max_examples=examples(50))
@given(st.lists(TEXT | st.from_regex(r"[-:#&*!|>'\"%@`?\[\]{}, \n0-9.~a-z]{1,20}", fullmatch=True)))
def test_what_is_written_is_read_back(texts: list[str]) -> None:
    document = {"monitors": [{"name": text, "request_body": text} for text in texts]}
    assert read(write(document).encode()).root == document


@settings(max_examples=examples(60))
@given(st.text(alphabet="abc:-[]{},&*!|>'\"%#? \n\t0<~\\", max_size=60) | st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidManifest):
        read(text.encode(errors="surrogatepass"))
