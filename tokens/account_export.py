from __future__ import annotations

from datetime import datetime
from typing import Any

from accounts.export import Sections, optional_ms, rows_of, serialized
from accounts.models import User
from core.clock import to_ms
from tokens.models import ProjectToken, Session
from tokens.serializers import TokenSerializer


def sections(user: User, *, now: datetime) -> Sections:
    tokens = ProjectToken.objects.filter(created_by=user).select_related("project")
    return {
        "sessions": lambda: rows_of(Session.objects.filter(user=user), _session),
        "tokens": lambda: serialized(tokens, TokenSerializer),
    }


def _session(session: Session) -> dict[str, Any]:
    return {
        "id": session.public_id,
        "created_at": to_ms(session.created_at),
        "last_used_at": optional_ms(session.last_used_at),
        "expires_at": optional_ms(session.expires_at),
    }
