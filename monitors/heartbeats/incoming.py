"""Read the signals of jobs from requests. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from uuid import UUID

from core.api.converters import PUBLIC_ID
from core.errors import ValidationFailed
from monitors.models import Ping

MAX_BODY_BYTES = 10_000
"""How much of a body is kept. What follows is not read."""
MAX_BODY_BYTES_PER_HOUR = 100 * MAX_BODY_BYTES
"""How much of a heartbeat's bodies is kept in an hour, in UTF-8. The hour begins with a body."""
MAX_USER_AGENT = 200
EXIT_STATUS = "0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]"

_METHODS = frozenset({"GET", "HEAD", "POST"})
_PATH = re.compile(rf"/v1/heartbeats/({PUBLIC_ID})/ping(?:/(?:(start|fail|log)|({EXIT_STATUS})))?")
_RID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Target(NamedTuple):
    """The parsed path of a signal."""

    monitor_id: str
    kind: Ping.Kind
    exit_status: int | None = None


class Signal(NamedTuple):
    """A signal of a job, as it arrived at `at`. `body_dropped`: it had a body, which is not kept."""

    target: Target
    at: datetime
    method: str = "POST"
    rid: UUID | None = None
    remote_addr: str | None = None
    user_agent: str = ""
    body: str | None = None
    body_dropped: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether it is a success without a body that no run can belong to."""
        return self.target.kind is Ping.Kind.SUCCESS and self.rid is None and self.body is None


def target_of(method: str | None, path: str) -> Target | None:
    """Return the target of a signal, or None for other requests."""
    found = _PATH.fullmatch(path) if method in _METHODS else None
    if found is None:
        return None
    monitor_id, word, status = found.groups()
    if word is not None:
        return Target(monitor_id, Ping.Kind(word))
    if status is None:
        return Target(monitor_id, Ping.Kind.SUCCESS)
    return Target(monitor_id, Ping.Kind.FAIL if int(status) else Ping.Kind.SUCCESS, int(status))


def signal_of(meta: Mapping[str, Any], target: Target, body: bytes, *, at: datetime, remote_addr: str | None) -> Signal:
    """Return the signal of a request. `meta` is its META, or a WSGI environ. Raises ValidationFailed for its rid."""
    query = meta.get("QUERY_STRING")
    return Signal(
        target,
        at,
        method=meta["REQUEST_METHOD"],
        rid=_rid(query) if query else None,
        remote_addr=remote_addr,
        user_agent=_user_agent(meta.get("HTTP_USER_AGENT", "")),
        body=_text(body[:MAX_BODY_BYTES].decode(errors="replace")) if body else None,
    )


def _rid(query: str) -> UUID | None:
    given = parse_qs(query, keep_blank_values=True, errors="replace").get("rid")
    if given is None:
        return None
    if len(given) != 1 or _RID.fullmatch(given[0]) is None:
        raise ValidationFailed("must be a UUID, for example 0f8fad5b-d9cb-469f-a165-70867728950e.", field="rid")
    return UUID(given[0])


def _user_agent(value: str) -> str:
    """Return a header as UTF-8 with replacement. PEP 3333 hands its bytes over as Latin-1."""
    if len(value) > MAX_USER_AGENT or not value.isascii():
        value = value[: 4 * MAX_USER_AGENT]
        with suppress(UnicodeEncodeError):
            value = value.encode("latin-1").decode(errors="replace")
    return _text(value[:MAX_USER_AGENT])


def _text(text: str) -> str:
    """Return text that PostgreSQL can store: NUL and lone surrogates are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
