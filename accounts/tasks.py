"""Periodic tasks of accounts."""

from __future__ import annotations

from celery import shared_task

from accounts.services import finish_deletions
from core.clock import utc_now


@shared_task(name="accounts.tasks.finish_deletions")
def finish() -> None:
    """Delete accounts whose deletion was interrupted."""
    finish_deletions(utc_now())
