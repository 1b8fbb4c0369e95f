from __future__ import annotations

from datetime import datetime
from typing import Any

from allauth.usersessions.models import UserSession

from accounts.export import Sections, rows_of
from accounts.models import User
from core.clock import to_ms


def sections(user: User, *, now: datetime) -> Sections:
    return {"browsers": lambda: rows_of(UserSession.objects.filter(user=user), _browser)}


def _browser(row: UserSession) -> dict[str, Any]:
    return {
        "address": row.ip,
        "user_agent": row.user_agent,
        "created_at": to_ms(row.created_at),
        "last_seen_at": to_ms(row.last_seen_at),
    }
