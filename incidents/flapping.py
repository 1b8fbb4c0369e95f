"""Monitors that go down and recover too often to notify about every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import DurationField, Exists, ExpressionWrapper, F, OuterRef, Value
from django.db.models.functions import Greatest

from checks.spec import Verdict
from incidents.models import FlappingSpell, Incident
from monitors.models import StatusChange

SETTLED_INTERVALS = 3
"""The minimum number of consecutive equal checks before a monitor has settled."""


def flapping_of(monitor_ids: Collection[int]) -> dict[int, FlappingSpell]:
    """Return the monitors that are flapping now."""
    spells = FlappingSpell.objects.filter(monitor__in=monitor_ids, ended_at=None)
    return {spell.monitor_id: spell for spell in spells}


def begins_to_flap(monitor_ids: Collection[int], *, now: datetime) -> set[int]:
    """Return the monitors that went down or recovered FLAPPING_CHANGES times within FLAPPING_MINUTES."""
    since = now - timedelta(minutes=settings.FLAPPING_MINUTES)
    changes: Counter[int] = Counter()
    incidents = Incident.objects.filter(monitor__in=monitor_ids)
    for column, found in (
        ("confirmed_at", incidents.filter(confirmed_at__gt=since)),
        ("resolved_at", incidents.filter(resolved_at__gt=since, resolution=Incident.Resolution.RECOVERED)),
    ):
        changes.update(found.order_by(column).values_list("monitor_id", flat=True))
    return {monitor_id for monitor_id, count in changes.items() if count >= settings.FLAPPING_CHANGES}


def begin(monitor_id: int, *, changed_at: datetime, now: datetime) -> FlappingSpell:
    return FlappingSpell.objects.create(monitor_id=monitor_id, started_at=now, last_change_at=changed_at)


def end_settled(now: datetime) -> Sequence[FlappingSpell]:
    """End the spells of monitors that kept their status for half of FLAPPING_MINUTES. Return them with their
    monitors."""
    calm = timedelta(minutes=settings.FLAPPING_MINUTES) / 2
    interval = ExpressionWrapper(
        F("monitor__interval_sec") * Value(timedelta(seconds=SETTLED_INTERVALS)), output_field=DurationField()
    )
    spells = list(
        FlappingSpell.objects.filter(ended_at=None)
        .annotate(settled_at=F("last_change_at") + Greatest(interval, Value(calm), output_field=DurationField()))
        .filter(settled_at__lte=now)
        .select_related("monitor", "monitor__project")
    )
    FlappingSpell.objects.filter(pk__in=[spell.pk for spell in spells]).update(ended_at=now)
    return spells


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
