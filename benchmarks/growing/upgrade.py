"""The last migrations are undone and applied again, while the tables that they change are read and written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db import connection

from benchmarks.growing.cost import connect, timed
from benchmarks.growing.seeds import World

BEFORE = {
    "accounts": "0003_staff_from_groups",
    "alerts": "0004_monitor_tags",
    "incidents": "0004_monitor_tags",
    "monitors": "0014_index_recoveries",
    "projects": "0003_viewers",
}
"""The release before this one, without `checks`, whose last migration only creates tables, and moves rows when undone.

Migrations that need one of the undone ones are undone too."""
PAUSE_SEC = 0.01
# What the code before these migrations does with the tables. Each is one transaction.
_STATEMENTS = (
    "UPDATE monitors_monitorstate SET last_latency_ms = last_latency_ms WHERE monitor_id = %s",
    "UPDATE monitors_monitor SET name = name WHERE id = %s",
    "INSERT INTO checks_checkresult (monitor_id, checked_at, claim, verdict) VALUES (%s, now(), 0, 'up')",
    "UPDATE incidents_incident SET name = name WHERE id = %s",
    "UPDATE alerts_deliveryitem SET at = at WHERE id = %s",
    "UPDATE alerts_alertchannel SET name = name WHERE id = %s %% 100",
    "UPDATE alerts_delivery SET attempts = attempts WHERE id = %s",
    "UPDATE incidents_incidentevent SET text = text WHERE id = %s",
    "SELECT * FROM projects_project WHERE id = %s",
)


def measure_upgrade(world: World) -> dict[str, float]:
    """Return the CPU of `migrate` for each monitor, and how long the slowest of the other statements took."""
    for app, name in BEFORE.items():
        call_command("migrate", app, name, verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    with used(world) as longest:
        cost, _ = timed(lambda: call_command("migrate", verbosity=0), world.monitors)
    return {"migrate_us": round(cost, 1), "migrate_waited_s": round(longest[0], 2)}


@contextmanager
def used(world: World) -> Iterator[list[float]]:
    """Use the tables in a thread. Yield a list whose only number is the longest statement so far, in seconds."""
    found, over, opened = [0.0], threading.Event(), connect()

    def use() -> None:
        number = 0
        with opened as database:
            while not over.wait(PAUSE_SEC):
                number += 7919
                for statement in _STATEMENTS:
                    start = time.monotonic()
                    database.execute(statement, [world.first_monitor + number % world.monitors])
                    found[0] = max(found[0], time.monotonic() - start)

    user = threading.Thread(target=use)
    user.start()
    try:
        yield found
    finally:
        over.set()
        user.join()
