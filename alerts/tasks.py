"""The workers' part of alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from celery import shared_task
from django.db import connection

from alerts import locations, notify, outbox, planned, testing
from core.clock import utc_now
from core.db import any_once_compiled
from core.isolation import Steps
from incidents import consuming, windows

_ticking = threading.Lock()
_WAITING = """
    SELECT EXISTS (SELECT FROM monitors_expirywarning WHERE processed_at IS NULL),
           EXISTS (SELECT FROM monitors_dnsalert WHERE due_at <= %(now)s),
           EXISTS (SELECT FROM monitors_pingexcess WHERE processed_at IS NULL),
           EXISTS (SELECT FROM incidents_escalation WHERE next_at <= %(now)s),
           EXISTS (SELECT FROM alerts_deliveryitem WHERE delivery_id IS NULL AND due_at <= %(now)s)
"""

_is_any_waiting = any_once_compiled(
    lambda now: [consuming.unprocessed(), consuming.deleted(), *notify.waiting_incidents(now)]
)

run_escalations: list[Callable[[datetime], bool]] = []
"""Run the steps of escalations that are due. Returns whether more may be. Filled by `oncall`."""
on_sweep: list[Callable[[datetime], object]] = []
"""Delete what higher layers need no longer."""


@shared_task(name="alerts.tasks.tick")
def tick() -> None:
    """Turn status changes into messages, and send them.

    Processes share the work. In each of them one thread does it: the others are for first checks. A step that raises
    does not stop the others.
    """
    if not _ticking.acquire(blocking=False):
        outbox.OUTBOX.wake(utc_now())  # the other thread may be waiting for a row
        return
    try:
        # Mostly nothing is waiting, and each step would begin a transaction and compile its query to find that out.
        is_waiting = _is_any_waiting(utc_now())
        is_more = True
        while is_more:
            now, steps = utc_now(), Steps()
            is_more = False
            if is_waiting:
                is_more = bool(steps.run(consuming.consume, now, slow=partial(notify.notify_slow, now=now)))
                steps.run(consuming.close_deleted, now)
                is_more |= bool(steps.run(notify.notify_incidents, now))
            waiting = _find_waiting(now)
            if waiting.expiries:
                steps.run(notify.notify_expiries, now)
            if waiting.dns_changes:
                steps.run(notify.notify_dns_changes, now)
            if waiting.too_often:
                steps.run(notify.notify_too_often, now)
            for run in run_escalations if waiting.escalations else ():
                is_more |= bool(steps.run(run, now))
            if waiting.planned:
                is_more |= bool(steps.run(planned.release_due, now))
            outbox.OUTBOX.wake(now)
            steps.finish()
    finally:
        _ticking.release()


class _Waiting(NamedTuple):
    """Which rare notifications may be due."""

    expiries: bool
    dns_changes: bool
    too_often: bool
    escalations: bool
    planned: bool


def _find_waiting(now: datetime) -> _Waiting:
    """Look for all of them at once: mostly nothing is due, and each would begin a transaction to find that out."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, {"now": now})
        return _Waiting(*cursor.fetchone())


@shared_task(name="alerts.tasks.watch_locations")
def watch_locations() -> None:
    """Notify of private locations that are offline, or online again, and of monitors that fail from some of theirs."""
    now = utc_now()
    locations.notify_partial_outages(now)
    locations.notify_locations(now)
    outbox.OUTBOX.wake(now)


@shared_task(name="alerts.tasks.remind")
def remind() -> None:
    """Do what may take a minute: new reasons of open outages, reminders, and maintenance in daily uptime."""
    now = utc_now()
    consuming.follow_monitors()
    consuming.note_reasons(now)
    notify.remind(now)
    windows.note_maintenance(now)


@shared_task(name="alerts.tasks.sweep")
def sweep() -> None:
    """Delete old deliveries."""
    now = utc_now()
    outbox.OUTBOX.delete_old(now - outbox.KEPT)
    for delete in on_sweep:
        delete(now)


@shared_task(name="alerts.tasks.send_test")
def send_test(channel_id: int, reply_to: str) -> None:
    """Test a channel. The caller waits for testing.PATIENCE_SEC."""
    testing.submit_test(channel_id, reply_to)
