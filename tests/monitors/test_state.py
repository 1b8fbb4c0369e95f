"""Decisions 30 to 32 as tables: a run of outcomes, and the status after each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from checks.spec import Verdict
from monitors.models import Monitor, MonitorState
from monitors.state import advance
from tests.helpers import NOON, minutes, outcome

LETTERS = {"u": Verdict.UP, "s": Verdict.SLOW, "d": Verdict.DOWN}
SHOWN: dict[str | None, str] = {None: "-", Verdict.UP: "u", Verdict.SLOW: "s", Verdict.DOWN: "d"}
DOWN: dict[str, Any] = {"status": "down", "status_since": NOON, "fresh": False}


def policy(fail_threshold: int = 3, recover_threshold: int = 1, muted_until: datetime | None = None) -> Monitor:
    return Monitor(
        type="http", fail_threshold=fail_threshold, recover_threshold=recover_threshold, muted_until=muted_until
    )


def run(outcomes: str, monitor: Monitor, **start: Any) -> tuple[str, list[str], MonitorState]:
    """The status after each outcome, one a minute, and the changes as 'before>after@minute'."""
    state, shown, changes = MonitorState(monitor=monitor, **start), "", []
    for minute, letter in enumerate(outcomes):
        change = advance(monitor, outcome(LETTERS[letter], at=NOON + minutes(minute)))
        shown += SHOWN[state.status]
        if change is not None:
            changes.append(f"{SHOWN[change.before]}>{SHOWN[change.after]}@{(change.at - NOON).seconds // 60}")
    return shown, changes, state


@pytest.mark.parametrize(
    ("outcomes", "fail", "recover", "statuses", "changes"),
    [
        pytest.param("u", 3, 1, "u", ["->u@0"], id="first up"),
        pytest.param("s", 3, 1, "s", ["->s@0"], id="first slow"),
        pytest.param("d", 3, 1, "d", ["->d@0"], id="a first failure is down whatever the threshold"),
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
        pytest.param("ddddd", 3, 1, "ddddd", ["->d@0"], id="staying down is no change"),
    ],
)
def test_run_of_outcomes(outcomes: str, fail: int, recover: int, statuses: str, changes: list[str]) -> None:
    shown, seen, _ = run(outcomes, policy(fail_threshold=fail, recover_threshold=recover))
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
    assert run(outcomes, policy(fail_threshold=3, muted_until=NOON + minutes(muted_minutes)))[0] == statuses


def test_muted_monitor_recovers() -> None:
    assert run("u", policy(muted_until=NOON + minutes(99)), **DOWN)[0] == "u"


def test_muted_failure_breaks_a_run_of_passes() -> None:
    muted = policy(recover_threshold=2, muted_until=NOON + minutes(99))
    assert run("uduu", muted, **DOWN)[0] == "dddu"


def test_after_resuming_the_next_outcome_sets_the_status() -> None:
    assert run("d", policy(fail_threshold=5), status="up", status_since=NOON)[:2] == ("d", ["u>d@0"])
    assert run("u", policy(recover_threshold=5), status="down", status_since=NOON)[:2] == ("u", ["d>u@0"])


def test_still_down_after_resuming_is_told_of_again() -> None:
    """The pause has closed the incident. `since` stays: the status has not changed."""
    since = NOON - minutes(9)
    statuses, changes, state = run("ddd", policy(fail_threshold=2), status="down", status_since=since)
    assert (statuses, changes, state.status_since) == ("ddd", ["d>d@0"], NOON - minutes(9))


def test_down_names_the_first_failure_of_the_run() -> None:
    _, _, state = run("udd", policy(fail_threshold=3))
    assert state.failing_since == NOON + minutes(1)
    change = advance(state.monitor, outcome(Verdict.DOWN, at=NOON + minutes(3)))
    assert change is not None
    assert (change.at, change.failing_since) == (NOON + minutes(3), NOON + minutes(1))


def test_status_since_stays_while_the_status_does() -> None:
    _, _, state = run("uuu", policy())
    assert state.status_since == NOON
