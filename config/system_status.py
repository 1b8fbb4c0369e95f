"""`/system`: the status of the whole deployment for staff, and the problems that need attention.

Each source is queried on its own with a timeout, so that the page shows the others if one does not answer.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import psycopg
import redis
from django.db import DEFAULT_DB_ALIAS
from django.http import Http404, HttpResponse
from psycopg.rows import dict_row, namedtuple_row

from alerts.outbox import oldest_alert
from checks.agent_protocol import OFFLINE_SEC, PROTOCOL
from checks.probes.ping.rights import HOW_TO_ALLOW
from checks.results.database import is_separate
from checks.results.hours import PLAIN_FOR
from checks.results.partitions import PACKS_FROM, RESULTS, SERIES, Series
from config.health import OK, run_checks
from config.history import PATIENCE_SEC
from config.metrics import MOST_DUE, processes
from config.routing import QUEUES
from core.db import separate_connection
from core.metrics import ProcessReports, read_levels
from core.postgresql import HISTORY
from core.templatetags.pulsekeeper import duration
from core.text import counted
from core.version import product_version
from dashboard.pages import PageRequest, navigation_entries, read_only, render_page
from locations.agents import is_accepted
from locations.models import DEFAULT
from monitors import metrics
from monitors.agents.leases import BEHIND
from monitors.checking.own_network import silent_servers
from monitors.heartbeats.canary import CanaryStatus, canary_status
from monitors.scheduling.backlog import Backlog, backlog, queued
from monitors.stale import StaleGroup, count_stale

logger = logging.getLogger(__name__)

MOST_COUNTED = 10_000
TABLES, LOCATIONS = 12, 100
"""How many are listed. Shared locations come first."""

# Thresholds of problems, the same as those for alarms in docs/operate/metrics.md.
MAX_LAG = timedelta(seconds=10)
MOST_ALERT_LAG = timedelta(seconds=30)
LEAST_AHEAD = timedelta(days=2)
MOST_ROLLUP_AGE = timedelta(hours=3)
MOST_PACKED_AGE = timedelta(hours=27)
# A single failing receiver is its owner's problem. Several, while no alert is delivered, suggest a network problem.
FEWEST_FAILING = 2
NOTHING_SENT_FOR = timedelta(minutes=10)


def _count(rows: str) -> str:
    return f"(SELECT count(*) FROM (SELECT FROM {rows} LIMIT {MOST_COUNTED}) AS found)"  # noqa: S608


_FAILING_CHANNELS = """
    alerts_alertchannel AS channel
     WHERE channel.failures > 0
       AND EXISTS (SELECT FROM alerts_delivery AS delivery
                    WHERE delivery.channel_id = channel.id AND delivery.state = 'waiting')
"""
_OUTDATED = f"""
    locations_agent AS agent JOIN locations_location AS location ON location.id = agent.location_id
     WHERE location.owner_id IS NOT NULL AND agent.protocol < {PROTOCOL}
"""
# Most counts read only the start of a partial index.
_COUNTS = f"""
    SELECT {_count("alerts_delivery WHERE state = 'dead'")} AS dead_deliveries,
           {_count("alerts_delivery WHERE state IN ('gathering', 'waiting')")} AS waiting_deliveries,
           {_count("statuspages_pagemail WHERE state = 'dead'")} AS dead_mails,
           {_count("statuspages_pagemail WHERE state = 'waiting'")} AS waiting_mails,
           {_count("checks_deletedmonitor")} AS deleted_monitors,
           {_count(_FAILING_CHANNELS)} AS failing_channels,
           {_count("locations_location WHERE offline_since IS NOT NULL")} AS private_offline,
           {_count(_OUTDATED)} AS private_outdated,
           (SELECT max(last_sent_at) FROM alerts_alertchannel) AS last_sent_at,
           (SELECT rolled_until FROM checks_rollupprogress) AS rolled_until,
           (SELECT packed_until FROM checks_rollupprogress) AS packed_until
"""  # noqa: S608 - our own conditions
# Partitions count toward their table. Row counts are estimates of the planner.
_TABLES = """
    SELECT coalesce(pg_partition_root(oid), oid)::regclass::text AS name,
           sum(pg_total_relation_size(oid))::bigint AS bytes,
           sum(greatest(reltuples, 0))::bigint AS rows
      FROM pg_class
     WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
     GROUP BY 1
     ORDER BY 2 DESC
     LIMIT %(tables)s
