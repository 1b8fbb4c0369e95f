"""What workers do for connectors."""

from __future__ import annotations

from celery import shared_task

from connectors import states
from core.clock import utc_now


@shared_task(name="connectors.tasks.sweep")
def sweep() -> None:
    """Forget the ways to a provider that nobody came back from."""
    states.delete_expired(utc_now())
