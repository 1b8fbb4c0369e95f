from __future__ import annotations

from celery import shared_task

from connectors.models import OAuthState
from core.clock import utc_now


@shared_task(name="connectors.tasks.sweep")
def sweep() -> None:
    """Delete the states of unfinished flows. Workers do without social-auth, so `services` is not loaded here."""
    OAuthState.objects.filter(expires_at__lte=utc_now()).delete()