"""
_LOCATIONS = """
    SELECT location.public_id AS id, location.name, location.owner_id IS NOT NULL AS is_private,
           EXISTS (SELECT FROM monitors_monitor AS monitor
                    WHERE monitor.locations @> jsonb_build_array(location.public_id) AND monitor.enabled) AS is_named,
           coalesce(behind.monitors, 0) AS postponed,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'name', agent.name, 'version', agent.version, 'protocol', agent.protocol,
                       'checks_per_min', agent.checks_per_min, 'lag_ms', agent.lag_ms,
                       'is_online', agent.last_seen_at > %(alive_since)s AND NOT agent.network_down
                   ) ORDER BY agent.name, agent.id), '[]')
              FROM locations_agent AS agent WHERE agent.location_id = location.id) AS agents
      FROM locations_location AS location
      LEFT JOIN (
            SELECT agent.location_id, count(*) AS monitors
              FROM monitors_monitorstate AS state
              JOIN locations_agent AS agent ON agent.id = state.agent_id
             WHERE state.fault_since IS NOT NULL AND state.fault = %(behind)s
             GROUP BY 1
           ) AS behind ON behind.location_id = location.id
     WHERE location.public_id <> %(default)s
     ORDER BY is_private, location.id
     LIMIT %(most)s
"""
_PARTS = """
    SELECT part.relname FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
     WHERE inhparent = to_regclass(%(table)s) AND part.relname <> %(default)s
