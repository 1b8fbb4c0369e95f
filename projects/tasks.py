"""Periodic tasks of projects."""

from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from projects.idempotency import delete_old_keys
from projects.members import delete_expired_invitations


@shared_task(name="projects.tasks.sweep")
def sweep() -> None:
    """Delete expired rows."""
    now = utc_now()
    delete_old_keys(now)
    delete_expired_invitations(now)
