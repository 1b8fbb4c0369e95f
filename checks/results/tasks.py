"""What workers do about what checks left behind."""

from __future__ import annotations

from celery import shared_task

from checks.results import erasure, retention, rollups
from core.clock import utc_now


@shared_task(name="checks.tasks.keep_partitions")
def keep_partitions() -> None:
    """Partitions for the coming days, and none older than they are kept."""
    retention.keep_partitions(utc_now())


@shared_task(name="checks.tasks.roll_up")
def roll_up() -> None:
    """Hours that have ended, and those that late results came for."""
    rollups.roll_up(utc_now())


@shared_task(name="checks.tasks.erase_deleted")
def erase_deleted() -> None:
    """What deleted monitors left behind."""
    erasure.erase_deleted()
