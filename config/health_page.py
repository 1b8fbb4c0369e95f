"""`/admin/health/`: for staff, how Pulsekeeper stands and what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from config.health import OK
from config.standing import MOST_COUNTED, Brokered, Standing, Stored, standing
from core.clock import utc_now
from core.templatetags.pulsekeeper import duration

# From where on something is marked. As docs/operate/metrics.md has it for alarms.
MOST_LAG = timedelta(seconds=10)
MOST_ALERT_LAG = timedelta(seconds=30)
LEAST_AHEAD = timedelta(days=2)
MOST_ROLLUP_AGE = timedelta(hours=3)
# One dead receiver is its owner's business; several, while none takes anything, look like a network that is closed.
FEWEST_FAILING = 2
NOTHING_SENT_FOR = timedelta(minutes=10)


def health(request: HttpRequest) -> HttpResponse:
    now = utc_now()
    found = standing(now=now)
    stored = found.stored
    context = {
        **admin.site.each_context(request),
        "title": "System health",
        "standing": found,
        "troubles": list(troubles(found, now=now)),
        "most_counted": MOST_COUNTED,
        "lag": None if stored is None else _since(stored.backlog.oldest_due_at, now),
        "tick_age": None if stored is None else _since(stored.backlog.last_tick_at, now),
        "alert_lag": None if stored is None else _since(stored.alert_since, now),
    }
    return render(request, "staff/health.html", context)


def troubles(found: Standing, *, now: datetime) -> Iterator[str]:
    """What somebody should look at, each with what it means."""
    for name, problem in found.checks.items():
        if problem != OK:
            yield f"{name.capitalize()}: {problem}."
    if found.mail is not None:
        yield f"Alerts by e-mail are not delivered. {found.mail}"
    if found.stored is not None:
        yield from _of_database(found.stored, now=now)
    if found.brokered is not None:
        yield from _of_broker(found.brokered)


def _of_database(stored: Stored, *, now: datetime) -> Iterator[str]:
    lag, alert_lag = _since(stored.backlog.oldest_due_at, now), _since(stored.alert_since, now)
    if lag > MOST_LAG:
        yield f"The oldest due monitor has waited for {duration(lag)}: workers do not keep up, or none runs."
    if alert_lag > MOST_ALERT_LAG:
        yield f"The oldest alert has waited for {duration(alert_lag)}: does the process “interactive” run?"
    silent = stored.last_sent_at is None or now - stored.last_sent_at > NOTHING_SENT_FOR
    if stored.failing_channels >= FEWEST_FAILING and silent:
        yield (
            f"Alerts to {stored.failing_channels} channels fail and none was delivered in the last "
            f"{duration(NOTHING_SENT_FOR)}: can the process “interactive” reach the mail server and the internet?"
        )
    if stored.dead_deliveries:
        yield "Alerts were given up: look at the dead deliveries, and replay them when their cause is gone."
    for table, ahead in stored.ahead.items():
        if ahead is None or ahead < LEAST_AHEAD:
            yield f"{table} has no partitions for the coming days: the task checks.tasks.keep_partitions does not run."
    if stored.rolled_until is not None and now - stored.rolled_until > MOST_ROLLUP_AGE:
        yield "The hourly roll-ups are behind: the task checks.tasks.roll_up does not run."


def _of_broker(brokered: Brokered) -> Iterator[str]:
    if brokered.unserved:
        yield f"No worker answers that takes from queue {', '.join(brokered.unserved)}."


def _since(moment: datetime | None, now: datetime) -> timedelta:
    return timedelta() if moment is None else max(timedelta(), now - moment)
