from __future__ import annotations

from datetime import datetime, timedelta

from allauth.usersessions.models import UserSession
from celery import shared_task
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Exists, OuterRef

import tokens.services
from core.clock import utc_now

FLOW_LIFETIME = timedelta(hours=1)  # the time for a sign-in at a provider; social-auth accepts half of it


@shared_task(name="accounts.web.tasks.sweep")  # the name before the package moved: both versions run in an upgrade
def sweep() -> None:
    delete_expired(utc_now())


def delete_expired(now: datetime) -> None:
    """Delete expired sessions, and states of unfinished sign-ins at a provider."""
    tokens.services.delete_expired_sessions(now)
    Session.objects.filter(expire_date__lte=now).delete()
    UserSession.objects.filter(
        ~Exists(Session.objects.filter(session_key=OuterRef("session_key"))), created_at__lt=now - FLOW_LIFETIME
    ).delete()
    # In SQL, because workers do not load social_django.
    with connection.cursor() as cursor:
        before = int((now - FLOW_LIFETIME).timestamp())
        cursor.execute("DELETE FROM social_auth_nonce WHERE timestamp < %s", [before])
        cursor.execute("DELETE FROM social_auth_association WHERE issued < %s", [before])  # nonces of OpenID Connect
