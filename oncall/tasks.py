"""The workers' part of on-call schedules. Escalations are run by `alerts.tasks.tick`."""

from __future__ import annotations

from celery import shared_task

from alerts.outbox import OUTBOX
from core.clock import utc_now
from oncall import notices


@shared_task(name="oncall.tasks.announce")
def announce() -> None:
    """Notify of gaps and hand-overs of on-call schedules."""
    now = utc_now()
    notices.announce_shifts(now)
    OUTBOX.wake(now)


@shared_task(name="oncall.tasks.find_unreachable")
def find_unreachable() -> None:
    """Notify of escalation policies that reach no one."""
    now = utc_now()
    notices.announce_unreachable(now)
    OUTBOX.wake(now)
