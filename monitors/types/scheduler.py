from __future__ import annotations

from monitors.types.base import Execution
from monitors.types.http import HttpType


class Scheduler(HttpType):
    name = "scheduler"
    label = "Scheduler"
    icon = "timer"
    description = "Calls your address on a schedule, as a trigger."
    execution = Execution.FIRES
    defaults = {"method": "POST"}  # noqa: RUF012
    unasked = HttpType.unasked - {"schedule", "timezone", "missed"} | {"confirmation_sec", "quorum"}
    refused_methods = frozenset({"HEAD", "OPTIONS"})
    interval_label = "Call every"
    result_noun = "run"
