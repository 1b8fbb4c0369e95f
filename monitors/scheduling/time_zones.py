"""Recompute due times after an update of tzdata."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from core.db import chunks
from monitors.cron import TZDATA_VERSION
from monitors.edits import arm_after_change, watch
from monitors.locking import lock_monitors, write_columns
from monitors.models import Monitor, ScheduleSlots
from monitors.slots import refill_slots

logger = logging.getLogger(__name__)


def recompute(now: datetime) -> None:
    """Recompute the due times of all monitors whose stored slots other data of time zones gave.

    The slots carry the version, so a stop in between loses nothing. Slots without a schedule are deleted.
    """
    for rows in chunks(ScheduleSlots.objects.exclude(tzdata=TZDATA_VERSION)):
        _recompute([row.pk for row in rows], now)
        logger.info("the due times of %d schedules were computed with tzdata %s", len(rows), TZDATA_VERSION)


def _recompute(keys: Sequence[int], now: datetime) -> None:
    with transaction.atomic():
        monitors = list(lock_monitors(keys).values())
        for monitor in monitors:
            _reschedule(monitor, now)
        write_columns([monitor.state for monitor in monitors], ["next_due_at", "armed_at"])
        refill_slots(monitors)
        ScheduleSlots.objects.filter(pk__in=[monitor.pk for monitor in monitors if monitor.schedule is None]).delete()


def _reschedule(monitor: Monitor, now: datetime) -> None:
    """Recompute `next_due_at` of a locked monitor. A slot that is due or claimed is kept."""
    state = monitor.state
    if monitor.schedule is None or not monitor.enabled or state.claimed_at is not None:
        return
    if monitor.kind.waits:
        state.armed_at = arm_after_change(monitor, now=now)
        watch(monitor)
    elif state.next_due_at is not None and state.next_due_at > now:
        state.next_due_at = monitor.schedule.next_after(now)
