"""Writing what was mapped: as the API would create it, all in one transaction, and nothing a second time.

What is here already is told by kind, name and address in the same place: an account's own monitors, or a project's. Two
of the same in a file are two monitors. So a file can be imported again, after a failure or with more in it; what was
renamed since, here or there, is another monitor.
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
from manifests.importers.mapped import Mapped, Note
from monitors import bulk
from monitors.configuration import HTTP_TYPES, MonitorConfig
from monitors.models import Monitor
from monitors.serializers import MonitorInputSerializer
from monitors.services import complete, lock_owner
from projects import places
from projects.access import Caller

_Key = tuple[str, str, str]  # kind, name, address


class Fate(StrEnum):
    CREATED = "created"
    THERE = "there"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one monitor of the file. `monitor` is what was created."""

    name: str
    fate: Fate
    notes: tuple[Note, ...] = ()
    monitor: Monitor | None = field(default=None, repr=False)


def import_monitors(
    caller: Caller,
    mapped: Sequence[Mapped],
    *,
    place: Mapping[str, Any],
    now: datetime,
    dry_run: bool = False,
) -> list[Imported]:
    """Create what can be and is not there, in the project that `place["project_id"]` names, if it does.

    Raises ValidationFailed for no such project, and MonitorLimit where the plan has no room for all: then nothing is
    created. Nor is it with `dry_run`, which finds out all the same. First checks are the scheduler's, at once.
    """
    with transaction.atomic():
        project, owner = places.place(caller, place)
        # Two imports of the same file go one after the other, and the second finds what the first made.
        owner = lock_owner(owner)
        monitors = Monitor.objects.filter(owner=owner, project=project)
        there = Counter(_key(*row) for row in monitors.values_list("type", "name", "url"))
        judged = [_judged(each, there, plan=owner.plan) for each in mapped]
        news = [
            bulk.New(owner, project, config, enabled=each.enabled)
            for each, config in zip(mapped, judged, strict=True)
            if isinstance(config, MonitorConfig)
        ]
        made = iter(bulk.create_monitors(news, now=now))
        imported = [
            _created(each, next(made)) if isinstance(judgement, MonitorConfig) else judgement
            for each, judgement in zip(mapped, judged, strict=True)
        ]
        transaction.set_rollback(dry_run)
    return imported


def _judged(mapped: Mapped, there: Counter[_Key], *, plan: Plan) -> MonitorConfig | Imported:
    """The config of what is to be created, or what becomes of it instead."""
    if mapped.given is None:
        return Imported(mapped.name, Fate.LEFT_OUT, mapped.notes)
    try:
        config = complete(_validated(mapped.given), plan)
    except ValidationFailed as error:
        return Imported(mapped.name, Fate.LEFT_OUT, (Note("here", str(error)),))
    key = _key(config.type, config.name, config.url)
    if there[key] > 0:
        there[key] -= 1
        return Imported(mapped.name, Fate.THERE)
    return config


def _created(mapped: Mapped, monitor: Monitor) -> Imported:
    return Imported(mapped.name, Fate.CREATED, (*mapped.notes, *_own_notes(mapped, monitor)), monitor)


def _own_notes(mapped: Mapped, monitor: Monitor) -> list[Note]:
    """What the plan made of it."""
    wanted = (mapped.given or {}).get("interval_sec")
    notes = [] if mapped.enabled else [Note("paused", "it is paused here too")]
    if wanted is not None and monitor.interval_sec != wanted:
        why = "the least that the plan has" if monitor.interval_sec > wanted else "the most that is kept"
        notes.append(Note("interval", f"{wanted} s becomes {monitor.interval_sec} s, {why}"))
    return notes


def _validated(given: Mapping[str, Any]) -> dict[str, Any]:
    parsed = MonitorInputSerializer(data=dict(given))
    try:
        parsed.is_valid(raise_exception=True)
    except ValidationError as error:
        raise ValidationFailed(first_reason(error.detail)) from None
    return dict(parsed.validated_data)


def _key(kind: str, name: str, url: str) -> _Key:
    """Types among which a monitor may change are one kind."""
    return ("polled" if kind in HTTP_TYPES else kind, name, url)
