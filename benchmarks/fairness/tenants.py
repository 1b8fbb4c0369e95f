"""The quiet tenant and the hostile accounts, and what they own. Import it after Django is set up.

Rows of the database equal those of the product's services, but are created in bulk.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import redis
from django.db import IntegrityError, OperationalError, connection
from django.test import Client as Browser

from accounts.models import Plan, User
from accounts.services import create_account
from alerts.models import AlertChannel, Delivery
from alerts.services import create_channel
from benchmarks.fairness.rows import Row, monitor_of
from benchmarks.fairness.targets import READY, address_of
from core.clock import utc_now
from core.credentials import issue
from core.parent_death import die_with_parent
from locations.models import Location
from monitors.models import MonitorState, StatusChange
from monitors.services import Draft, complete, limits_at, store_new
from projects.access import Caller
from statuspages.services import create_page
from tokens.services import SESSION_LIFETIME, SESSION_PREFIX

ROOT = Path(__file__).resolve().parents[2]
INTERVAL_SEC = 5
HEARTBEAT_SEC, GRACE_SEC = 3, 4
JOBS = {"heartbeat": (HEARTBEAT_SEC, GRACE_SEC), "minute": (60, 10)}
"""Intervals and graces."""
TIMEOUT_MS = 2_000
# Sixty monitors. Some of each kind switch, except `ping`, as the kernel answers for all of 127/8, and `minute`, a
# heartbeat whose silence a short row would not see.
MIX = {
    "http": 14,
    "api": 6,
    "keyword": 6,
    "tcp": 6,
    "tls": 4,
    "udp": 4,
    "ping": 4,
    "dns": 6,
    "scheduler": 4,
    "minute": 2,
    "heartbeat": 4,
}
SWITCHING = {kind: 3 for kind in MIX if kind not in ("ping", "minute")}
EMAIL, PASSWORD = "quiet@example.com", "a fine long password"
SLUG, LOCKED_SLUG = "quiet", "locked"
SILENCE_SEC = 2.0
"""After this time in row `silence`, the deadlines of hostile heartbeats pass."""


class Process:
    """A helper process that prints its ports. Its standard input takes lines."""

    def __init__(self, *arguments: str, nice: bool = False) -> None:
        command = [*(["nice", "-n", "19"] if nice else []), sys.executable, "-m", *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    def read(self, *, seconds: float = 30.0) -> Any:
        """Return the next line, parsed, or None if none arrives in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return json.loads(self._process.stdout.readline() or "null") if ready else None

    def write(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class Watched:
    """A monitor of the quiet tenant. Its target has the number."""

    number: int
    kind: str
    monitor_id: int
    public_id: str
    interval_sec: int
    switches: bool

    @property
    def polled(self) -> bool:
        return self.kind not in JOBS

    def __str__(self) -> str:
        return f"{self.kind} {self.number} (monitor {self.monitor_id})"


@dataclass(frozen=True)
class Quiet:
    user: User
    monitors: Sequence[Watched]
    token: str
    cookie: str
    draft: Mapping[str, Any] = field(default_factory=dict)  # of a target that is up

    @property
    def switching(self) -> list[Watched]:
        return [each for each in self.monitors if each.switches]

    @property
    def ids(self) -> list[int]:
        return [each.monitor_id for each in self.monitors]


@dataclass
class Hostile:
    """An account, or an address without one. `own` is what a row gave it, for its attacker."""

    address: str
    user: User | None = None
    own: dict[str, Any] = field(default_factory=dict)


def may_ping() -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP).close()
        except OSError:
            continue
        return True
    return False


def sign_in(user: User) -> str:
    """Return the token of a new session, without the cost of a password."""
    from tokens.models import Session

    plaintext, columns = issue(SESSION_PREFIX)
    now = utc_now()
    Session.objects.create(
        user=user,
        password_hash=user.get_session_auth_hash(),
        **columns,
        created_at=now,
        expires_at=now + SESSION_LIFETIME,
    )
    return plaintext


def cookie_of(user: User) -> str:
    """Return the header Cookie of a new session of pages."""
    browser = Browser()
    browser.force_login(user)
    return "; ".join(f"{name}={morsel.value}" for name, morsel in browser.cookies.items())


