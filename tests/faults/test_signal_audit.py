"""The audit of signals finds each kind of violation when it is added to a clean run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import pytest

from monitors.models import Ping
from tests.faults.heartbeat_jobs import Attempt
from tests.faults.monitor_audit import VIOLATIONS, Audit
from tests.faults.script import Flip, Part
from tests.faults.signal_audit import audit_signals
from tests.faults.tenant import MonitoredPart, make_monitors
from tests.helpers import NOON

START = NOON.timestamp()
RID = str(UUID(int=18))


@dataclass
class Run:
    """A start and its end with an id, a log, a start without an id and its end, and an unanswered ping."""

    heartbeat: MonitoredPart
    attempts: list[Attempt] = field(default_factory=list)

    def send(
        self,
        at: float,
        word: str = "",
        *,
        rid: str | None = None,
        body: str = "",
        took: int | None = None,
        answered: bool = True,
        counted: bool = True,
    ) -> None:
        number = len(self.attempts)
        attempt = Attempt(START + at, START + at + 0.1, answered, word, rid, body, f"job-0-{number}")
        self.attempts.append(attempt)
        if counted:
            Ping.objects.create(
                id=number, monitor_id=self.heartbeat.monitor_id, at=NOON + timedelta(seconds=at), kind=attempt.kind,
                duration_ms=took, method="POST", rid=rid and UUID(rid), user_agent=attempt.name, body=body or None,
            )  # fmt: skip

    def audit(self) -> dict[str, int]:
        audit = Audit(START, 60.0, [], [])
        audit_signals(audit, [self.heartbeat], {0: self.attempts})
        return audit.counts()


@pytest.fixture
def run(db: None) -> Run:
    (heartbeat,) = make_monitors((Part(0, "heartbeat", (Flip(0.0, up=True),)),), target="http://127.0.0.1:9")
    run = Run(heartbeat)
    run.send(1, "start", rid=RID)
    run.send(2, "start")
    run.send(3, "log", body="line")
    run.send(4, rid=RID, took=3_000)
    run.send(5, "7", body="é", took=3_000)
    run.send(6, rid=RID)
    run.send(7, answered=False)
    run.send(8, answered=False, counted=False)
    return run


def test_a_clean_run_has_no_violations(run: Run) -> None:
    assert run.audit() == dict.fromkeys(VIOLATIONS, 0)


def lose(run: Run) -> None:
    Ping.objects.filter(user_agent="job-0-2").delete()


def store_twice(run: Run) -> None:
    ping = Ping.objects.get(user_agent="job-0-6")
    ping.id = 99
    ping.save(force_insert=True)


def cut_the_body(run: Run) -> None:
    Ping.objects.filter(user_agent="job-0-2").update(body="lin")


def forget_the_run(run: Run) -> None:
    Ping.objects.filter(user_agent="job-0-3").update(duration_ms=None)


def take_another_run(run: Run) -> None:
    Ping.objects.filter(user_agent="job-0-4").update(duration_ms=4_000)


def invent(run: Run) -> None:
    run.attempts.pop(2)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost_signals"),
        (store_twice, "lost_signals"),
        (cut_the_body, "lost_signals"),
        (invent, "lost_signals"),
        (forget_the_run, "wrong_durations"),
        (take_another_run, "wrong_durations"),
    ],
)
def test_a_violation_is_found(run: Run, plant: Callable[[Run], None], kind: str) -> None:
    plant(run)
    assert run.audit()[kind] > 0
