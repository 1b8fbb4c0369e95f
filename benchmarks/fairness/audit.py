"""Compare what is stored with the timetable. Import it after Django is set up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import connection

from benchmarks.fairness.figures import Sample
from benchmarks.fairness.tenants import INTERVAL_SEC, Quiet, Watched
from benchmarks.fairness.watching import Alert
from monitors.models import StatusChange

BLUR_SEC = 0.5
"""The clocks of a target and of a result may differ by a probe."""

Switch = tuple[float, int, bool]
"""When the target with that number goes up or down."""

# A slot counts as checked by the first result at or after it, even one made for another slot. A slot without a result
# is late until now. Slots do not drift, so all can be computed from one.
_LATENESS = """
    SELECT extract(epoch FROM slot)::float8,
           extract(epoch FROM coalesce(
               (SELECT min(checked_at) FROM checks_checkresult AS result
                 WHERE result.monitor_id = phase.monitor_id AND checked_at >= slot), clock_timestamp()) - slot)::float8,
           (SELECT type || ' ' || id FROM monitors_monitor WHERE id = phase.monitor_id)
      FROM unnest(%(ids)s::bigint[], %(slots)s::timestamptz[]) AS phase (monitor_id, first),
           generate_series(first, %(end)s, make_interval(secs => %(interval)s)) AS slot
     WHERE slot >= %(start)s AND slot < least(%(end)s, clock_timestamp())
"""


def slots(quiet: Quiet) -> tuple[list[int], list[datetime]]:
    """Return the next planned slot of each polled monitor."""
    polled = [each.monitor_id for each in quiet.monitors if each.polled]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT monitor_id, CASE WHEN claimed_at IS NULL THEN next_due_at ELSE slot_at END"
            "  FROM monitors_monitorstate WHERE monitor_id = ANY(%s) ORDER BY monitor_id",
            [polled],
        )
        rows = [(monitor_id, at) for monitor_id, at in cursor.fetchall() if at is not None]
    return [monitor_id for monitor_id, _ in rows], [at for _, at in rows]


def lateness(planned: tuple[list[int], list[datetime]], start: float, end: float) -> list[Sample]:
    """Return how late each check of the slots from `start` to `end` was stored as made."""
    with connection.cursor() as cursor:
        cursor.execute(
            _LATENESS,
            {
                "ids": planned[0],
                "slots": planned[1],
                "start": datetime.fromtimestamp(start, UTC),
                "end": datetime.fromtimestamp(end, UTC),
                "interval": float(INTERVAL_SEC),
            },
        )
        return [Sample(*row) for row in cursor.fetchall()]


def last_change() -> int:
    return StatusChange.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


@dataclass
class Changes:
    """Stored changes against switches. `alerts` are the delays of the messages about those that were found."""

    false: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    alerts: list[Sample] = field(default_factory=list)
    waiting: int = 0  # messages that have not arrived

    @property
    def are_complete(self) -> bool:
        return not self.missed and not self.waiting


def compare(quiet: Quiet, switches: Sequence[Switch], alerts: Sequence[Alert], *, after: int, now: float) -> Changes:
    """Compare the changes after the key `after` with the switches since then, at most one for each monitor."""
    found = Changes()
    by_monitor: dict[int, list[tuple[float, bool]]] = {}
    reasons: dict[tuple[int, float], str | None] = {}
    rows = StatusChange.objects.filter(pk__gt=after, monitor__in=quiet.ids, kind=StatusChange.Kind.STATUS)
    columns = ("monitor_id", "at", "before", "after", "reason_code")
    for monitor_id, at, before, status, reason in rows.order_by("pk").values_list(*columns):
        if before is not None and (before == "down") != (status == "down"):
            by_monitor.setdefault(monitor_id, []).append((at.timestamp(), status != "down"))
            reasons[monitor_id, at.timestamp()] = reason
    expected = {number: (at, up) for at, number, up in switches}
    for each in quiet.monitors:
        stored = by_monitor.get(each.monitor_id, [])
        switch = expected.get(each.number)
        true = next((one for one in stored if switch and one[1] is switch[1] and one[0] >= switch[0] - BLUR_SEC), None)
        for one in stored:
            if one != true:
                direction, reason = "up" if one[1] else "down", reasons[each.monitor_id, one[0]]
                found.false.append(f"{each} went {direction} at {one[0]:.1f} ({reason}), its target not")
        if switch is not None and true is None:
            found.missed.append(f"{each}: its target went {'up' if switch[1] else 'down'} at {switch[0]:.1f}")
        elif true is not None:
            _add_alert(found, each, true, alerts, now=now)
    return found


def _add_alert(
    found: Changes, each: Watched, change: tuple[float, bool], alerts: Sequence[Alert], *, now: float
) -> None:
    at, up = change
    told = (
        alert.at for alert in alerts if alert.number == each.number and alert.up is up and alert.at >= at - BLUR_SEC
    )
    arrived = min(told, default=None)
    found.waiting += arrived is None
    found.alerts.append(Sample(at, max(0.0, (now if arrived is None else arrived) - at)))
