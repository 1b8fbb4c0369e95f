"""Monitors that go down and recover too often to notify about every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef

from checks.spec import Verdict
from incidents.models import FlappingSpell, Incident
from monitors.models import StatusChange

SETTLED_INTERVALS = 3
"""The minimum number of consecutive equal checks before a monitor has settled."""


def flapping_of(monitor_ids: Collection[int]) -> set[int]:
    """Return the monitors that are flapping now."""
    spells = FlappingSpell.objects.filter(monitor__in=monitor_ids, ended_at=None)
    return set(spells.values_list("monitor", flat=True))


def begins_to_flap(monitor_ids: Collection[int], *, now: datetime) -> set[int]:
    """Return the monitors that went down or recovered FLAPPING_CHANGES times within FLAPPING_MINUTES."""
    since = now - timedelta(minutes=settings.FLAPPING_MINUTES)
    incidents = Incident.objects.filter(monitor__in=monitor_ids).values_list("monitor_id", flat=True)
    recovered = incidents.filter(resolved_at__gt=since, resolution=Incident.Resolution.RECOVERED)
    changes = Counter([*incidents.filter(confirmed_at__gt=since), *recovered])
    return {monitor_id for monitor_id, count in changes.items() if count >= settings.FLAPPING_CHANGES}


def begin(monitor_id: int, *, changed_at: datetime, now: datetime) -> FlappingSpell:
    return FlappingSpell.objects.create(monitor_id=monitor_id, started_at=now, last_change_at=changed_at)


def settled(now: datetime) -> list[FlappingSpell]:
    """Return the spells of monitors that kept their status for half of FLAPPING_MINUTES."""
    calm = timedelta(minutes=settings.FLAPPING_MINUTES) / 2
    calm_spells = FlappingSpell.objects.filter(ended_at=None, last_change_at__lte=now - calm)
    return [
        spell
        for spell in calm_spells.select_related("monitor")
        if now - spell.last_change_at >= SETTLED_INTERVALS * spell.monitor.shortest_interval
    ]


def end(spells: Sequence[FlappingSpell], *, now: datetime) -> set[int]:
    """End those of the spells that did not change since they were read, and return their monitors.

    Lock the monitors' incidents before.
    """
    read = {spell.pk: spell.last_change_at for spell in spells}
    active = FlappingSpell.objects.filter(pk__in=read, ended_at=None).select_for_update(no_key=True).order_by("pk")
    ended = {spell.pk: spell.monitor_id for spell in active if spell.last_change_at == read[spell.pk]}
    FlappingSpell.objects.filter(pk__in=ended).update(ended_at=now)
    return set(ended.values())


def slow_before(changes: Collection[StatusChange]) -> set[int]:
    """Return the primary keys of the changes to slow whose monitor already became slow within FLAPPING_MINUTES."""
    earlier = StatusChange.objects.filter(
        monitor=OuterRef("monitor"),
        kind=StatusChange.Kind.STATUS,
        after=Verdict.SLOW,
        pk__lt=OuterRef("pk"),
        at__gt=OuterRef("at") - timedelta(minutes=settings.FLAPPING_MINUTES),
    )
    given = StatusChange.objects.filter(pk__in=[change.pk for change in changes])
    return set(given.filter(Exists(earlier)).values_list("pk", flat=True))
