"""The kinds of things that a file has sections of, beside projects."""

from __future__ import annotations

from collections.abc import Sequence

from accounts.models import User
from declared.kinds.base import Kind
from declared.kinds.channels import Channels
from declared.kinds.monitors import Monitors
from declared.kinds.pages import Pages
from declared.kinds.windows import Windows


def all_kinds(user: User) -> Sequence[Kind]:
    """In the order in which they are made: monitors first, which the others refer to."""
    return Monitors(user), Channels(), Windows(), Pages()
