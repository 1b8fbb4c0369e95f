"""The stream of changes that open pages follow: permissions, and the owners of changed monitors. See docs/adr/0047.

`config.changes` keeps the streams on the event loop, and calls this in threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from django.contrib.sessions.models import Session
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_GET

from accounts.models import User
from core.clock import utc_now
from projects.models import Membership

HELD_SEC = 5.0
"""How long a row is remembered. A row with a lower id may be committed later, by a transaction up to this long."""
MOST_CHANGES = 2_000
"""Rows that are read at once. With more, all pages are notified."""

Place = tuple[str, int]
"""The place of monitors: `("owner", key)` or `("project", key)`."""


class Follower(NamedTuple):
    """A signed-in browser. `since` are the last rows of the feed before its stream began."""

    user_id: int
    session_key: str
    session_hash: str
    places: frozenset[Place]
    since: Sequence[int]


class ChangesResponse(StreamingHttpResponse):
    """The gateway keeps the connection of this response open. Other servers end it, and browsers ask again later."""

    def __init__(self, follower: Follower) -> None:
        super().__init__([b"retry: 15000\n\n"], content_type="text/event-stream")
        self.follower = follower
        self["Cache-Control"] = "private, no-store"
        self["X-Accel-Buffering"] = "no"  # nginx


@require_GET
def changes(request: HttpRequest) -> HttpResponseBase:
    """Begin a stream. 401 without a session: an EventSource would follow a redirect to the sign-in page."""
    user = request.user
    if not isinstance(user, User) or request.session.session_key is None:
        return HttpResponse(status=401)
    places = _places([user.pk])[user.pk]
    session_hash = user.get_session_auth_hash()
    return ChangesResponse(Follower(user.pk, request.session.session_key, session_hash, places, last_rows()))


def still_followers(followers: Collection[Follower]) -> dict[str, Follower]:
    """Return those whose session still exists, by its key, with the projects that they see now, in three queries."""
    keys = {follower.session_key for follower in followers}
    valid = Session.objects.filter(session_key__in=keys, expire_date__gt=utc_now())
    open_sessions = set(valid.values_list("session_key", flat=True))
    users = User.objects.filter(pk__in={follower.user_id for follower in followers}, is_active=True).only("password")
    hashes = {user.pk: user.get_session_auth_hash() for user in users}
    places = _places(hashes)
    return {
        follower.session_key: follower._replace(places=places[follower.user_id])
        for follower in followers
        if follower.session_key in open_sessions
        and constant_time_compare(hashes.get(follower.user_id, ""), follower.session_hash)
    }


def _places(users: Iterable[int]) -> dict[int, frozenset[Place]]:
    projects = defaultdict[int, set[Place]](set)
    for user_id, project_id in Membership.objects.filter(user__in=list(users)).values_list("user", "project"):
        projects[user_id].add(("project", project_id))
    return {user_id: frozenset({("owner", user_id), *projects[user_id]}) for user_id in users}


# The tables whose new rows are changes. Pages find other changes by polling.
_LAST = """
    SELECT (SELECT coalesce(max(id), 0) FROM monitors_statuschange),
           (SELECT coalesce(max(id), 0) FROM monitors_monitor),
           (SELECT coalesce(max(id), 0) FROM incidents_incidentevent)
"""
_SINCE = """
    SELECT 0, change.id, monitor.owner_id, monitor.project_id
      FROM monitors_statuschange AS change
      JOIN monitors_monitor AS monitor ON monitor.id = change.monitor_id
     WHERE change.id > %s
     UNION ALL
    SELECT 1, id, owner_id, project_id FROM monitors_monitor WHERE id > %s
     UNION ALL
    SELECT 2, event.id, incident.owner_id, incident.project_id
      FROM incidents_incidentevent AS event
      JOIN incidents_incident AS incident ON incident.id = event.incident_id
     WHERE event.id > %s
     LIMIT %s
"""


def last_rows() -> Sequence[int]:
    """Return the last key of each table of the feed."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST)
        keys: Sequence[int] = cursor.fetchone()
        return keys


class Feed:
    """Places with changes since the last query. `since`: the keys after which each table is read."""

    def __init__(self, since: Sequence[int]) -> None:
        self._since = [*since]
        self._seen: dict[tuple[int, int], float] = {}

    def read(self) -> set[Place] | None:
        """Return the places of changes, or None if there are too many to read."""
        now = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute(_SINCE, [*self._since, MOST_CHANGES])
            rows = cursor.fetchall()
        if len(rows) == MOST_CHANGES:
            self._since, self._seen = [*last_rows()], {}
            return None
        fresh = [row for row in rows if row[:2] not in self._seen]
        self._seen |= {row[:2]: now for row in fresh}
        for (table, key), seen_at in [*self._seen.items()]:
            if seen_at < now - HELD_SEC:
                self._since[table] = max(self._since[table], key)
                del self._seen[table, key]
        return {place for _, _, owner_id, project_id in fresh for place in _of(owner_id, project_id)}


def _of(owner_id: int, project_id: int | None) -> Iterator[Place]:
    yield "owner", owner_id
    if project_id is not None:
        yield "project", project_id
