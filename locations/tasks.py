"""Periodic tasks of locations."""

from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from locations.services import delete_old_tokens


@shared_task(name="locations.tasks.sweep")
def sweep() -> None:
    delete_old_tokens(utc_now())
