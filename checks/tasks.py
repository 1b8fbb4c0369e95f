"""What workers do about what checks left behind."""

from __future__ import annotations

from celery import shared_task

from checks import retention
from core.clock import utc_now


@shared_task(name="checks.tasks.keep_partitions")
def keep_partitions() -> None:
    """Partitions for the coming days, and none older than they are kept."""
    retention.keep_partitions(utc_now())
