"""What Django's admin remembers of accounts: its own history, for staff, which names rows in plain text."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.admin.models import LogEntry
from django.db.models import Q


def forget_in_admin(addresses: Iterable[str], *, instead: str) -> None:
    """That something was done by staff stays, not to whom."""
    for address in addresses:
        named = Q(object_repr__icontains=address) | Q(change_message__icontains=address)
        LogEntry.objects.filter(named).update(object_repr=instead, change_message="")
