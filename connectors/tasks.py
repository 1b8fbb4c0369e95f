from __future__ import annotations

from celery import shared_task

from connectors import oauth
from core.clock import utc_now


@shared_task(name="connectors.tasks.sweep")
def sweep() -> None:
    """Delete the states of unfinished flows."""
    oauth.delete_expired_states(utc_now())