def make_quiet(ports: dict[str, int], receiver: str) -> Quiet:
    Plan.objects.create(name="quiet", min_interval_sec=1, monitor_limit=100)
    user = create_account(email=EMAIL, password=PASSWORD, plan="quiet")
    caller = Caller(user)
    kinds = [kind for kind, count in MIX.items() for _ in range(count)]
    configs = [
        complete(_quiet_monitor(kind, number, ports), limits_at(None, user)) for number, kind in enumerate(kinds, 1)
    ]
    made = store_new(None, [Draft(user, None, config) for config in configs], is_claimed=False, now=utc_now())
    watched = [
        Watched(index + 1, kinds[index], monitor.pk, monitor.public_id, monitor.interval_sec, _switches(index, kinds))
        for index, monitor in enumerate(made)
    ]
    AlertChannel.objects.filter(owner=user).delete()
    for each in watched:
        if each.switches:  # a channel each, as one that gets many messages groups them
            create_channel(
                caller,
                {
                    "kind": "webhook",
                    "url": f"{receiver}/{each.number}",
                    "monitors": "chosen",
                    "monitor_ids": [each.public_id],
                    "topics": ["down", "recovered"],
                },
                now=utc_now(),
            )
    shown = [{"monitor_id": each.public_id, "name": str(each.number)} for each in watched]
    page = {"name": "Quiet", "slug": SLUG, "published": True, "groups": [{"name": "All", "monitors": shown}]}
    create_page(caller, page, now=utc_now())
    spread(watched)
    still = next(each.number for each in watched if each.kind == "http" and not each.switches)
    draft = {"url": f"http://{address_of(still)}:{ports['http']}/", "timeout_ms": TIMEOUT_MS}
    return Quiet(user, watched, sign_in(user), cookie_of(user), draft)


def _switches(index: int, kinds: Sequence[str]) -> bool:
    """Return whether it is one of the first monitors of its kind, which switch."""
    return kinds[:index].count(kinds[index]) < SWITCHING.get(kinds[index], 0)


def _quiet_monitor(kind: str, number: int, ports: dict[str, int]) -> dict[str, Any]:
    host = address_of(number)
    shared = {"interval_sec": INTERVAL_SEC, "timeout_ms": TIMEOUT_MS, "slow_ms": 10 * TIMEOUT_MS, "fail_threshold": 1}
    own: dict[str, Any]
    says = {"content_rules": [{"type": "text_contains", "value": READY.decode()}]}
    if kind == "ping" and not may_ping():
        kind = "tcp"
    if kind in JOBS:
        every, grace = JOBS[kind]
        own = {"type": "heartbeat", "interval_sec": every, "grace_sec": grace}
    elif kind in ("tcp", "tls"):
        own = {"type": "port", "url": f"{kind}://{host}:{ports[kind]}", **says}
    elif kind == "udp":
        own = {"url": f"udp://{host}:{ports['udp']}", **says}
    elif kind == "dns":
        own = {"url": f"dns://{host}:{ports['dns']}/{number}.quiet.example", "records": ["198.51.100.1"]}
    elif kind == "ping":
        own = {"url": f"icmp://{host}", "packets": 1}
    else:
        own = {"url": f"http://{host}:{ports['http']}/{number}"}
        if kind == "api":
            own["content_rules"] = [{"type": "json_field", "path": "state", "equals": READY.decode()}]
        elif kind != "scheduler":
            own |= says
    return {"type": kind, "name": f"{kind} {number}", **shared, **own}


def spread(watched: Sequence[Watched]) -> None:
    """Spread the checks over the interval, and let the heartbeats begin."""
    now = utc_now()
    for each in watched:
        if each.polled:
            due = now + timedelta(seconds=INTERVAL_SEC * (each.number * 0.618 % 1))
            MonitorState.objects.filter(pk=each.monitor_id).update(next_due_at=due, claimed_at=None)


def make_hostile(count: int) -> list[Hostile]:
    found = []
    for number in range(1, count + 1):
        user = create_account(email=f"hostile{number}@example.com", password=None, plan="free")
        found.append(Hostile(f"127.0.1.{number}", user))
    return found


