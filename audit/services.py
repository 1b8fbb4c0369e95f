"""Writing the audit log, and forgetting it in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings

from audit import origin
from audit.actions import Action
from audit.models import MAX_NAME, MAX_USER_AGENT, Entry
from core.clock import utc_now

FAILURES_KEPT = 20  # of one account, within FAILURE_WINDOW
STRANGERS_KEPT = 200  # of all who named no account, within FAILURE_WINDOW
FAILURE_WINDOW = timedelta(hours=1)
SWEPT_AT_ONCE = 5_000


class Person(Protocol):
    """An account; those lie above."""

    pk: Any
    public_id: Any
    email: Any


class Place(Protocol):
    """A project; those lie above."""

    pk: Any
    public_id: Any


def draft(
    action: Action,
    *,
    actor: Person | None,
    by_token: bool = False,
    subject: Person | None = None,
    project: Place | None = None,
    target_id: str = "",
    target_name: str | None = "",
    details: Mapping[str, Any] | None = None,
) -> Entry:
    """An entry that is not stored yet, for `record_all`.

    `actor` is for whom the service acts. In the admin that is the subject, and the actor is the person of the staff.
    """
    entry = _entry(action, actor=actor, by_token=by_token, subject=subject)
    if project is not None:
        entry.project_id, entry.project_public_id = project.pk, project.public_id
    entry.target_id = target_id
    entry.target_name = _one_line(target_name or "", MAX_NAME)
    entry.details = dict(details or {})
    return entry


def record(action: Action, **what: Any) -> Entry:
    """One entry, by one INSERT; takes what `draft` takes. Called in the transaction of what it tells of: both stand,
    or neither.
    """
    entry = draft(action, **what)
    entry.save(force_insert=True)
    return entry


def record_all(entries: Iterable[Entry]) -> None:
    """The same for many, by one INSERT."""
    Entry.objects.bulk_create(entries)


def record_failure(
    action: Action, *, subject: Person | None, details: Mapping[str, Any] | None = None
) -> None:
    """Somebody was not let in; `subject` is whose account he tried, None where there is no such account.

    What was typed is not kept: it may be anybody's address, or a password in the wrong field. And only so many are kept
    in an hour, by the database, since throttles open when the broker is away: a flood fills no disk. Of two at the
    bound at once both may be kept. Outside of transactions that the failure undoes.
    """
    tried = Entry.objects.filter(action=action, subject_id=None if subject is None else subject.pk)
    kept = STRANGERS_KEPT if subject is None else FAILURES_KEPT
    oldest = tried.order_by("-pk").values_list("at", flat=True)[kept - 1 : kept].first()
    if oldest is not None and oldest > utc_now() - FAILURE_WINDOW:
        return
    entry = _entry(action, actor=None, by_token=False, subject=subject)
    entry.details = dict(details or {})
    entry.save(force_insert=True)


def delete_old(now: datetime) -> int:
    """Those of which the time is over; how many. In bites, each by its own statement, so that none lasts long."""
    over = Entry.objects.filter(at__lte=now - timedelta(days=settings.AUDIT_KEPT_DAYS)).order_by("at")
    count = 0
    while found := list(over.values_list("pk", flat=True)[:SWEPT_AT_ONCE]):
        count += Entry.objects.filter(pk__in=found).delete()[0]
    return count


def _entry(action: Action, *, actor: Person | None, by_token: bool, subject: Person | None) -> Entry:
    came = origin.current()
    kinds = Entry.ActorType
    if came is None:
        kind = kinds.OPERATOR
    elif came.staff is not None:
        kind, actor, subject = kinds.STAFF, came.staff, subject or actor
    elif by_token:
        kind = kinds.TOKEN
    else:
        kind = kinds.USER if actor is not None else kinds.ANONYMOUS
    entry = Entry(at=utc_now(), action=action, actor_type=kind)
    if actor is not None:
        entry.actor_id, entry.actor_public_id, entry.actor_email = actor.pk, actor.public_id, actor.email
    if subject is not None and subject.pk != entry.actor_id:
        entry.subject_id = subject.pk
    if came is not None:
        entry.address, entry.user_agent = came.address, _one_line(came.user_agent, MAX_USER_AGENT)
    return entry


def _one_line(text: str, most: int) -> str:
    """What somebody sent, as a line of text that a column takes: PostgreSQL refuses a NUL, for one."""
    return "".join(c if c.isprintable() else " " for c in text)[:most]
