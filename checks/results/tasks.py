"""Tasks that maintain the tables of results."""

from __future__ import annotations

from celery import shared_task

from checks.results import packing, partitions, retention, rollups
from core.clock import utc_now


@shared_task(name="checks.tasks.keep_partitions")
def keep_partitions() -> None:
    """Create the partitions of the coming days, and drop old ones."""
    retention.keep_partitions(utc_now())


@shared_task(name="checks.tasks.roll_up")
def roll_up() -> None:
    """Roll up hours that have ended, and hours with late results."""
    rollups.roll_up(utc_now())


@shared_task(name="checks.tasks.pack")
def pack() -> None:
    """Pack results that are old enough, and merge the hours of a day. Not in the first day after an upgrade."""
    now = utc_now()
    if partitions.may_pack(now):
        packing.pack(now)


@shared_task(name="checks.tasks.erase_deleted")
def erase_deleted() -> None:
    """Delete the results of deleted monitors."""
    retention.erase_deleted()
