"""The resources that a manifest describes, except projects: one module each."""

from __future__ import annotations

from collections.abc import Sequence

from manifests.resources.base import Resource
from manifests.resources.channels import Channels
from manifests.resources.monitors import Monitors
from manifests.resources.oncall import Policies, Schedules
from manifests.resources.pages import Pages
from manifests.resources.windows import Windows

RESOURCES: Sequence[Resource] = (Monitors(), Channels(), Windows(), Schedules(), Policies(), Pages())
"""In order of creation: monitors first, as the others refer to them. Their policies are stored last."""
