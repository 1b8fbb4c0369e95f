"""The monitor audit finds each kind of violation when it is added to a clean run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.results.models import CheckResult
from monitors.models import MonitorState, StatusChange
from tests.faults.heartbeat_jobs import Attempt
from tests.faults.monitor_audit import VIOLATIONS, Audit
from tests.faults.script import DEADLINE_SEC, INTERVAL_SEC, PING_SEC, Flip, Part
from tests.faults.tenant import MonitoredPart, make_monitors
from tests.helpers import NOON

START = NOON.timestamp()
END = 60.0
FELL = 10.0  # when the target and the heartbeat job stopped
PARTS = (
    Part(0, "heartbeat", (Flip(0.0, up=True), Flip(FELL, up=False))),
    Part(1, "scheduler", (Flip(0.0, up=True),)),
    Part(2, "http", (Flip(0.0, up=True), Flip(FELL, up=False))),
    Part(3, "scheduler", (Flip(0.0, up=True),), cron=True),
)


@dataclass
class Run:
    """The records of a run without violations."""

    heartbeat: MonitoredPart
    scheduler: MonitoredPart
    http: MonitoredPart
    cron: MonitoredPart
    attempts: list[Attempt]
    triggers: list[tuple[int, str, float]]

    def audit(self) -> dict[str, int]:
        audit = Audit(START, END, [20.0], [])
        audit.take([self.heartbeat, self.scheduler, self.http, self.cron], {0: self.attempts}, self.triggers)
        return audit.counts()


def moment(at: float) -> datetime:
    return NOON.astimezone(UTC) + timedelta(seconds=at)


def store(watched: MonitoredPart, claim: int, at: float, verdict: str) -> None:
    CheckResult.objects.create(
        monitor_id=watched.monitor_id, claim=claim, checked_at=moment(at), verdict=verdict, latency_ms=5
    )


def change(watched: MonitoredPart, claim: int, at: float, before: str | None, after: str) -> None:
    StatusChange.objects.create(monitor_id=watched.monitor_id, claim=claim, at=moment(at), before=before, after=after)


def check_all(watched: MonitoredPart) -> None:
    """Store a check per interval and its status changes."""
    status = None
    for claim in range(1, int(END) // INTERVAL_SEC):
        at = claim * INTERVAL_SEC + 0.1
        verdict = "up" if watched.part.is_up(at) else "down"
        store(watched, claim, at, verdict)
        if verdict != status:
            change(watched, claim, at, status, verdict)
        status = verdict
    MonitorState.objects.filter(pk=watched.monitor_id).update(status=status)


@pytest.fixture
def run(db: None) -> Run:
    heartbeat, scheduler, http, cron = make_monitors(PARTS, target="http://127.0.0.1:9")
    check_all(scheduler)
    check_all(http)
    store(cron, 1, 0.5, "up")
    change(cron, 1, 0.5, None, "up")
    MonitorState.objects.filter(pk=cron.monitor_id).update(status="up")
    attempts = [Attempt(START + at, START + at + 0.01, ok=True) for at in (1.0, 4.0, 7.0)]
    for claim, at in enumerate((1.0, 4.0, 7.0), start=1):
        store(heartbeat, claim, at, "up")
    change(heartbeat, 1, 1.0, None, "up")
    missed = 7.0 + DEADLINE_SEC
    store(heartbeat, 4, missed, "down")
    change(heartbeat, 4, missed, "up", "down")
    MonitorState.objects.filter(pk=heartbeat.monitor_id).update(status="down")
    triggers = [(1, f"slot-{number}", START + number * INTERVAL_SEC) for number in range(1, 30)]
    return Run(heartbeat, scheduler, http, cron, attempts, triggers)


def test_a_clean_run_has_no_violations(run: Run) -> None:
    assert run.audit() == dict.fromkeys(VIOLATIONS, 0)


def changes_of(watched: MonitoredPart) -> list[StatusChange]:
    return list(StatusChange.objects.filter(monitor_id=watched.monitor_id).order_by("pk"))


def lose_a_change(run: Run) -> None:
    changes_of(run.http)[-1].delete()


def lose_a_miss(run: Run) -> None:
    changes_of(run.heartbeat)[-1].delete()


def move_twice(run: Run) -> None:
    last = changes_of(run.http)[-1]
    last.pk = None
    last.save(force_insert=True)


def find_down_what_is_up(run: Run) -> None:
    CheckResult.objects.filter(monitor_id=run.http.monitor_id, claim=2).update(verdict="down")


def forget_a_ping(run: Run) -> None:
    run.attempts.append(Attempt(START + 9.0, START + 9.01, ok=True))


def fire_twice(run: Run) -> None:
    run.triggers.append(run.triggers[-1])


def check_too_late(run: Run) -> None:
    CheckResult.objects.filter(monitor_id=run.scheduler.monitor_id, checked_at__gt=moment(20)).delete()


def lose_a_slot(run: Run) -> None:
    CheckResult.objects.filter(monitor_id=run.cron.monitor_id).delete()


def make_a_slot_twice(run: Run) -> None:
    store(run.cron, 2, 20.0, "up")


def report_no_failure(run: Run) -> None:
    StatusChange.objects.filter(monitor_id=run.heartbeat.monitor_id, after="down").update(
        reason_code="heartbeat_failed"
    )


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_a_change, "lost_changes"),
        (lose_a_miss, "lost_changes"),
        (move_twice, "double_results"),
        (find_down_what_is_up, "false_downs"),
        (forget_a_ping, "false_downs"),
        (fire_twice, "double_triggers"),
        (check_too_late, "late_monitors"),
        (lose_a_slot, "lost_slots"),
        (make_a_slot_twice, "double_slots"),
        (report_no_failure, "false_downs"),
    ],
)
def test_a_violation_is_found(run: Run, plant: Callable[[Run], None], kind: str) -> None:
    plant(run)
    assert run.audit()[kind] > 0


def test_a_heartbeat_whose_pings_did_not_arrive_is_down_before_its_job_stops(run: Run) -> None:
    part = replace(run.heartbeat.part, flips=(Flip(0.0, up=True), Flip(7.0 + DEADLINE_SEC + 0.5, up=False)))
    run.heartbeat = replace(run.heartbeat, part=part)
    assert run.audit() == dict.fromkeys(VIOLATIONS, 0)


def test_a_ping_without_an_answer_may_or_may_not_have_counted(run: Run) -> None:
    run.attempts.append(Attempt(START + 7.0 + PING_SEC, START + 12.0, ok=False))
    assert run.audit() == dict.fromkeys(VIOLATIONS, 0)
