"""The resources that a manifest describes, except projects: one module each."""

from __future__ import annotations

from collections.abc import Sequence

from accounts.models import User
from manifests.resources.base import Resource
from manifests.resources.channels import Channels
from manifests.resources.monitors import Monitors
from manifests.resources.pages import Pages
from manifests.resources.windows import Windows


def all_resources(user: User) -> Sequence[Resource]:
    """Return the resources in order of creation: monitors first, as the others refer to them."""
    return Monitors(user), Channels(), Windows(), Pages()
