"""Partial outages: a monitor is not down, but checks failed in the last turns of some of its locations.

Turns are counted under the monitor's lock. None are counted while it is down or muted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from checks.spec import CheckOutcome
from core.bulk import array
from locations.models import DEFAULT, Location
from monitors.locking import write_columns
from monitors.models import LocationFailure, Monitor

_COUNTED = ("config_version", "failures", "since", "reason_code", "detail")
_FORGET_VOID = """
    WITH void AS MATERIALIZED (
        SELECT failure.id
          FROM monitors_locationfailure AS failure
          JOIN monitors_monitor AS monitor ON monitor.id = failure.monitor_id
          LEFT JOIN locations_location AS location ON location.id = failure.location_id
         WHERE failure.failures > 0
           AND (failure.config_version < monitor.config_version
                OR coalesce(location.public_id, %(default)s) <> ALL(%(online)s::text[]))
           FOR UPDATE OF failure SKIP LOCKED
    ), kept AS (
        UPDATE monitors_locationfailure SET failures = 0 WHERE id IN (TABLE void) AND notified_at IS NOT NULL
    )
    DELETE FROM monitors_locationfailure WHERE id IN (TABLE void) AND notified_at IS NULL
"""
_FORGET_ENDED = """
    DELETE FROM monitors_locationfailure
     WHERE id IN (
            SELECT id
              FROM monitors_locationfailure
             WHERE failures = 0 AND notified_at <= %(before)s
               FOR UPDATE SKIP LOCKED)
"""


class Turn(NamedTuple):
    """The outcome of a check from a location, or None if it is not counted: the monitor is down or muted."""

    monitor_id: int
    location_id: int | None
    config_version: int
    outcome: CheckOutcome | None


def note_turns(turns: Sequence[Turn]) -> None:
    """Count these turns, in their order. The caller has locked the monitors."""
    if not turns:
        return
    rows = defaultdict[int, dict[int | None, LocationFailure]](dict)
    # Locked: an alert that is being written, and its time, are not to be lost.
    found = LocationFailure.objects.filter(monitor__in={turn.monitor_id for turn in turns})
    for row in found.select_for_update(no_key=True):
        rows[row.monitor_id][row.location_id] = row
    for monitor_id, location_id, config_version, outcome in turns:
        of_monitor = rows[monitor_id]
        if outcome is None or outcome.passed:
            for row in of_monitor.values():
                if outcome is None or row.location_id == location_id:
                    row.failures = 0
            continue
        row = of_monitor.get(location_id) or LocationFailure(monitor_id=monitor_id, location_id=location_id)
        of_monitor[location_id] = row
        if not row.failures or row.config_version != config_version:
            row.failures, row.since, row.config_version = 0, outcome.checked_at, config_version
        row.failures += 1
        row.reason_code, row.detail = outcome.reason_code, outcome.detail
    _write([row for of_monitor in rows.values() for row in of_monitor.values()])


def _write(rows: Sequence[LocationFailure]) -> None:
    """Write rows. Those without failures are kept for the time of their last alert."""
    over = [row.pk for row in rows if not row.failures and row.notified_at is None]
    kept = [row for row in rows if row.failures or row.notified_at is not None]
    LocationFailure.objects.filter(pk__in=over).delete()
    LocationFailure.objects.bulk_create(row for row in kept if row.pk is None)
    write_columns([row for row in kept if row.pk is not None], _COUNTED)


def failing() -> QuerySet[LocationFailure]:
    """Return the failures that make partial outages: at least `fail_threshold` turns of a location."""
    return LocationFailure.objects.filter(
        failures__gte=F("monitor__fail_threshold"), config_version=F("monitor__config_version"), monitor__enabled=True
    )


def failing_from(monitors: Collection[Monitor]) -> Mapping[int, Sequence[LocationFailure]]:
    """Return the failures of these monitors by the key of the monitor, with `title`. Takes at most two queries."""
    found = defaultdict[int, list[LocationFailure]](list)
    several = [monitor.pk for monitor in monitors if len(monitor.locations) > 1]
    for failure in with_titles(failing().filter(monitor__in=several).order_by("since", "pk")):
        found[failure.monitor_id].append(failure)
    return found


def with_titles(failures: Iterable[LocationFailure]) -> list[LocationFailure]:
    """Return the failures with the names of their locations."""
    failures = list(failures)
    if failures:
        known = Location.objects.filter(Q(pk__in={one.location_id for one in failures}) | Q(public_id=DEFAULT))
        titles = {None if one.is_default else one.pk: one.title for one in known}
        for failure in failures:
            failure.title = titles.get(failure.location_id, "a former location")
    return failures


def is_partial() -> Exists:
    """Match the monitors that fail from some of their locations."""
    return Exists(failing().filter(monitor=OuterRef("pk")))


def forget_offline(online: Collection[str]) -> None:
    """Forget the failures of all locations but these, and of earlier configurations, except for the last alerts."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_VOID, {"default": DEFAULT, "online": array(online)})


def forget_ended(before: datetime) -> None:
    """Forget locations that pass again and whose last alert was before this time."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_ENDED, {"before": before})