def equip(row: Row, attackers: Sequence[Hostile], facts: dict[str, Any]) -> None:
    """Create what the row's accounts own, with new sessions: some requests refuse older ones."""
    for account in attackers:
        if account.user is not None:
            account.own["token"] = sign_in(account.user)
            account.own["cookie"] = cookie_of(account.user)
    if channels := row.own.get("channels"):
        kind, count = channels
        add_channels(attackers, f"http://127.0.0.1:{facts['ports'][kind]}/hook", count)
    monitors = [*row.own.get("monitors", ()), *[("heartbeat", "")] * row.own.get("silent", 0)]
    if monitors:
        given = [monitor_of(kind, target, number, facts) for number, (kind, target) in enumerate(monitors)]
        add_monitors(attackers, given)
    if history := row.own.get("history"):
        add_history(attackers, history)
    if row.own.get("silent"):
        fall_silent(attackers, seconds=SILENCE_SEC)


def add_monitors(accounts: Sequence[Hostile], given: Sequence[dict[str, Any]]) -> None:
    """Give each account these monitors, which are due at once, and their ids to its attacker."""
    drafts = []
    for account in accounts:
        assert account.user is not None
        user = account.user
        drafts += [
            Draft(user, None, complete({"name": f"Shop {n}", **one}, limits_at(None, user)))
            for n, one in enumerate(given)
        ]
    made = store_new(None, drafts, is_claimed=False, now=utc_now())
    for number, account in enumerate(accounts):
        own = made[number * len(given) : (number + 1) * len(given)]
        account.own.setdefault("monitors", []).extend(monitor.public_id for monitor in own)
        account.own.setdefault("keys", []).extend(monitor.pk for monitor in own)


def add_channels(accounts: Sequence[Hostile], url: str, count: int) -> None:
    """Give each account webhooks for all of its monitors, in place of those that it has."""
    for account in accounts:
        assert account.user is not None
        AlertChannel.objects.filter(owner=account.user).delete()
        given = {"kind": "webhook", "url": url, "topics": ["down", "recovered"]}
        first, _ = create_channel(Caller(account.user), given, now=utc_now())
        copied = [each.attname for each in AlertChannel._meta.concrete_fields if each.name not in ("id", "public_id")]
        rest = [AlertChannel(**{name: getattr(first, name) for name in copied}) for _ in range(count - 1)]
        made = [first, *AlertChannel.objects.bulk_create(rest)]
        account.own["channels"] = [channel.public_id for channel in made]


def add_page(account: Hostile) -> None:
    """Give an account a status page with a password."""
    assert account.user is not None
    page = {"name": "Locked", "slug": LOCKED_SLUG, "published": True, "password": PASSWORD}
    create_page(Caller(account.user), page, now=utc_now())


def add_history(accounts: Sequence[Hostile], rows: int) -> None:
    """Spread `rows` results over the monitors of the accounts, within today."""
    keys = [key for account in accounts for key in account.own["keys"]]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO checks_checkresult (monitor_id, checked_at, claim, latency_ms, verdict, detail)"
            " SELECT key, greatest(now() - number * interval '1 second', date_trunc('day', now(), 'UTC')), number, 20,"
            "        'up', repeat('x', 40)"
            "   FROM unnest(%s::bigint[]) AS key, generate_series(1, %s) AS number",
            [keys, max(1, rows // len(keys))],
        )


def fall_silent(accounts: Sequence[Hostile], seconds: float) -> None:
    """Let the deadlines of all heartbeats of these accounts pass in `seconds`."""
    keys = [key for account in accounts for key in account.own["keys"]]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE monitors_monitorstate AS state"
            "   SET status = 'up', status_since = now() - interval '1 day', fresh = false,"
            "       next_due_at = now() + %(wait)s * interval '1 second',"
            "       last_ping_at = now()"
            "           + (%(wait)s - interval_sec - (config->>'grace_sec')::int) * interval '1 second'"
            "  FROM monitors_monitor AS monitor WHERE monitor.id = monitor_id AND monitor_id = ANY(%(keys)s)",
            {"wait": seconds, "keys": keys},
        )


