"""Periodic tasks of the audit log."""

from __future__ import annotations

from celery import shared_task

from audit.services import delete_old
from core.clock import utc_now


@shared_task(name="audit.tasks.sweep")
def sweep() -> None:
    delete_old(utc_now())
