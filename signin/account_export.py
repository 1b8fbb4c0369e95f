"""The download of an account's data, and the part of it that this app has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from allauth.usersessions.models import UserSession
from django.core.cache import cache
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes

from accounts.export import Sections, columns_of, export
from accounts.models import User
from core.api.viewsets import ServiceViewSet, operation
from core.clock import utc_now
from core.errors import ReauthenticationRequired, TooManyRequests
from core.throttles import ExportThrottle
from projects.access import owned

MARK_SEC = 300
"""Longer than the slowest client may take for the parts that are on their way to it (`config.sending`)."""
RETRY_SEC = 30


def sections(user: User, *, now: datetime) -> Sections:
    return {
        "browsers": columns_of(
            owned(UserSession.objects.all(), user),
            address="ip",
            user_agent="user_agent",
            created_at="created_at",
            last_seen_at="last_seen_at",
        )
    }


class _Sending:
    """The parts of an export. Its account gets no second one until this one is read to its end or closed.

    The mark is in the broker, so all web processes share it; it expires if this process is killed. While the broker is
    away each process has its own marks.
    """

    _marks: ClassVar[set[str]] = set()

    def __init__(self, user: User, *, now: datetime) -> None:
        """Raises TooManyRequests if an export of the account is being sent."""
        self._key = f"account-export:{user.public_id}"
        if self._key in self._marks or not cache.add(self._key, 1, MARK_SEC):
            raise TooManyRequests("An export of this account is running. Wait until it ends.", wait=RETRY_SEC)
        self._marks.add(self._key)
        self._is_open = True
        try:
            self._pieces = export(user, now=now)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                cache.touch(self._key, MARK_SEC)
                yield piece.encode()
        finally:
            self.close()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._marks.discard(self._key)
            cache.delete(self._key)


def download(user: User) -> StreamingHttpResponse:
    """Return the file as a stream, sent while the rows are read. Raises TooManyRequests while another one is sent."""
    now = utc_now()
    sending = _Sending(user, now=now)
    response = StreamingHttpResponse(sending, content_type="application/json")
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
        `reauthentication_required`. While a file is sent, a second request gets 429 `rate_limited`. A client that
        receives less than 64 KiB in 30 s is disconnected.
        """
        self.caller.require_recent_session(now=self.now)
        return download(self.caller.user)
