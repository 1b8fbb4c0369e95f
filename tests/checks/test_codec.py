"""The codec of packed history: nothing is rounded, and damage is noticed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from checks.results.codec import VERSION, Checks, DamagedHistory, checksum, decode, encode
from tests.helpers import examples

START = 1_790_000_000_000_000
MINUTE = 60_000_000

small = st.integers(0, 300)
ints = st.one_of(small, st.integers(-(2**31), 2**31 - 1))
smallints = st.one_of(st.just(200), st.integers(-(2**15), 2**15 - 1))


def nullable(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.one_of(values, st.none())


@st.composite
def histories(draw: st.DrawFn) -> Checks:
    """Regular checks with jitter, or checks at any time; each column constant, narrow, or of any value."""
    count = draw(st.integers(1, 400))
    unit = draw(st.sampled_from([1, 1_000, 1_000_000]))
    if draw(st.booleans()):
        jitter = draw(st.lists(st.integers(0, MINUTE // unit - 1), min_size=count, max_size=count))
        moments = [START + number * MINUTE + late * unit for number, late in enumerate(jitter)]
    else:
        moments = draw(st.lists(st.integers(0, 86_400_000_000 // unit), min_size=count, max_size=count))
        moments = [START + moment * unit for moment in moments]
    claims = list(range(1, count + 1))
    if draw(st.booleans()):
        claims = draw(st.lists(st.integers(1, 2**31 - 1), min_size=count, max_size=count))
    order = sorted(zip(moments, claims, strict=True))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        if draw(st.booleans()):
            return [draw(values)] * count
        return draw(st.lists(values, min_size=count, max_size=count))

    wide, narrow = [nullable(ints)] * 4, [nullable(smallints)] * 2
    columns = [column(values) for values in (*wide, *narrow, st.integers(0, 5))]
    return Checks._make([[at for at, _ in order], [claim for _, claim in order], *columns])


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(checks=histories())
def test_what_is_decoded_is_what_was_encoded(checks: Checks) -> None:
    data = encode(checks, start=START)
    assert decode(data, start=START) == checks
    narrow = decode(data, start=START, narrow=True)
    assert narrow == checks._replace(connect_ms=(), ttfb_ms=(), location_id=(), http_status=(), loss=())


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(checks=histories(), place=st.integers(0), byte=st.integers(1, 255), cut=st.integers(0))
def test_damage_is_an_error_and_never_another_history(checks: Checks, place: int, byte: int, cut: int) -> None:
    data = bytearray(encode(checks, start=START))
    for damaged in (bytes(data[: cut % len(data)]), bytes(data) + b"\0"):
        with pytest.raises(DamagedHistory):
            decode(damaged, start=START)
    data[place % len(data)] ^= byte
    with pytest.raises(DamagedHistory):
        decode(bytes(data), start=START)


@hypothesis_settings(max_examples=examples(200), deadline=None)
@given(body=st.binary(max_size=60))
def test_any_bytes_with_a_checksum_are_read_or_refused(body: bytes) -> None:
    with suppress(DamagedHistory):
        body = bytes([60]) + body  # the number of checks
        decode(bytes([VERSION]) + checksum(bytes([VERSION]) + body) + body, start=START)


def test_regular_checks_take_few_bytes() -> None:
    count = 1_440
    late = [number * 7919 % 900_000 for number in range(count)]
    checks = Checks(
        [START + number * MINUTE + late[number] for number in range(count)],
        list(range(1, count + 1)),
        [40 + number % 16 for number in range(count)],
        [10 + number % 4 for number in range(count)],
        [39 + number % 16 for number in range(count)],
        [None] * count,
        [200] * count,
        [None] * count,
        [0] * count,
    )
    assert len(encode(checks, start=START)) < 3.5 * count
    hour = Checks._make(column[:60] for column in checks)
    assert len(encode(hour, start=START)) < 4 * 60
    same = checks._replace(at=[START + number * MINUTE for number in range(count)], latency_ms=[None] * count)
    assert len(encode(same._replace(connect_ms=[3] * count, ttfb_ms=[4] * count), start=START)) < 25
