"""Web sessions of an account: allauth's row has the browser, Django's session shows whether it is still valid."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

import audit.services
from accounts.models import User
from audit.actions import Action
from core.bulk import BulkResult
from core.user_agents import name_of


def list_web_sessions(user: User, *, now: datetime) -> QuerySet[UserSession]:
    """Return the sessions that are valid, newest first."""
    valid = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=now)
    found: QuerySet[UserSession] = UserSession.objects.filter(Exists(valid), user=user).order_by("-pk")
    return found


def end_web_session(user: User, pk: int) -> bool:
    """Return whether the session existed."""
    return bool(_end_each(UserSession.objects.filter(user=user, pk=pk)))


def end_web_sessions(user: User, *, but: str | None = None) -> None:
    """End all web sessions except the one with the key `but`."""
    with transaction.atomic():
        ended = len(_end(UserSession.objects.filter(user=user).exclude(session_key=but)))
        if ended:
            details = {"door": "web", "sessions": ended}
            audit.services.record(Action.SESSION_REVOKED, actor=user, details=details)


def end_web_sessions_by_key(ids: Collection[int]) -> BulkResult[UserSession]:
    """End sessions of any account, for staff."""
    return BulkResult(_end_each(UserSession.objects.filter(pk__in=ids)))


@transaction.atomic
def _end_each(rows: QuerySet[UserSession]) -> list[UserSession]:
    """End the sessions, with an entry in the audit log for each."""
    ended = _end(rows.select_related("user"))
    details = {"door": "web"}
    audit.services.record_all(
        audit.services.draft(
            Action.SESSION_REVOKED, actor=row.user, target_name=name_of(row.user_agent), details=details
        )
        for row in ended
    )
    return ended


def _end(rows: QuerySet[UserSession]) -> list[UserSession]:
    """Delete the rows and their Django sessions, which are what keeps browsers signed in."""
    ended = list(rows.select_for_update(of=["self"]).order_by("pk"))
    Session.objects.filter(session_key__in=[row.session_key for row in ended]).delete()
    UserSession.objects.filter(pk__in=[row.pk for row in ended]).delete()
    return ended
