"""What workers do for people's accounts."""

from __future__ import annotations

from datetime import datetime, timedelta

from allauth.usersessions.models import UserSession
from celery import shared_task
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef

import tokens.services
from accounts.models import SocialState
from core.clock import utc_now

WAYS_KEPT = timedelta(hours=1)  # to a provider and back; social-auth takes none older than half of it


@shared_task(name="accounts.web.tasks.sweep")
def sweep() -> None:
    forget(utc_now())


def forget(now: datetime) -> None:
    """Remove sessions that have run out, and ways to a provider that were begun and not ended."""
    tokens.services.delete_expired_sessions(now)
    Session.objects.filter(expire_date__lte=now).delete()
    UserSession.objects.filter(
        ~Exists(Session.objects.filter(session_key=OuterRef("session_key"))), created_at__lt=now - WAYS_KEPT
    ).delete()
    SocialState.objects.filter(begun_at__lt=now - WAYS_KEPT).delete()
