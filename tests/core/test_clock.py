"""The clock of PostgreSQL, which processes use while that of their machine is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from core.clock import LEARNED_EVERY_SEC, ServerClock

ROOT = Path(__file__).parents[2]
DAY = 86_400


def test_a_clock_that_is_not_followed_is_that_of_the_machine() -> None:
    clock = ServerClock()
    assert clock.machine_ahead() is None
    with time_machine.travel(datetime(2030, 1, 1, tzinfo=UTC), tick=False):
        assert clock.time() == datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def test_an_answer_counts_as_far_as_what_is_known_does_not_fit() -> None:
    clock = ServerClock()
    asked_at = time.monotonic()
    clock.learn(1_000_000.0, asked_at=asked_at)
    first = clock.time() - time.monotonic()
    clock.learn(1_000_000.0 - DAY, asked_at=asked_at - 2 * DAY)  # it took two days, so both may be right
    assert clock.time() - time.monotonic() == pytest.approx(first, abs=0.001)
    clock.learn(2_000_000.0, asked_at=time.monotonic())
    assert clock.time() == pytest.approx(2_000_000.0, abs=1)
    clock.learn(1_500_000.0, asked_at=time.monotonic())
    assert clock.time() == pytest.approx(1_500_000.0, abs=1)


def test_it_counts_by_the_monotonic_clock_between_answers() -> None:
    clock = ServerClock()
    clock.learn(time.time(), asked_at=time.monotonic())
    with time_machine.travel(datetime.now(UTC) + timedelta(days=2)):
        assert abs(clock.time() + 2 * DAY - time.time()) < 1
        ahead = clock.machine_ahead()
        assert ahead is not None
        assert abs(ahead - 2 * DAY) < 1


def test_it_is_asked_before_its_first_use() -> None:
    clock = ServerClock()
    clock.follow(lambda: clock.learn(1_000_000.0, asked_at=time.monotonic()))
    assert clock.is_outdated
    assert clock.time() == pytest.approx(1_000_000.0, abs=1)
    assert not clock.is_outdated


def test_without_an_answer_there_is_no_time() -> None:
    clock = ServerClock()

    def refuse() -> None:
        raise OSError

    clock.follow(refuse)
    with pytest.raises(OSError):  # noqa: PT011
        clock.time()


WRONG = """
import time, time_machine
time_machine.travel(time.time() + {ahead}).start()
time.time()  # its clock stands still until it is read
import django; django.setup()
from core.clock import DATABASE, utc_now
from core.db import learn_time
DATABASE.follow(learn_time)
print(utc_now().timestamp(), DATABASE.machine_ahead())
"""


@pytest.mark.parametrize("ahead", [3, -3, 600, -600, 2 * DAY, -2 * DAY])
def test_a_process_on_a_machine_with_a_wrong_clock_goes_by_that_of_postgresql(ahead: int) -> None:
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", WRONG.format(ahead=ahead)],
        cwd=ROOT,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    now, difference = map(float, done.stdout.split())
    assert start - LEARNED_EVERY_SEC - 1 < now < time.time() + LEARNED_EVERY_SEC + 1
    assert abs(difference - ahead) < 1
