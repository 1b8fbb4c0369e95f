"""Write and read the audit log, and delete entries: old ones, and personal data (docs/operate/privacy.md).

Higher apps check permissions: `projects.log`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings
from django.db.models import Q, QuerySet

from audit import origin
from audit.actions import Action
from audit.models import MAX_NAME, MAX_USER_AGENT, Entry
from core.addresses import client_of
from core.bulk import insert_objects
from core.clock import utc_now
from core.text import one_line

FAILURES_KEPT = 20  # of one account, within FAILURE_WINDOW
STRANGERS_KEPT = 200  # of all failures without a known account, within FAILURE_WINDOW
FAILURE_WINDOW = timedelta(hours=1)
SWEPT_AT_ONCE = 5_000


class Place(Protocol):
    """A project; the model is in a higher app."""

    pk: Any
    public_id: Any


class Person(Place, Protocol):
    """An account; the model is in a higher app."""

    email: Any


def draft(
    action: Action,
    *,
    actor: Person | None,
    by_token: bool = False,
    subject: Person | None = None,
    project: Place | None = None,
    monitor_id: int | None = None,
    target_id: str = "",
    target_name: str | None = "",
    details: Mapping[str, Any] | None = None,
) -> Entry:
    """Return an unsaved entry for `record_all`.

    `actor` is the account that the service acts for. In the admin that account becomes the subject, and the staff
    member the actor.
    """
    request = origin.current.get()
    if request is None:
        actor_type = Entry.ActorType.OPERATOR
    elif (staff := origin.staff(request)) is not None:
        actor_type, actor, subject = Entry.ActorType.STAFF, staff, subject or actor
    elif by_token:
        actor_type = Entry.ActorType.TOKEN
    else:
        actor_type = Entry.ActorType.USER if actor is not None else Entry.ActorType.ANONYMOUS
    entry = Entry(
        at=utc_now(),
        action=action,
        actor_type=actor_type,
        monitor_id=monitor_id,
        target_id=target_id,
        target_name=one_line(target_name or "", limit=MAX_NAME),
        details=dict(details or {}),
    )
    if actor is not None:
        entry.actor_id, entry.actor_public_id, entry.actor_email = actor.pk, actor.public_id, actor.email
    if subject is not None and subject.pk != entry.actor_id:
        entry.subject_id = subject.pk
    if project is not None:
        entry.project_id, entry.project_public_id = project.pk, project.public_id
    if request is not None:
        entry.address = client_of(request.META).address
        entry.user_agent = one_line(request.headers.get("User-Agent", ""), limit=MAX_USER_AGENT)
    return entry


def record(action: Action, **what: Any) -> Entry:
    """Store an entry with the arguments of `draft`. Call it in the transaction of the action."""
    entry = draft(action, **what)
    entry.save(force_insert=True)
    return entry


def record_all(entries: Iterable[Entry]) -> None:
    """Store many entries with a single INSERT, without the cost of the ORM: an action may change a thousand rows."""
    insert_objects(entries)


def record_failure(action: Action, *, subject: Person | None, details: Mapping[str, Any] | None = None) -> None:
    """Record a failed sign-in. `subject` is the account that was tried, None if it does not exist.

    The input is not stored: it may be another person's address, or a password in the wrong field. The database limits
    the number per hour, because throttles are off without a broker; two concurrent failures may exceed it by one. Call
    it outside of transactions that the failure rolls back.
    """
    tried = Entry.objects.filter(action=action, subject_id=None if subject is None else subject.pk)
    kept = STRANGERS_KEPT if subject is None else FAILURES_KEPT
    oldest = tried.order_by("-pk").values_list("at", flat=True)[kept - 1 : kept].first()
    if oldest is None or oldest <= utc_now() - FAILURE_WINDOW:
        record(action, actor=None, subject=subject, details=details)


def delete_old(now: datetime) -> None:
    """Delete expired entries, in chunks, so that no statement takes long."""
    over = Entry.objects.filter(at__lte=now - timedelta(days=settings.AUDIT_KEPT_DAYS)).order_by("at")
    while found := list(over.values_list("pk", flat=True)[:SWEPT_AT_ONCE]):
        Entry.objects.filter(pk__in=found).delete()


def of_person(key: int) -> QuerySet[Entry]:
    """Return the person's actions, and the actions on their account."""
    return Entry.objects.filter(Q(actor_id=key) | Q(subject_id=key))


def former_addresses(key: int) -> list[str]:
    """Return the former e-mail addresses of the account, as far back as the log goes."""
    changes = of_person(key).filter(action=Action.EMAIL_CHANGED)
    return list(changes.values_list("details__before", flat=True))


def forget_projects(keys: Collection[int]) -> None:
    """Delete the logs of projects that are deleted with their only member."""
    Entry.objects.filter(project_id__in=keys).delete()


def forget_person(person: Person, *, addresses: Collection[str]) -> None:
    """Anonymize a person's entries. Runs in the transaction that deletes the account.

    Entries that only they could see are deleted. Entries of other people's projects or by staff stay without IP
    address, e-mail addresses and browser: `usr_…` still shows that two entries belong to one person, and identifies
    no one.
    """
    own = Q(actor_id=person.pk) & ~Q(actor_type=Entry.ActorType.STAFF)
    Entry.objects.filter(own, project_id=None).delete()
    Entry.objects.filter(subject_id=person.pk, actor_id=None).delete()
    Entry.objects.filter(actor_id=person.pk).update(actor_email="", address=None, user_agent="")
    Entry.objects.filter(subject_id=person.pk).update(target_name="", details={})
    Entry.objects.filter(target_name__in=addresses).update(target_name="")
    last = record(Action.ACCOUNT_DELETED, actor=person, target_id=person.public_id)
    if last.actor_id == person.pk:
        Entry.objects.filter(pk=last.pk).update(actor_email="", address=None, user_agent="")
