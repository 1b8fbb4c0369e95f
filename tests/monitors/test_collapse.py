"""When missing pings are our fault: the decision, by tables and properties."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.heartbeats.collapse import (
    HELD_BACK_FOR,
    Account,
    began_at,
    has_collapsed,
    has_returned,
    held_until,
)
from tests.helpers import NOON, minutes

HOUR = timedelta(hours=1)


def accounts(*counts: tuple[int, int]) -> list[Account]:
    """Accounts by their (silent, pinged) heartbeats."""
    return [Account(silent, pinged, NOON) for silent, pinged in counts]


@pytest.mark.parametrize(
    ("counts", "collapsed"),
    [
        ([(4, 0)] * 5, True),
        ([(4, 1)] * 5, True),
        ([(3, 0)] * 5, False),  # 15 heartbeats
        ([(5, 0)] * 4, False),  # 4 accounts
        ([(1_000, 0)], False),
        ([(1_000, 0)] + [(0, 1)] * 4, False),  # a mass outage of one customer
        ([(1_000, 0)] + [(1, 0)] * 4 + [(0, 1)] * 2, False),  # 99 % of the heartbeats, 71 % of the accounts
        ([(4, 0)] * 5 + [(0, 1_000)], True),  # the many pings of one account prevent nothing
        ([(4, 0)] * 5 + [(0, 1)] * 2, False),
        ([(4, 2)] * 5, False),
        ([], False),
    ],
)
def test_a_collapse_takes_many_heartbeats_of_most_accounts(counts: list[tuple[int, int]], collapsed: bool) -> None:
    assert has_collapsed(accounts(*counts)) is collapsed


@pytest.mark.parametrize(
    ("counts", "returned"),
    [
        ([(0, 1)] * 3, True),
        ([(0, 1)] * 2, False),
        ([(0, 1_000)] + [(1, 0)] * 9, False),
        ([(1, 1)] * 5, True),
        ([(2, 1)] * 5, False),
        ([(4, 0)] * 5 + [(0, 4)] * 5, True),
        ([], False),
    ],
)
def test_pings_return_when_half_of_the_accounts_ping(counts: list[tuple[int, int]], returned: bool) -> None:
    assert has_returned(accounts(*counts)) is returned


COUNTS = st.tuples(st.integers(0, 50), st.integers(0, 50)).filter(any)
LISTS = st.lists(COUNTS, max_size=20)


@given(LISTS)
def test_no_collapse_has_returned(counts: list[tuple[int, int]]) -> None:
    found = accounts(*counts)
    assert not (has_collapsed(found) and has_returned(found))


@given(LISTS, COUNTS, COUNTS)
def test_one_account_of_six_or_more_decides_at_most_its_share(
    counts: list[tuple[int, int]], one: tuple[int, int], other: tuple[int, int]
) -> None:
    """Whatever one account does, the others are judged as a whole: it moves the share by its own weight only."""
    if not has_collapsed(accounts(*counts, one)) or has_collapsed(accounts(*counts, other)):
        return
    share = sum(account.silent_share for account in accounts(*counts))
    silent = [silent for silent, _ in counts if silent]
    too_few = len(silent) < 5 or sum(silent) < 20
    assert too_few or (share + 1) / (len(counts) + 1) >= 0.8 > share / (len(counts) + 1)


@given(LISTS.filter(bool), st.integers(2, 100))
def test_more_heartbeats_of_every_account_change_no_share(counts: list[tuple[int, int]], times: int) -> None:
    many = [(silent * times, pinged * times) for silent, pinged in counts]
    assert has_returned(accounts(*counts)) == has_returned(accounts(*many))


def test_a_gap_begins_with_the_last_ping_of_those_that_are_silent() -> None:
    found = [
        Account(4, 0, NOON - minutes(5)),
        Account(4, 0, NOON - minutes(3)),
        Account(4, 1, NOON - minutes(0.5)),
        Account(0, 1, NOON),
    ]
    assert began_at(found, now=NOON) == NOON - minutes(3)
    assert began_at(found[2:], now=NOON) == NOON - minutes(1)


@pytest.mark.parametrize(
    ("past", "left"),
    [
        ([], HOUR),
        ([(NOON - 2 * HOUR, NOON - 1.5 * HOUR)], HOUR / 2),
        ([(NOON - 2 * HOUR, NOON - HOUR)], timedelta()),
        ([(NOON - 9 * HOUR, NOON - HOUR)], timedelta()),
        ([(NOON - 24.5 * HOUR, NOON - 23.75 * HOUR)], HOUR * 0.75),
        ([(NOON - 26 * HOUR, NOON - 25 * HOUR)], HOUR),
    ],
)
def test_deadlines_are_held_back_for_an_hour_in_a_day(past: list[tuple[object, object]], left: timedelta) -> None:
    assert HELD_BACK_FOR == HOUR
    assert held_until(past, now=NOON) == NOON + left  # type: ignore[arg-type]
