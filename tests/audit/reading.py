"""Helpers that read the audit log in tests."""

from __future__ import annotations

from audit.actions import Action
from audit.models import Entry


def actions(**of: object) -> list[str]:
    """Return entries in the order of recording."""
    return list(Entry.objects.filter(**of).order_by("pk").values_list("action", flat=True))


def last(action: Action | None = None) -> Entry:
    entries = Entry.objects.all() if action is None else Entry.objects.filter(action=action)
    return entries.latest("pk")


def forget_all() -> None:
    """Delete the entries that the setup of a test recorded."""
    Entry.objects.all().delete()