"""


class AgentStatus(msgspec.Struct, frozen=True):
    """An agent. `is_online` is None before its first sign of life."""

    name: str
    version: str
    protocol: int
    checks_per_min: int
    lag_ms: int | None
    is_online: bool | None


_AGENTS = msgspec.json.Decoder(list[AgentStatus])


@dataclass(frozen=True, slots=True)
class LocationStatus:
    """A location with agents. `is_named`: active monitors are checked from it. `postponed`: for lack of agents."""

    id: str
    name: str
    is_private: bool
    is_named: bool
    postponed: int
    agents: Sequence[AgentStatus]

    @property
    def is_online(self) -> bool:
        return any(agent.is_online for agent in self.agents)

    def problems(self) -> Iterator[str]:
        """Yield what the operator has to do. The owner of a private location is notified of its problems."""
        if self.is_private or not self.is_named:
            return
        if not self.is_online:
            why = "none of its agents is online" if self.agents else "no agent has joined"
            yield f"The location {self.name} is offline, and checks nothing: {why}."
        if refused := [agent.name for agent in self.agents if not is_accepted(agent.protocol)]:
            yield f"Agents of {self.name} are too old for this server: update or revoke {', '.join(refused)}."
        if self.postponed:
            checks = counted(self.postponed, "check")
            yield f"The agents of {self.name} are behind, and {checks} had to wait: connect another agent."
        others = [agent for agent in self.agents if agent.is_online and agent.version != product_version()]
        if names := [f"{agent.name} ({agent.version})" for agent in others if agent.name not in refused]:
            yield f"Agents of {self.name} do not have version {product_version()}: update {', '.join(names)}."


@dataclass(frozen=True, slots=True)
class Storage:
    """The size of a database and of its largest tables.

    `ahead` is how far in the future partitions exist, by table.
    """

    bytes: int
    tables: Sequence[NamedTuple]
    ahead: Mapping[str, timedelta | None]


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The status of the main database. Counts stop at MOST_COUNTED.

    `packs_from` is when packing begins, if that is in the future. `unpacked` is how much time the results cover that
    should be packed by now, or None.

    `failing_channels` counts channels with waiting messages whose last attempt failed. `private_offline` are private
    locations with monitors, `private_outdated` agents of such locations that speak an older version of the protocol.
    """

    backlog: Backlog
    stale: Sequence[StaleGroup]
    canary: CanaryStatus | None
    alert_since: datetime | None
    dead_deliveries: int
    dead_mails: int
    waiting_mails: int
    waiting_deliveries: int
    deleted_monitors: int
    rolled_until: datetime | None
    packed_until: datetime | None
    packs_from: datetime | None
    unpacked: timedelta | None
    failing_channels: int
    private_offline: int
    private_outdated: int
    last_sent_at: datetime | None
    storage: Storage
    locations: Sequence[LocationStatus]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The status of the broker: waiting messages by queue, checks in flight, and the processes of each kind.

    `without_pings` is the number of workers that may not send pings. `silent_servers` are those of
    CONNECTIVITY_TARGETS that have never answered a process.
    """

    queues: Mapping[str, int]
    in_flight: int
    without_pings: int
    silent_servers: Sequence[str]
    processes: Mapping[str, ProcessReports]


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """The status of all sources. A source that did not answer is None.

    `checks` are those of /readyz. `history` is None too if it is in the main database. `mail` is the reason why mail
    cannot be sent.
    """

    checks: Mapping[str, str]
    database: DatabaseStatus | None
    history: Storage | None
    broker: BrokerStatus | None
    mail: str | None


@read_only
def health_page(request: PageRequest) -> HttpResponse:
    if not request.caller.user.is_staff:
        raise Http404
    now = request.now
    status = system_status(now=now)
    database = status.database
    return render_page(
        request,
        "system",
        system=status,
        problems=list(find_problems(status, now=now)),
        most_counted=MOST_COUNTED,
        lag=None if database is None else _since(database.backlog.oldest_due_at, now),
        tick_age=None if database is None else _since(database.backlog.last_tick_at, now),
        alert_lag=None if database is None else _since(database.alert_since, now),
        # Counting incidents would wait for a slow database.
        navigation=navigation_entries(open_incidents=0),
    )


def find_problems(status: SystemStatus, *, now: datetime) -> Iterator[str]:
    """Yield the problems that need attention, with their consequences."""
    names = defaultdict(list)
    for name, problem in status.checks.items():
        if problem != OK and name != "locations":  # they are named below
            names[problem].append(name)
    yield from (f"{', '.join(found).capitalize()}: {problem}." for problem, found in names.items())
    if status.mail is not None:
        yield f"Alerts by e-mail are not delivered. {status.mail}"
    if status.database is None:
        yield f"Monitors, alerts and storage are unknown: the database did not answer within {PATIENCE_SEC} s."
    else:
        yield from _database_problems(status.database, now=now)
    storages = [status.history, None if status.database is None else status.database.storage]
    for table, ahead in ((table, ahead) for storage in storages if storage for table, ahead in storage.ahead.items()):
        if ahead is None or ahead < LEAST_AHEAD:
            yield f"{table} has no partitions for the coming days: the task checks.tasks.keep_partitions does not run."
    if status.broker is not None:
        yield from _broker_problems(status.broker)


def _database_problems(database: DatabaseStatus, *, now: datetime) -> Iterator[str]:
    lag, alert_lag = _since(database.backlog.oldest_due_at, now), _since(database.alert_since, now)
    if lag > MAX_LAG:
        yield f"The oldest due monitor has waited for {duration(lag)}: workers do not keep up, or none runs."
    if database.backlog.pings_missing_since is not None:
        missing = duration(_since(database.backlog.pings_missing_since, now))
        yield f"Pings have not reached Pulsekeeper for {missing}, and missed deadlines of heartbeats are held back."
    if database.canary is not None:
        yield from (f"{problem[0].upper()}{problem[1:]}." for problem in database.canary.problems(now))
    if alert_lag > MOST_ALERT_LAG:
        yield f"The oldest alert has waited for {duration(alert_lag)}: does the process “interactive” run?"
    silent = database.last_sent_at is None or now - database.last_sent_at > NOTHING_SENT_FOR
    if database.failing_channels >= FEWEST_FAILING and silent:
        yield (
            f"Alerts to {database.failing_channels} channels fail and none was delivered in the last "
            f"{duration(NOTHING_SENT_FOR)}: can the process “interactive” reach the mail server and the internet?"
        )
    if database.dead_deliveries:
        yield "Alerts were given up: look at the dead deliveries, and replay them when their cause is gone."
    for location in database.locations:
        yield from location.problems()
    if database.rolled_until is not None and now - database.rolled_until > MOST_ROLLUP_AGE:
        yield "The hourly roll-ups are behind: the task checks.tasks.roll_up does not run."
    if database.packed_until is not None and now - database.packed_until > MOST_PACKED_AGE:
        age = duration(now - database.packed_until)
        yield f"Results of the last {age} are not packed: after an upgrade wait, otherwise checks.tasks.pack fails."


def _broker_problems(broker: BrokerStatus) -> Iterator[str]:
    if missing := [kind for kind, found in broker.processes.items() if not found.alive]:
        yield f"No process reports as {', '.join(missing)}."
    if count := broker.without_pings:
        who = counted(count, "worker")
        yield f"{who} may not send pings, and ping monitors stay unchecked there. For each worker: {HOW_TO_ALLOW}."


def _since(moment: datetime | None, now: datetime) -> timedelta:
    return timedelta() if moment is None else max(timedelta(), now - moment)


def system_status(*, now: datetime) -> SystemStatus:
    """Query all sources in parallel."""
    with ThreadPoolExecutor(max_workers=5) as pool:
        checks, database = pool.submit(run_checks), pool.submit(_database_status, now)
        history = pool.submit(_history_status, now)
        broker, mail = pool.submit(_broker_status), pool.submit(_mail_problem)
        return SystemStatus(checks.result(), database.result(), history.result(), broker.result(), mail.result())


def _mail_problem() -> str | None:
    # Imported here, so that the web process loads the sender only for this page.
    from notifications.smtp import reach_server

    return reach_server(PATIENCE_SEC)


def _database_status(now: datetime) -> DatabaseStatus | None:
    try:
        with separate_connection(patience_sec=PATIENCE_SEC) as database:
            waiting = backlog(database, now=now, most=MOST_DUE)
            alert = oldest_alert(database, now=now)
            stale = count_stale(database, now=now, most=MOST_COUNTED)
            canary = canary_status(database)
            with database.cursor(row_factory=dict_row) as cursor:
                counts: dict[str, Any] = cursor.execute(_COUNTS).fetchall()[0]
                alive_since = now - timedelta(seconds=OFFLINE_SEC)
                places = {"alive_since": alive_since, "default": DEFAULT, "most": LOCATIONS, "behind": BEHIND}
                locations = [
                    LocationStatus(**row | {"agents": _AGENTS.decode(row["agents"])})
                    for row in cursor.execute(_LOCATIONS, places)
                ]
            storage = _storage(database, DEFAULT_DB_ALIAS, now)
            (packs_from,) = database.execute(PACKS_FROM).fetchone() or (now,)
            # Without any result, nothing is rolled up, and nothing packed.
            may_pack = packs_from <= now and counts["rolled_until"] is not None
            unpacked = _unpacked(database, now) if may_pack else None
    except psycopg.Error as error:
        logger.warning("health page: cannot query the database: %s", error)
        return None
    return DatabaseStatus(
        backlog=waiting,
        stale=stale,
        canary=canary,
        alert_since=alert,
        storage=storage,
        locations=locations,
        packs_from=packs_from if packs_from > now else None,
        unpacked=unpacked,
        **counts,
    )


def _history_status(now: datetime) -> Storage | None:
    if not is_separate():
        return None
    try:
        with separate_connection(patience_sec=PATIENCE_SEC, using=HISTORY) as database:
            return _storage(database, HISTORY, now)
    except psycopg.Error as error:
        logger.warning("health page: cannot query the history database: %s", error)
        return None


def _storage(database: psycopg.Connection, alias: str, now: datetime) -> Storage:
    with database.cursor(row_factory=namedtuple_row) as named:
        tables = named.execute(_TABLES, {"tables": TABLES}).fetchall()
    [(size,)] = database.execute("SELECT pg_database_size(current_database())").fetchall()
    made_ahead = [series for series in SERIES if series.ahead and series.alias == alias]
    return Storage(size, tables, {series.table: _ahead(database, series, now) for series in made_ahead})


def _unpacked(database: psycopg.Connection, now: datetime) -> timedelta | None:
    """Return how much time the partitions of results cover that should be packed by now, or None."""
    rows = database.execute(_PARTS, {"table": RESULTS.table, "default": RESULTS.default}).fetchall()
    spans = [RESULTS.bounds_of(name) for (name,) in rows]
    due = [end - start for start, end in spans if end <= now - PLAIN_FOR]
    return sum(due, timedelta()) or None


def _ahead(database: psycopg.Connection, series: Series, now: datetime) -> timedelta | None:
    """Return how far in the future partitions exist, or None without partitions."""
    rows = database.execute(_PARTS, {"table": series.table, "default": series.default}).fetchall()
    ends = [series.bounds_of(name)[1] for (name,) in rows]
    return max(ends) - now if ends else None


def _broker_status() -> BrokerStatus | None:
    try:
        queues = {queue: queued(queue) for queue in QUEUES}
        levels = read_levels()
        in_flight, without_pings = (
            int(levels.get(level.name, 0)) for level in (metrics.IN_FLIGHT, metrics.WITHOUT_PINGS)
        )
        return BrokerStatus(queues, in_flight, without_pings, silent_servers(levels), processes())
    except redis.RedisError as error:
        logger.warning("health page: cannot query the broker: %s", error)
        return None
