"""Fill a database with monitors of many accounts, by a few statements that copy rows which the product has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.db.models import Model

PER_ACCOUNT = 200
"""Monitors for each account: 1,000,000 monitors have 5,000 accounts."""
LARGEST_SHARE = 20
"""One account has a twentieth of the monitors: 50,000 of 1,000,000."""
INTERVAL_SEC = 3_600
RESULTS_AN_HOUR = 6
PAST_INCIDENTS = 5
"""Every fifth monitor was down once, and its account got an alert of it and of its end."""
PASSWORD = "a fine long password"
DOWN_SHARE = 5
"""A fifth of the monitors go down at once: 200,000 of 1,000,000."""


@dataclass(frozen=True, slots=True)
class World:
    """The keys of what was stored. Monitors and accounts have consecutive keys."""

    first_monitor: int
    monitors: int
    listed: int  # an account with nearly PER_ACCOUNT monitors, which are anywhere in the table
    largest: int  # the account with 1 of LARGEST_SHARE monitors
    hour: datetime  # all monitors have results in it


def world() -> World:
    """Return what `seed` has stored in this database."""
    from accounts.models import User
    from checks.results.hours import start_of_hour
    from checks.results.models import CheckResult

    keys = list(User.objects.order_by("pk").values_list("pk", flat=True))
    oldest = CheckResult.objects.order_by("checked_at").values_list("checked_at", flat=True)[:1]
    ((first, count),) = _fetch("SELECT min(id), count(*) FROM monitors_monitor")
    return World(first, count, keys[-1], keys[1], start_of_hour(oldest[0]))


def seed(total: int, *, now: datetime) -> None:
    """Store `total` monitors with their states, accounts, channels, past incidents, and results of an hour."""
    from accounts.models import Plan, User
    from accounts.services import create_account
    from alerts.models import AlertChannel
    from alerts.services import create_channel
    from checks.results.retention import keep_partitions
    from monitors.models import Monitor
    from monitors.services import create_monitor
    from projects.access import Caller

    call_command("migrate", verbosity=0)
    keep_partitions(now)
    Plan.objects.update(monitor_limit=None)
    one = create_account(email="listed@example.com", password=PASSWORD, plan="pro")
    AlertChannel.objects.filter(owner=one).delete()
    channel, _ = create_channel(
        Caller(one), {"kind": "webhook", "name": "Receiver", "url": "https://receiver.example/"}, now=now
    )
    draft = {"url": "https://shop.example/health", "name": "Shop", "interval_sec": INTERVAL_SEC, "fail_threshold": 1}
    monitor = create_monitor(Caller(one), draft, now=now)
    accounts = max(total // PER_ACCOUNT, 3) - 1
    _copy(one, accounts, public_id="'usr_growth' || n", email="n || '@growth.example'")
    _copy(channel, accounts, public_id="'chn_growth' || n", owner_id=f"{one.pk} + n")
    others, largest = accounts - 1, total // LARGEST_SHARE
    owner = f"""{one.pk} + CASE WHEN n < {PER_ACCOUNT} THEN 0 WHEN n < {PER_ACCOUNT + largest} THEN 1
                                ELSE 2 + n / 10 % {others} END"""
    _copy(monitor, total - 1, public_id="'mon_growth' || n", owner_id=owner, name="'Shop ' || n")
    _execute("DELETE FROM monitors_monitorstate; DELETE FROM monitors_statuschange; DELETE FROM checks_checkresult")
    _execute(_STATES, [INTERVAL_SEC])
    _store_past(now, first=monitor.pk)
    _store_hour(now)
    assert User.objects.count() == accounts + 1
    assert Monitor.objects.count() == total
    _execute("VACUUM ANALYZE")


# Only those that a step makes due are due, also in a database that is kept for weeks.
_STATES = """
    INSERT INTO monitors_monitorstate (
        monitor_id, next_due_at, slot_at, claim, applied_claim, fresh, failures, passes, status, status_since,
        last_checked_at, last_latency_ms)
    SELECT id, now() + interval '30 days' + ((id * 7919) %% %s) * interval '1 second', now(), 1, 1, false, 0, 0, 'up',
           now(), now(), 20
      FROM monitors_monitor
     ORDER BY id
