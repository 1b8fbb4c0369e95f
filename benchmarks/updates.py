"""Compare storage settings of the table of states over the updates of a simulated week.

    python benchmarks/updates.py [--monitors 500] [--interval 300] [--days 7] [--settings fillfactor=50 ...]

On private servers in a temporary folder. Each variant starts with newly written states, and claims and records each
check of the week with the product's own functions, a simulated minute at a time. As a server would, it vacuums the
table in each simulated minute in which its dead rows exceed the threshold of autovacuum, and writes a checkpoint every
five. The variants are `none` and each of `--settings`.

The last line is one JSON object. For each variant: bytes of the table and of its indexes for each monitor, and how many
times those of the start they are; the shares of updates that were HOT, and that went to another page; bytes of WAL for
each check, its result included, and the full pages among them; and vacuums. Exits 1 if the table or the indexes of a
variant exceed MOST_GROWTH times their start.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from devserver.data_folder import ROLE, SUPERUSER, load_or_create_secrets
from devserver.session import embedded_servers

TABLE = "monitors_monitorstate"
MINUTE = timedelta(minutes=1)
CHECKPOINT_MINUTES = 5
MOST_GROWTH = 5.0
_FIGURES = f"""
    SELECT pg_relation_size('{TABLE}'), pg_indexes_size('{TABLE}'), n_tup_upd, n_tup_hot_upd, n_tup_newpage_upd,
           vacuum_count, pg_current_wal_insert_lsn() - '0/0', (SELECT wal_fpi FROM pg_stat_wal)
      FROM pg_stat_user_tables
     WHERE relname = '{TABLE}'
"""
_NAMES = ("table", "indexes", "updates", "hot", "moved", "vacuums", "wal", "full_pages")
_IS_VACUUM_DUE = f"""
    SELECT pg_stat_get_dead_tuples(oid) > coalesce(options.threshold, 50) + coalesce(options.scale, 0.2) * reltuples
      FROM pg_class,
           LATERAL (
            SELECT max(option_value::float8) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold,
                   max(option_value::float8) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS scale
              FROM pg_options_to_table(reloptions)
           ) AS options
     WHERE oid = '{TABLE}'::regclass
