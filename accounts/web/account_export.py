"""The download of an account's data, and the part of it that this app has."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from allauth.usersessions.models import UserSession
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes

from accounts.export import Sections, export, rows_of
from accounts.models import User
from core.api.viewsets import ServiceViewSet, operation
from core.clock import to_ms, utc_now
from core.errors import ReauthenticationRequired
from core.throttles import ExportThrottle


def sections(user: User, *, now: datetime) -> Sections:
    return {"browsers": lambda: rows_of(UserSession.objects.filter(user=user), _browser)}


def _browser(row: UserSession) -> dict[str, Any]:
    return {
        "address": row.ip,
        "user_agent": row.user_agent,
        "created_at": to_ms(row.created_at),
        "last_seen_at": to_ms(row.last_seen_at),
    }


def download(user: User) -> StreamingHttpResponse:
    """Return the file as a stream, sent while the rows are read."""
    now = utc_now()
    pieces = (piece.encode() for piece in export(user, now=now))
    response = StreamingHttpResponse(pieces, content_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="pulsekeeper-account-{now:%Y-%m-%d}.json"'
    response.headers["Cache-Control"] = "private, no-store"
    return response


class ExportViewSet(ServiceViewSet):
    noun = "account_export"
    is_singleton = True
    session_only = True

    @operation(
        id="export_account", answer=OpenApiTypes.OBJECT, throttles=(ExportThrottle,), errors=(ReauthenticationRequired,)
    )
    def retrieve(self) -> StreamingHttpResponse:
        """Export everything that is stored about the account.

        One JSON file without secrets. `not_included` lists what is missing and why. The last member is `complete`; a
        file without it was cut off. Requires a session that was created within the last 5 minutes, otherwise 403
        `reauthentication_required`.
        """
        self.caller.require_recent_session(now=self.now)
        return download(self.caller.user)
