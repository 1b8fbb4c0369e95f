"""Periodic tasks of projects."""

from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from projects.idempotency import LIFETIME
from projects.models import IdempotencyKey, Membership


@shared_task(name="projects.tasks.sweep")
def sweep() -> None:
    """Delete expired rows."""
    now = utc_now()
    IdempotencyKey.objects.filter(created_at__lte=now - LIFETIME).delete()
    Membership.objects.filter(user=None, invited_until__lte=now).delete()
