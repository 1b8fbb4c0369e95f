"""Personal data in the admin's own history, which contains the names of rows in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib.admin.models import LogEntry
from django.db.models import Q


def forget_in_admin(addresses: Iterable[str], *, instead: str) -> None:
    """Anonymize entries that name the addresses: they still show that staff acted, but not on which account."""
    for address in addresses:
        # Match whole addresses only, not longer ones that end with this one.
        whole = rf"(^|[^[:alnum:]._%+-]){re.escape(address)}($|[^[:alnum:].-])"
        named = Q(object_repr__iregex=whole) | Q(change_message__iregex=whole)
        LogEntry.objects.filter(named).update(object_repr=instead, change_message="")
