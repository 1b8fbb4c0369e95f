"""Remove personal data from the log when an account is deleted (docs/adr/0024, docs/operate/privacy.md)."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from audit.actions import Action
from audit.models import Entry
from audit.services import Person, record


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
