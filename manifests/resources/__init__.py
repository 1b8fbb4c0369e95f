"""The kinds of things that a file has sections of, beside projects."""

from __future__ import annotations

from collections.abc import Sequence

from accounts.models import User
from manifests.resources.base import Kind
from manifests.resources.channels import Channels
from manifests.resources.monitors import Monitors
from manifests.resources.pages import Pages
from manifests.resources.windows import Windows


def all_kinds(user: User) -> Sequence[Kind]:
    """In the order in which they are made: monitors first, which the others refer to."""
    return Monitors(user), Channels(), Windows(), Pages()
