"""Transitions of a monitor's status as tables: a run of outcomes, and the status after each."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from checks.spec import Verdict
from monitors.state import Policy, Status, advance, confirm_at, next_check
from tests.helpers import NOON, minutes, outcome

LETTERS = {"u": Verdict.UP, "s": Verdict.SLOW, "d": Verdict.DOWN}
SHOWN = {None: "-", Verdict.UP: "u", Verdict.SLOW: "s", Verdict.DOWN: "d"}


def run(outcomes: str, policy: Policy, start: Status | None = None) -> tuple[str, list[str], Status]:
    """Return the status after each outcome, one a minute, and the changes as 'before>after@minute'."""
    status, shown, changes = start or Status(), "", []
    for minute, letter in enumerate(outcomes):
        status, change = advance(status, outcome(LETTERS[letter], at=NOON + minutes(minute)), policy)
        shown += SHOWN[status.status]
        if change is not None:
            changes.append(f"{SHOWN[change.before]}>{SHOWN[change.after]}@{(change.at - NOON).seconds // 60}")
    return shown, changes, status


@pytest.mark.parametrize(
    ("outcomes", "fail", "recover", "statuses", "changes"),
    [
        pytest.param("u", 3, 1, "u", ["->u@0"], id="first up"),
        pytest.param("s", 3, 1, "s", ["->s@0"], id="first slow"),
        pytest.param("d", 3, 1, "d", ["->d@0"], id="a first failure is down regardless of the threshold"),
        pytest.param("uddd", 3, 1, "uuud", ["->u@0", "u>d@3"], id="down at the threshold"),
        pytest.param("uddudd", 3, 1, "uuuuuu", ["->u@0"], id="a pass breaks the run"),
        pytest.param("uddsddd", 3, 1, "uuusssd", ["->u@0", "u>s@3", "s>d@6"], id="a slow pass breaks it too"),
        pytest.param("ud", 1, 1, "ud", ["->u@0", "u>d@1"], id="threshold one"),
        pytest.param("du", 3, 1, "du", ["->d@0", "d>u@1"], id="recovery at once"),
        pytest.param("duu", 3, 2, "ddu", ["->d@0", "d>u@2"], id="recovery at its threshold"),
        pytest.param("dudu", 3, 2, "dddd", ["->d@0"], id="a failure breaks the run of passes"),
        pytest.param("dus", 3, 2, "dds", ["->d@0", "d>s@2"], id="recovers to slow as the last one was"),
        pytest.param("dsu", 3, 2, "ddu", ["->d@0", "d>u@2"], id="recovers to up as the last one was"),
        pytest.param("usu", 3, 1, "usu", ["->u@0", "u>s@1", "s>u@2"], id="up and slow by each check"),
        pytest.param("uddduddd", 3, 1, "uuuduuud", ["->u@0", "u>d@3", "d>u@4", "u>d@7"], id="twice"),
        pytest.param("ddddd", 3, 1, "ddddd", ["->d@0"], id="staying down is not a change"),
    ],
)
def test_run_of_outcomes(outcomes: str, fail: int, recover: int, statuses: str, changes: list[str]) -> None:
    shown, seen, _ = run(outcomes, Policy(fail_threshold=fail, recover_threshold=recover))
    assert (shown, seen) == (statuses, changes)


@pytest.mark.parametrize(
    ("outcomes", "muted_minutes", "statuses"),
    [
        pytest.param("udddd", 99, "uuuuu", id="failures under a mute lead nowhere"),
        pytest.param("udddddd", 3, "uuuuudd", id="and count from the end of the mute on"),
        pytest.param("du", 99, "-u", id="a muted first failure sets no status, a pass does"),
    ],
)
def test_mute(outcomes: str, muted_minutes: int, statuses: str) -> None:
    policy = Policy(fail_threshold=3, muted_until=NOON + minutes(muted_minutes))
    assert run(outcomes, policy)[0] == statuses


def test_muted_monitor_recovers() -> None:
    down = Status(status=Verdict.DOWN, since=NOON, fresh=False)
    assert run("u", Policy(muted_until=NOON + minutes(99)), down)[0] == "u"


def test_muted_failure_breaks_a_run_of_passes() -> None:
    down = Status(status=Verdict.DOWN, since=NOON, fresh=False)
    policy = Policy(recover_threshold=2, muted_until=NOON + minutes(99))
    assert run("uduu", policy, down)[0] == "dddu"


def test_after_resuming_the_next_outcome_sets_the_status() -> None:
    resumed = Status(status=Verdict.UP, since=NOON, fresh=True)
    assert run("d", Policy(fail_threshold=5), resumed)[:2] == ("d", ["u>d@0"])
    resumed = Status(status=Verdict.DOWN, since=NOON, fresh=True)
    assert run("u", Policy(recover_threshold=5), resumed)[:2] == ("u", ["d>u@0"])


def test_still_down_after_resuming_is_notified_again() -> None:
    """The pause has closed the incident. `since` stays: the status has not changed."""
    resumed = Status(status=Verdict.DOWN, since=NOON - minutes(9), fresh=True)
    statuses, changes, status = run("ddd", Policy(fail_threshold=2), resumed)
    assert (statuses, changes, status.since) == ("ddd", ["d>d@0"], NOON - minutes(9))


def test_down_names_the_first_failure_of_the_run() -> None:
    _, _, status = run("udd", Policy(fail_threshold=3))
    assert status.failing_since == NOON + minutes(1)
    _, change = advance(status, outcome(Verdict.DOWN, at=NOON + minutes(3)), Policy(fail_threshold=3))
    assert change is not None
    assert (change.at, change.failing_since) == (NOON + minutes(3), NOON + minutes(1))


def test_status_since_stays_while_the_status_does() -> None:
    _, _, status = run("uuu", Policy())
    assert status.since == NOON


@pytest.mark.parametrize(
    ("outcomes", "confirmation", "statuses", "changes"),
    [
        pytest.param("uddddd", 4, "uuuuud", ["->u@0", "u>d@5"], id="not before it is old enough"),
        pytest.param("uddd", 0, "uuud", ["->u@0", "u>d@3"], id="not before the threshold"),
        pytest.param("uddduddd", 3, "uuuuuuuu", ["->u@0"], id="a pass begins a new run"),
        pytest.param("dddd", 3, "dddd", ["->d@0", "d>d@3"], id="a first failure shows at once, and is confirmed"),
        pytest.param("ddu", 3, "ddu", ["->d@0", "d>u@2"], id="it recovers unconfirmed"),
        pytest.param("ddudddd", 3, "dduuuud", ["->d@0", "d>u@2", "u>d@6"], id="and fails again"),
    ],
)
def test_confirmation(outcomes: str, confirmation: int, statuses: str, changes: list[str]) -> None:
    shown, seen, _ = run(outcomes, Policy(fail_threshold=3, confirmation=minutes(confirmation)))
    assert (shown, seen) == (statuses, changes)


def test_an_unconfirmed_outage_that_passes_once_is_confirmed_later() -> None:
    policy = Policy(fail_threshold=2, recover_threshold=2, confirmation=minutes(2))
    shown, changes, status = run("duddd", policy)
    assert (shown, changes) == ("ddddd", ["->d@0", "d>d@4"])
    assert (status.is_confirmed, status.failing_since) == (True, NOON + minutes(2))


def test_a_muted_failure_confirms_nothing() -> None:
    policy = Policy(fail_threshold=2, recover_threshold=2, confirmation=minutes(1))
    _, _, status = run("du", policy)
    status, _ = advance(
        status, outcome(Verdict.DOWN, at=NOON + minutes(2)), replace(policy, muted_until=NOON + minutes(9))
    )
    assert not status.is_confirmed


@pytest.mark.parametrize(
    ("fail", "confirmation_sec", "seconds"),
    [
        pytest.param(3, 60, [0, 30, 60], id="spread"),
        pytest.param(3, 0, [0, 10, 20], id="at least ten seconds apart"),
        pytest.param(1, 60, [0, 60], id="one failure, and one that is old enough"),
        pytest.param(1, 0, [0], id="the first"),
        pytest.param(4, 35, [0, 12, 23, 35], id="rounded"),
        pytest.param(4, 25, [0, 10, 20, 30], id="more than fit"),
        pytest.param(2, 3600, [0, 3600], id="an hour"),
        pytest.param(99, 0, list(range(0, 101, 10)), id="ten early checks at most"),
    ],
)
def test_checks_that_confirm_an_outage(fail: int, confirmation_sec: int, seconds: list[int]) -> None:
    """With an interval that is longer."""
    policy = Policy(fail_threshold=fail, confirmation=timedelta(seconds=confirmation_sec))
    status, _ = advance(Status(), outcome(Verdict.UP, at=NOON), policy)
    at, made = NOON + minutes(1), []
    due: datetime | None = at
    while due is not None:
        at = due
        made.append(round((at - NOON - minutes(1)).total_seconds()))
        status, change = advance(status, outcome(Verdict.DOWN, at=at), policy)
        due = confirm_at(status, at, policy)
    assert made == seconds
    assert (change is not None) == (fail < 99)
    assert status.failing_since == NOON + minutes(1)


@pytest.mark.parametrize(
    ("interval_sec", "slot", "early", "confirms", "expected"),
    [
        pytest.param(60, 60, 30, 30, 30, id="before the slot"),
        pytest.param(10, 10, 20, 20, 10, id="after the next slot too"),
        pytest.param(10, 19.99, 20, 20, 20, id="the slot comes a moment too early"),
        pytest.param(10, 10, 15, 15, 15, id="between two slots"),
        pytest.param(30, 30, 35, 35, 35, id="the check after the slot would be ten seconds later"),
        pytest.param(30, 30, 45, 45, 30, id="the check after the slot is as early"),
        pytest.param(1, 1, 10, 3, 1, id="many slots before the check that is early"),
        pytest.param(10, 10, 15, 8, 10, id="the slot confirms it"),
        pytest.param(10, 10, 15, None, 10, id="one check does not confirm it"),
    ],
)
def test_a_slot_is_left_out_if_it_delays_the_confirmation(
    interval_sec: int, slot: float, early: float, confirms: float | None, expected: float
) -> None:
    def at(seconds: float) -> datetime:
        return NOON + timedelta(seconds=seconds)

    due = next_check(
        at(slot),
        at(early),
        interval=timedelta(seconds=interval_sec),
        confirms_at=None if confirms is None else at(confirms),
    )
    assert due == at(expected)


def test_without_a_confirmation_checks_come_in_their_turn() -> None:
    status, _ = advance(Status(status=Verdict.UP, fresh=False), outcome(Verdict.DOWN, at=NOON), Policy())
    assert confirm_at(status, NOON, Policy()) is None
