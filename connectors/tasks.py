from __future__ import annotations

from celery import shared_task

from connectors.models import OAuthState
from core.clock import utc_now


@shared_task(name="connectors.tasks.sweep")
def sweep() -> None:
    """Delete the states of unfinished flows. `connectors.oauth` is not loaded here: workers do without social-auth."""
    OAuthState.objects.filter(expires_at__lte=utc_now()).delete()
