"""Create imported monitors as the API does, in one transaction, and skip existing ones.

An existing monitor has the same type, name and URL in the same project, so a file can be imported again. Duplicates in
a file are separate monitors. A monitor that was renamed since is imported again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import transaction
from rest_framework.exceptions import ValidationError

from accounts.models import Plan
from core.api.errors import first_reason
from core.errors import ValidationFailed
from manifests.importers.mapped import MappedMonitor, Note
from monitors import bulk, types
from monitors.models import Monitor
from monitors.serializers import MonitorInputSerializer
from monitors.services import complete, lock_owner
from monitors.types.settings import MonitorConfig
from projects import placement
from projects.access import Caller

_Key = tuple[str, str, str]  # kind, name, address


class Outcome(StrEnum):
    CREATED = "created"
    EXISTING = "existing"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome for one monitor of the file. `monitor` is the created one."""

    name: str
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    monitor: Monitor | None = field(default=None, repr=False)


def import_monitors(
    caller: Caller,
    mapped: Sequence[MappedMonitor],
    *,
    place: Mapping[str, Any],
    now: datetime,
    dry_run: bool = False,
) -> list[Imported]:
    """Create the monitors that do not exist yet, in the project `place["project_id"]` if given.

    Creates nothing with `dry_run`, and if it raises ValidationFailed (unknown project) or MonitorLimit (plan). The
    scheduler makes the first checks at once.
    """
    with transaction.atomic():
        project, owner = placement.place(caller, place)
        # A concurrent import waits and then finds these monitors.
        owner = lock_owner(owner)
        monitors = Monitor.objects.filter(owner=owner, project=project)
        existing = Counter(_key(*row) for row in monitors.values_list("type", "name", "url"))
        validated = [_validate(each, existing, plan=owner.plan) for each in mapped]
        drafts = [
            bulk.Draft(owner, project, config, enabled=each.enabled)
            for each, config in zip(mapped, validated, strict=True)
            if isinstance(config, MonitorConfig)
        ]
        made = iter(bulk.create_monitors(drafts, now=now))
        imported = [
            _created(each, next(made)) if isinstance(each_result, MonitorConfig) else each_result
            for each, each_result in zip(mapped, validated, strict=True)
        ]
        transaction.set_rollback(dry_run)
    return imported


def _validate(mapped: MappedMonitor, existing: Counter[_Key], *, plan: Plan) -> MonitorConfig | Imported:
    """Return the config to create, or the outcome if nothing is created."""
    if mapped.body is None:
        return Imported(mapped.name, Outcome.SKIPPED, mapped.notes)
    try:
        config = complete(_validated(mapped.body), plan)
    except ValidationFailed as error:
        return Imported(mapped.name, Outcome.SKIPPED, (Note("here", str(error)),))
    key = _key(config.type, config.name, config.url)
    if existing[key] > 0:
        existing[key] -= 1
        return Imported(mapped.name, Outcome.EXISTING)
    return config


def _created(mapped: MappedMonitor, monitor: Monitor) -> Imported:
    return Imported(mapped.name, Outcome.CREATED, (*mapped.notes, *_plan_notes(mapped, monitor)), monitor)


def _plan_notes(mapped: MappedMonitor, monitor: Monitor) -> list[Note]:
    """Return notes about changes by the plan."""
    wanted = (mapped.body or {}).get("interval_sec")
    notes = [] if mapped.enabled else [Note("paused", "it stays paused")]
    if wanted is not None and monitor.interval_sec != wanted:
        why = "the minimum of the plan" if monitor.interval_sec > wanted else "the maximum"
        notes.append(Note("interval", f"{wanted} s becomes {monitor.interval_sec} s, {why}"))
    return notes


def _validated(body: Mapping[str, Any]) -> dict[str, Any]:
    parsed = MonitorInputSerializer(data=dict(body))
    try:
        parsed.is_valid(raise_exception=True)
    except ValidationError as error:
        raise ValidationFailed(first_reason(error.detail)) from None
    return dict(parsed.validated_data)


def _key(kind: str, name: str, url: str) -> _Key:
    """Return the key that identifies a monitor.

    All polled types have the same key, as a monitor may change between them.
    """
    return (types.get(kind).family, name, url)
