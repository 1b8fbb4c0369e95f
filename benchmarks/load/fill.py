"""The tenant of the benchmark and its monitors. Import it after Django is set up.

One statement copies a monitor that the product's own service has created, so 200,000 copies take seconds. They are
already up, and their due times are spread over the interval like those of older monitors. Table `bench_slot` stores the
first due time of each: slots do not drift, so the due times of all its checks follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection

from accounts.models import Plan
from accounts.services import create_account
from benchmarks.load.target import Target
from core.clock import utc_now
from monitors.models import Monitor
from monitors.services import create_monitor
from projects.access import Caller

EMAIL, PASSWORD = "bench@example.com", "a fine long password"
INTERVAL_SEC = GRACE_SEC = 60

# Multiples of the golden ratio, modulo one, fill an interval evenly for any number of them.
_COPY = """
    WITH made AS (
        INSERT INTO monitors_monitor (public_id, url, {columns})
        SELECT 'mon_' || md5(random()::text || number),
               replace(replace(%(url)s, 'ADDRESS', (%(addresses)s::text[])[1 + number %% %(count)s]),
                       'NUMBER', number::text),
               {columns}
          FROM monitors_monitor AS model, generate_series(1, %(more)s) AS number
         WHERE model.id = %(model)s
        RETURNING id
    ), first AS (
        INSERT INTO bench_slot (monitor_id, at)
        SELECT id, now() + %(wait)s * interval '1 second'
                 + %(spread)s * (id * 0.6180339887498949::float8 - floor(id * 0.6180339887498949::float8))
                 * interval '1 second'
          FROM made
        RETURNING monitor_id, at
    )
    INSERT INTO monitors_monitorstate
           (monitor_id, next_due_at, claim, applied_claim, status, status_since, fresh, failures, passes,
            last_checked_at, last_ping_at)
    SELECT monitor_id, at, 1, 1, 'up', now(), false, 0, 0, now(), CASE WHEN %(pinged)s THEN now() END
      FROM first
"""


class Fleet:
    """The monitors of the benchmark. More can be added while they are checked."""

    def __init__(self, target: Target, mix: Mapping[str, float]) -> None:
        """`mix` are the shares of the monitors by type; their sum is 1."""
        self._target = target
        Plan.objects.create(name="bench", min_interval_sec=INTERVAL_SEC, monitor_limit=10_000_000)
        caller = self._caller = Caller(create_account(email=EMAIL, password=PASSWORD, plan="bench"))
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE bench_slot (monitor_id bigint PRIMARY KEY, at timestamptz NOT NULL)")
        urls = {
            "http": f"http://ADDRESS:{target.port}/NUMBER",
            "port": f"tcp://ADDRESS:{target.port}",
            "ping": "icmp://ADDRESS",
            "dns": f"dns://127.0.0.1:{target.dns_port}/name-NUMBER.bench.example",
        }
        self._probed = [
            (self._model(caller, type=name, url=urls[name].replace("ADDRESS", target.addresses[0])), urls[name], share)
            for name, share in mix.items()
        ]
        self._heartbeat = self._model(caller, type="heartbeat", interval_sec=INTERVAL_SEC, grace_sec=GRACE_SEC)
        self.monitors = 0

    def add_monitors(self, more: int) -> None:
        for model, url, share in self._probed:
            self._add(model, round(more * share), url=url, spread=INTERVAL_SEC)
            self.monitors += round(more * share)

    def add_over_tls(self, more: int) -> None:
        url = f"https://ADDRESS:{self._target.https_port}/NUMBER"
        model = self._model(self._caller, type="http", url=url.replace("ADDRESS", self._target.addresses[0]))
        self._add(model, more, url=url, spread=INTERVAL_SEC)
        self.monitors += more

    def drop_monitors(self, fewer: int) -> None:
        """Stop checking `fewer` monitors of any type. Checks in flight are still recorded."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE monitors_monitorstate AS state SET next_due_at = NULL, claimed_at = NULL"
                "  FROM (SELECT monitor_id FROM monitors_monitorstate JOIN monitors_monitor AS monitor"
                "            ON monitor.id = monitor_id WHERE url <> '' AND next_due_at IS NOT NULL"
                "         ORDER BY md5(monitor_id::text) LIMIT %s) AS dropped"
                " WHERE state.monitor_id = dropped.monitor_id",
                [fewer],
            )
        self.monitors -= fewer

    def add_heartbeats(self, more: int) -> list[str]:
        """Create heartbeats and return their ids. A ping of each is due within the interval."""
        self._add(self._heartbeat, more, wait=INTERVAL_SEC + GRACE_SEC, pinged=True)
        found = Monitor.objects.filter(type=self._heartbeat.type).exclude(pk=self._heartbeat.pk)
        return list(found.order_by("pk").values_list("public_id", flat=True))

    def _model(self, caller: Caller, **given: Any) -> Monitor:
        model = create_monitor(caller, given, now=utc_now())
        type(model).objects.filter(pk=model.pk).update(enabled=True)
        model.state.delete()  # the model is only copied, never checked
        return model

    def _add(
        self, model: Monitor, more: int, *, url: str = "", wait: int = 0, spread: int = 0, pinged: bool = False
    ) -> None:
        names = [each.column for each in Monitor._meta.local_concrete_fields]
        columns = ", ".join(name for name in names if name and name not in {"id", "public_id", "url"})
        with connection.cursor() as cursor:
            cursor.execute(
                _COPY.format(columns=columns),
                {
                    "addresses": list(self._target.addresses),
                    "count": len(self._target.addresses),
                    "url": url,
                    "more": more,
                    "model": model.pk,
                    "wait": wait,
                    "spread": spread,
                    "pinged": pinged,
                },
            )
            cursor.execute("ANALYZE monitors_monitor, monitors_monitorstate")
