"""What Django's admin remembers of accounts: its own history, for staff, which names rows in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib.admin.models import LogEntry
from django.db.models import Q


def forget_in_admin(addresses: Iterable[str], *, instead: str) -> None:
    """That something was done by staff stays, not to whom."""
    for address in addresses:
        whole = rf"(^|[^[:alnum:]._%+-]){re.escape(address)}($|[^[:alnum:].-])"  # not of another address that ends so
        named = Q(object_repr__iregex=whole) | Q(change_message__iregex=whole)
        LogEntry.objects.filter(named).update(object_repr=instead, change_message="")
