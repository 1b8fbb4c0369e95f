from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from projects.access import owned
from tokens.models import ProjectToken, Session
from tokens.serializers import TokenSerializer


def sections(user: User, *, now: datetime) -> Sections:
    return {
        "sessions": columns_of(
            owned(Session.objects.all(), user),
            id="public_id",
            created_at="created_at",
            last_used_at="last_used_at",
            expires_at="expires_at",
        ),
        "tokens": serialized(owned(ProjectToken.objects.select_related("project"), user), TokenSerializer),
    }
