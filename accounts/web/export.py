"""The download of an account's data."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.export import export, file_name
from accounts.models import User
from core.api.schema import ErrorSerializer
from core.clock import utc_now
from core.throttles import CallerThrottle, ExportThrottle
from projects.access import caller_of


def download(user: User) -> StreamingHttpResponse:
    """Return the file, sent while the rows are read."""
    now = utc_now()
    pieces = (piece.encode() for piece in export(user, now=now))
    response = StreamingHttpResponse(pieces, content_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name(now)}"'
    response.headers["Cache-Control"] = "private, no-store"
    return response


class AccountExport(APIView):
    throttle_classes = (CallerThrottle, ExportThrottle)

    @extend_schema(
        operation_id="export_account",
        summary="Export all that is kept of the account",
        description="As one JSON file, without secrets; `not_included` says what is missing and why. The last "
        "member is `complete`: without it the file was cut off. Takes a session that was created within the last 5 "
        "minutes, else 403 `reauthentication_required`.",
        responses={200: OpenApiTypes.OBJECT, 403: ErrorSerializer},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        caller = caller_of(request)
        caller.require_recent_session(now=utc_now())
        return download(caller.user)