_THEIRS = "channel_id IN (SELECT id FROM alerts_alertchannel WHERE owner_id <> %(quiet)s)"
_CLEAR = {
    # Deleting thousands of monitors would take longer than a row.
    "monitors_monitor": "UPDATE {} SET enabled = false, owner_id = %(grave)s WHERE owner_id <> %(quiet)s",
    "monitors_monitorstate": """
        UPDATE {} SET next_due_at = NULL, slot_at = NULL, claimed_at = NULL, fault = NULL, fault_since = NULL
         WHERE monitor_id <> ALL(%(ids)s) AND next_due_at IS NOT NULL""",
    "monitors_statuschange": """
        UPDATE {} SET processed_at = now() WHERE processed_at IS NULL AND monitor_id <> ALL(%(ids)s)""",
    "incidents_incident": """
        UPDATE {} SET resolved_at = coalesce(resolved_at, now()), resolution = coalesce(resolution, 'deleted'),
                      announced_at = coalesce(announced_at, now()),
                      closing_announced_at = coalesce(closing_announced_at, now())
         WHERE monitor_id <> ALL(%(ids)s)
           AND (resolved_at IS NULL OR announced_at IS NULL OR closing_announced_at IS NULL)""",
    # The messages of one row must not count as a storm in the next. Senders may add items at the same time; a retry
    # deletes these too.
    "alerts_delivery": f"""
        WITH items AS (DELETE FROM alerts_deliveryitem WHERE {_THEIRS}),
             theirs AS (DELETE FROM {{}} WHERE {_THEIRS})
        UPDATE {{}} SET created_at = created_at - interval '2 minutes' WHERE NOT {_THEIRS}""",
    "monitors_pinggap": "DELETE FROM {}",
}


def clear(quiet: Quiet, grave: User, accounts: Sequence[Hostile]) -> None:
    """Disable everything that rows created, and reset throttles, turns and gap detection."""
    values = {"quiet": quiet.user.pk, "grave": grave.pk, "ids": quiet.ids}
    tables = set(connection.introspection.table_names())
    for table, statement in _CLEAR.items():
        if table in tables:
            retry(partial(_execute, statement.replace("{}", table), values))
    retry(AlertChannel.objects.exclude(owner=quiet.user).delete)
    retry(Location.objects.exclude(owner=None).delete)
    for account in accounts:
        account.own = {}
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as broker:
        for pattern in ("throttle:*", "probe-second:*"):
            if keys := list(broker.scan_iter(pattern, count=1_000)):
                broker.delete(*keys)


def _execute(statement: str, values: Mapping[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def retry(act: Callable[[], object]) -> None:
    """Retry if processes that still work on the rows cause a deadlock, or add some."""
    for left in reversed(range(20)):
        try:
            act()
        except (OperationalError, IntegrityError):
            if not left:
                raise
            time.sleep(0.2)
        else:
            return


def unsettled(quiet: Quiet, up: Mapping[int, bool]) -> Iterator[str]:
    """Yield the monitors of the quiet tenant that are late or differ from their targets."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT monitor_id, status, type <> 'heartbeat'"
            " AND CASE WHEN claimed_at IS NULL THEN next_due_at ELSE slot_at END < now() - interval '2 seconds'"
            "  FROM monitors_monitorstate JOIN monitors_monitor ON id = monitor_id WHERE monitor_id = ANY(%s)",
            [quiet.ids],
        )
        found = {monitor_id: (status, late) for monitor_id, status, late in cursor.fetchall()}
    if late := sum(late for _, late in found.values()):
        yield f"{late} checks are late"
    statuses = [(each, found[each.monitor_id][0]) for each in quiet.monitors]
    if wrong := [
        str(each) for each, status in statuses if (None if status is None else status != "down") != up[each.number]
    ]:
        yield f"wrong statuses: {', '.join(wrong[:3])}{' …' * (len(wrong) > 3)}"
    if changes := StatusChange.objects.filter(processed_at=None).count():
        yield f"{changes} changes are not processed"
    if waiting := Delivery.objects.filter(channel__owner=quiet.user, state__in=("gathering", "waiting")).count():
        yield f"{waiting} alerts are not delivered"


def wait_for(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
