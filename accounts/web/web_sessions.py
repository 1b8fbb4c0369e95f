"""The browsers that somebody is signed in with: allauth's row says which one, Django's session that it still is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import QuerySet

import audit.services
from accounts.models import User
from audit.actions import Action
from core.bulk_actions import BulkResult
from core.user_agents import name_of


@dataclass(frozen=True, slots=True)
class Browser:
    pk: int
    name: str
    ip: str
    since: datetime
    current: bool


def list_web_sessions(user: User, *, current: str | None, now: datetime) -> list[Browser]:
    """The newest first. `current` is the key of the session that asks."""
    rows = list(UserSession.objects.filter(user=user).order_by("-pk"))
    keys = [row.session_key for row in rows]
    living = Session.objects.filter(session_key__in=keys, expire_date__gt=now)
    alive = set(living.values_list("session_key", flat=True))
    return [
        Browser(row.pk, name_of(row.user_agent), row.ip, row.created_at, current=row.session_key == current)
        for row in rows
        if row.session_key in alive
    ]


def end_web_session(user: User, pk: int) -> bool:
    """Whether there was one."""
    row = UserSession.objects.filter(user=user, pk=pk).first()
    if row is None:
        return False
    with transaction.atomic():
        details = {"door": "web"}
        audit.services.record(
            Action.SESSION_REVOKED, actor=user, target_name=name_of(row.user_agent), details=details
        )
        row.end()
    return True


def end_web_sessions(user: User, *, but: str | None = None) -> None:
    """All of them, but for the session of that key."""
    with transaction.atomic():
        ended = len(_end(UserSession.objects.filter(user=user).exclude(session_key=but)))
        if ended:
            details = {"door": "web", "sessions": ended}
            audit.services.record(Action.SESSION_REVOKED, actor=user, details=details)


def end_web_sessions_by_key(ids: Collection[int]) -> BulkResult[UserSession]:
    """Of whoever they are: for an operator."""
    with transaction.atomic():
        ended = _end(UserSession.objects.filter(pk__in=ids).select_related("user"))
        audit.services.record_all(
            audit.services.draft(
                Action.SESSION_REVOKED,
                actor=row.user,
                target_name=name_of(row.user_agent),
                details={"door": "web"},
            )
            for row in ended
        )
    return BulkResult(ended)


def _end(rows: QuerySet[UserSession]) -> list[UserSession]:
    """Django's session is what lets somebody in, so it goes with the row that tells of it."""
    ended = list(rows.select_for_update(of=["self"]).order_by("pk"))
    Session.objects.filter(session_key__in=[row.session_key for row in ended]).delete()
    UserSession.objects.filter(pk__in=[row.pk for row in ended]).delete()
    return ended
