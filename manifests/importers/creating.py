"""Create imported monitors as the API does, in one transaction, and skip existing ones.

An existing monitor has the same type, name and URL in the same project, so a file can be imported again. Duplicates in
a file are separate monitors. A monitor that was renamed since is imported again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from core.api.fields import validated
from core.errors import ValidationFailed
from manifests.account import take_turn
from manifests.importers.mapped import CreatedMonitor, Imported, MappedMonitor, Note, Outcome
from monitors import services, types
from monitors.models import Monitor
from monitors.serializers import MonitorInputSerializer
from monitors.services import Draft, complete, lock_owner
from projects import placement
from projects.access import Caller


def import_monitors(
    caller: Caller,
    mapped: Sequence[MappedMonitor],
    *,
    place: Mapping[str, Any],
    now: datetime,
    dry_run: bool = False,
    patience_sec: float | None = None,
) -> list[Imported]:
    """Create the monitors that do not exist yet, in the project `place["project_id"]` if given.

    Creates nothing with `dry_run`, and if it raises ValidationFailed (unknown project), MonitorLimit (plan) or
    TooManyRequests (another apply or import of the account runs for `patience_sec`; None: wait). The scheduler makes
    the first checks at once.
    """
    with transaction.atomic():
        take_turn(caller, patience_sec=patience_sec)
        project, owner = placement.place(caller, place)
        # A concurrent import waits and then finds these monitors.
        owner = lock_owner(owner)
        monitors = Monitor.objects.filter(owner=owner, project=project)
        existing = Counter(_key(*row) for row in monitors.values_list("type", "name", "url"))
        outcomes: dict[int, Imported] = {}
        drafts: dict[int, Draft] = {}
        for index, each in enumerate(mapped):
            try:
                config = complete(validated(MonitorInputSerializer, each.body or {}), owner.plan)
            except ValidationFailed as error:
                outcomes[index] = Imported(each.name, Outcome.SKIPPED, (Note("here", str(error)),))
                continue
            if existing[key := _key(config.type, config.name, config.url)] > 0:
                existing[key] -= 1
                outcomes[index] = Imported(each.name, Outcome.EXISTING)
            else:
                drafts[index] = Draft(owner, project, config, enabled=each.enabled)
        for index, monitor in zip(drafts, services.create_monitors([*drafts.values()], now=now), strict=True):
            notes, created = tuple(_plan_notes(mapped[index], monitor)), _created(monitor, dry_run=dry_run)
            outcomes[index] = Imported(mapped[index].name, Outcome.CREATED, notes, created)
        transaction.set_rollback(dry_run)
    return [outcomes[index] for index in range(len(mapped))]


def _created(monitor: Monitor, *, dry_run: bool) -> CreatedMonitor:
    schedule = monitor.schedule
    pings = monitor.kind.waits and not dry_run
    return CreatedMonitor(
        id=None if dry_run else monitor.public_id,
        type=monitor.type,
        url=monitor.url,
        interval_sec=monitor.interval_sec,
        schedule=None if schedule is None else schedule.expression,
        timezone=None if schedule is None else schedule.timezone,
        ping_url=monitor.ping_url if pings else None,
    )


def _plan_notes(mapped: MappedMonitor, monitor: Monitor) -> list[Note]:
    """Return notes about changes by the plan."""
    wanted = (mapped.body or {}).get("interval_sec")
    notes = [] if mapped.enabled else [Note("paused", "it stays paused")]
    if wanted is not None and monitor.interval_sec != wanted:
        why = "the minimum of the plan" if monitor.interval_sec > wanted else "the maximum"
        notes.append(Note("interval", f"{wanted} s becomes {monitor.interval_sec} s, {why}"))
    return notes


def _key(kind: str, name: str, url: str) -> tuple[str, str, str]:
    """Return the key that identifies a monitor: family of the type, as a monitor may change within it, name and URL."""
    return (types.get(kind).family, name, url)