"""
_PAST = (
    """
    INSERT INTO monitors_statuschange (monitor_id, kind, at, before, after, claim, processed_at)
    SELECT id, 'status', %(now)s - interval '9 days', NULL, 'up', 1, %(now)s FROM monitors_monitor ORDER BY id
    """,
    """
    INSERT INTO incidents_incident (
        public_id, owner_id, monitor_id, monitor_public_id, name, reason_code, detail, claim, started_at, confirmed_at,
        resolved_at, resolution, announced_at, closing_announced_at)
    SELECT 'inc_growth' || id, owner_id, id, public_id, name, 'http_failure', 'Answered 500.', 1,
           %(now)s - interval '2 days', %(now)s - interval '2 days', %(now)s - interval '47 hours', 'recovered',
           %(now)s - interval '2 days', %(now)s - interval '47 hours'
      FROM monitors_monitor
     WHERE id %% %(past)s = 0
     ORDER BY id
    """,
    """
    INSERT INTO incidents_incidentevent (public_id, incident_id, type, text, at, data)
    SELECT 'evt_growth' || incident.id || '_' || n, incident.id, kind, 'It happened.', started_at,
           '{"news": "down", "channels": 1}'
      FROM incidents_incident AS incident,
           unnest(ARRAY['first_failure', 'confirmed', 'announced', 'alert_sent', 'resolved'])
               WITH ORDINALITY AS entry (kind, n)
    """,
    """
    INSERT INTO alerts_delivery (
        public_id, channel_id, account, created_at, behind, state, attempts, next_try_at, give_up_at, done_at)
    SELECT 'dlv_growth' || incident.id, channel.id, incident.owner_id, announced_at, '{}', 'sent', 1, announced_at,
           announced_at, announced_at
      FROM incidents_incident AS incident JOIN alerts_alertchannel AS channel USING (owner_id)
    """,
    """
    INSERT INTO alerts_deliveryitem (delivery_id, channel_id, source, incident_id, payload, at)
    SELECT delivery.id, delivery.channel_id, 'event:evt_growth' || incident.id, incident.id,
           jsonb_build_object('event_type', 'down', 'at', 0, 'monitor_id', monitor_public_id, 'monitor', name,
                              'type', 'http', 'url', 'https://shop.example/health', 'project', NULL, 'by', NULL,
                              'incident_id', incident.public_id, 'detail', detail, 'evidence', '{}'::jsonb),
           announced_at
      FROM incidents_incident AS incident
      JOIN alerts_delivery AS delivery ON delivery.public_id = 'dlv_growth' || incident.id
    """,
)


def _store_past(now: datetime, *, first: int) -> None:
    for statement in _PAST:
        _execute(statement, {"now": now, "past": PAST_INCIDENTS, "first": first})


# In the order of time. Within a slot their order on disk is mixed, as that of checks.
_HOUR = """
    INSERT INTO checks_checkresult (
        monitor_id, checked_at, claim, latency_ms, connect_ms, ttfb_ms, http_status, verdict)
    SELECT first + number * 7919 %% total,
           %(start)s + make_interval(secs => (slot + number::float8 / total) * 3600 / %(slots)s), 2 + slot,
           20 + hashint8(number + slot) %% 16, 3, 18, 200, 'up'
      FROM (SELECT min(id) AS first, count(*) AS total FROM monitors_monitor) AS monitor,
           generate_series(0, %(slots)s - 1) AS slot, generate_series(0, total - 1) AS number
"""


def _store_hour(now: datetime) -> None:
    """Store results of all monitors for the first hour of yesterday."""
    from checks.results.hours import HOUR
    from checks.results.partitions import RESULTS, make

    start = RESULTS.bounds(now - timedelta(days=1))[0]
    # Yesterday has one partition: replace it by an hour.
    _execute(f"DROP TABLE {RESULTS.name(*RESULTS.bounds(start))}")
    make(RESULTS, [(start, start + HOUR)])
    _execute(_HOUR, {"start": start, "slots": RESULTS_AN_HOUR})


def _copy(row: Model, count: int, **others: str) -> None:
    """Add copies of a row. `others` are columns that differ, as SQL of the number of the copy `n`, from 1 on."""
    columns = [str(field.column) for field in row._meta.concrete_fields if not field.primary_key]
    values = [others.get(column, f"template.{column}") for column in columns]
    table = row._meta.db_table
    _execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"
        f"  FROM {table} AS template, generate_series(1, {count}) AS n WHERE template.id = {row.pk} ORDER BY n"
    )


def _execute(statement: str, values: Mapping[str, Any] | list[Any] | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _fetch(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        found: list[Any] = cursor.fetchall()
        return found