"""


def store(total: int, *, interval_sec: int) -> None:
    """Add monitors up to `total`, spread over the interval, each checked once."""
    from django.db import connection

    from monitors.configuration import build, config_columns
    from monitors.models import Monitor

    template = Monitor.objects.order_by("pk").first()
    assert template is not None
    columns = [str(field.column) for field in Monitor._meta.concrete_fields if field.column not in {"id", "public_id"}]
    assert set(config_columns(build({"interval_sec": 60}))) <= set(columns)
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO monitors_monitor (public_id, {names}) "
            f"SELECT 'mon_' || number, {names} FROM monitors_monitor, "
            "generate_series((SELECT count(*) FROM monitors_monitor), %s - 1) AS number WHERE id = %s",
            [total, template.pk],
        )
        cursor.execute(
            """
            INSERT INTO monitors_monitorstate
                   (monitor_id, next_due_at, slot_at, claim, applied_claim, fresh, failures, passes, status,
                    status_since, last_checked_at, last_latency_ms)
            SELECT id, now() + (id %% %s) * interval '1 second', now(), 1, 1, false, 0, 0, 'up', now(), now(), 20
              FROM monitors_monitor
            ON CONFLICT DO NOTHING
            """,
            [interval_sec],
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE monitors_monitorstate, monitors_monitor")


def one(statement: str) -> tuple[Any, ...]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def run(*statements: str) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def figures() -> dict[str, int]:
    run("SELECT pg_stat_force_next_flush()")
    return dict(zip(_NAMES, map(int, one(_FIGURES)), strict=True))


def check_all(minutes: int) -> int:
    """Claim and record the checks of `minutes` simulated minutes. Return their number."""
    from checks.spec import CheckOutcome, Verdict
    from core.clock import utc_now
    from monitors.checking.runner import MOST_AT_ONCE
    from monitors.recording import record
    from monitors.recording.batch import CheckRecord
    from monitors.scheduling import claim_due

    start = utc_now()
    checks = 0
    for minute in range(1, minutes + 1):
        now = start + minute * MINUTE
        outcome = CheckOutcome(Verdict.UP, now, latency_ms=20, connect_ms=5, ttfb_ms=19, http_status=200)
        while claims := claim_due(now, limit=MOST_AT_ONCE):
            record([CheckRecord(*claim.key, claim.config_version, outcome) for claim in claims], now=now)
            checks += len(claims)
        run("SELECT pg_stat_force_next_flush()")
        if one(_IS_VACUUM_DUE)[0]:
            run(f"VACUUM {TABLE}")
        if minute % CHECKPOINT_MINUTES == 0:
            run("CHECKPOINT")
    return checks


def measure(settings: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a week with these settings of the table."""
    from monitors.models import Monitor

    existing = one(f"SELECT string_agg(split_part(each, '=', 1), ', ') FROM pg_class, unnest(reloptions) AS each"
                   f" WHERE oid = '{TABLE}'::regclass")[0]  # fmt: skip
    if existing:
        run(f"ALTER TABLE {TABLE} RESET ({existing})")
    if settings:
        run(f"ALTER TABLE {TABLE} SET ({settings})")
    run(f"TRUNCATE {TABLE}, checks_checkresult")
    store(options.monitors, interval_sec=options.interval)
    assert Monitor.objects.count() == options.monitors
    before = figures()
    checks = check_all(round(options.days * 1440))
    after = figures()
    spent = {name: after[name] - before[name] for name in _NAMES}
    assert spent["updates"] == 2 * checks > 0
    found = {
        "table_bytes_per_monitor": after["table"] / options.monitors,
        "index_bytes_per_monitor": after["indexes"] / options.monitors,
        "table_growth": after["table"] / before["table"],
        "index_growth": after["indexes"] / before["indexes"],
        "hot_share": spent["hot"] / spent["updates"],
        "moved_share": spent["moved"] / spent["updates"],
        "wal_bytes_per_check": spent["wal"] / checks,
        "full_pages_per_check": spent["full_pages"] / checks,
    }
    return {name: round(value, 3) for name, value in found.items()} | {"vacuums": spent["vacuums"], "checks": checks}


def compare(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from accounts.models import Plan
    from accounts.services import create_account
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.update(monitor_limit=10_000_000)
    owner = create_account(email="many@example.com", password="a fine long one", plan="pro")
    draft = {"url": "https://shop.example/health", "interval_sec": options.interval}
    create_monitor(Caller(owner), draft, now=utc_now())
    found = {}
    for settings in ("", *options.settings):
        found[settings or "none"] = measure(settings, options)
        print(f"{settings or 'none'}: {found[settings or 'none']}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=500)
    parser.add_argument("--interval", type=int, default=300, help="seconds between two checks of a monitor")
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--settings", nargs="*", default=["fillfactor=50"])
    options = parser.parse_args()
    server = {"autovacuum": "off", "checkpoint_timeout": "1d", "max_wal_size": "100GB", "min_wal_size": "80MB"}
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as name:
        folder = Path(name)
        with embedded_servers(folder, postgres_settings={**server, "fsync": "off"}) as servers:
            os.environ.update(
                load_or_create_secrets(folder),
                DATA_DIR=str(folder),
                DATABASE_URL=servers.database_url,
                REDIS_URL=servers.redis_url,
                DJANGO_SETTINGS_MODULE="config.settings",
            )
            with psycopg.connect(servers.database_url.replace(f"//{ROLE}@", f"//{SUPERUSER}@")) as database:
                database.execute(f"GRANT pg_checkpoint TO {ROLE}")
            found = compare(options)
            from django.db import connection

            connection.close()
    good = all(each[name] <= MOST_GROWTH for each in found.values() for name in ("table_growth", "index_growth"))
    print(json.dumps(found | {"goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
