"""The history moves between two real databases and back, also if the move is killed at any statement."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.conf import settings

from checks.results import moving
from checks.results.partitions import PACKED, REASONS, ROLLUPS
from core import metrics
from core.clock import BROKER
from tests.helpers import flush_broker

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YESTERDAY = NOW.replace(hour=0) - DAY
LONG_AGO = YESTERDAY - 20 * DAY
OF_DAY = "checks_packedresults_p20260212"
Rows = dict[str, list[tuple[Any, ...]]]


class Killed(Exception):
    pass


class Mortal(psycopg.Connection[Any]):
    """A connection that ends after some statements of both databases together."""

    left: int | None = None

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        if Mortal.left is not None:
            Mortal.left -= 1
            if Mortal.left < 0:
                raise Killed
        return super().execute(*args, **kwargs)


@pytest.fixture
def urls(migrated_database: str) -> Iterator[tuple[str, str]]:
    """Create the main and the history database, and return their addresses."""
    url = os.environ["DATABASE_URL"]
    names = [f"{name}_{os.getpid()}" for name in ("moving_main", "moving_history")]
    with psycopg.connect(url, autocommit=True) as server:
        for name in names:
            server.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_database}")
        main, history = (urlsplit(url)._replace(path=f"/{name}").geturl() for name in names)
        yield main, history
        for name in names:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def two(urls: tuple[str, str]) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Return connections to both, the main one with a history."""
    with Mortal.connect(urls[0], autocommit=True) as main, Mortal.connect(urls[1], autocommit=True) as history:
        fill(main)
        yield main, history
        Mortal.left = None


def fill(main: psycopg.Connection) -> None:
    """Store a merged day, hours of yesterday, reasons, and roll-ups of three months and of none."""
    for start, end in [
        (LONG_AGO, LONG_AGO + DAY),
        *((YESTERDAY + n * HOUR, YESTERDAY + (n + 1) * HOUR) for n in (3, 4)),
    ]:
        make(main, PACKED.table, PACKED.name(start, end), start, end)
        pack(main, start)
    for start in (LONG_AGO, YESTERDAY):
        make(main, REASONS.table, REASONS.name(start), start, start + DAY)
        main.execute(
            f"INSERT INTO {REASONS.table} SELECT n, %s, '\\x00ff', NULL FROM generate_series(1, 50) n",
            [start],
        )
    for start in (ROLLUPS.bounds(LONG_AGO)[0], ROLLUPS.bounds(YESTERDAY)[0]):
        make(main, ROLLUPS.table, ROLLUPS.name(start), *ROLLUPS.bounds(start))
    for at in (LONG_AGO, YESTERDAY, datetime(2019, 1, 1, tzinfo=UTC)):
        main.execute(
            f"INSERT INTO {ROLLUPS.table} (monitor_id, hour, latency_sum, up, slow, down, timed, latency_min)"
            " SELECT n, %s, n * 100, 58, 1, 1, 59, nullif(n, 7) FROM generate_series(1, 100) n",
            [at],
        )


def make(database: psycopg.Connection, table: str, name: str, start: datetime, end: datetime) -> None:
    span = f"FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
    database.execute(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES {span}")


def pack(database: psycopg.Connection, start: datetime, *, monitors: str = "1, 100", count: int = 60) -> None:
    database.execute(
        f"INSERT INTO {PACKED.table} (monitor_id, start, count, verdicts, data)"
        f" SELECT n, %s, %s, 3, convert_to(repeat('x', n), 'UTF8') FROM generate_series({monitors}) n",
        [start, count],
    )


def rows_of(database: psycopg.Connection) -> Rows:
    return {
        series.table: database.execute(f"SELECT * FROM {series.table} ORDER BY monitor_id, {series.column}").fetchall()
        for series in moving.MOVED
    }


def move(source: psycopg.Connection, target: psycopg.Connection, report: Callable[[str], object] = print) -> None:
    moving.Move(source, target, report).finish(lambda: None)


def leftovers(database: psycopg.Connection) -> list[Any]:
    return database.execute("SELECT relname FROM pg_class WHERE relname LIKE 'moving%'").fetchall()


NOTHING: Rows = {series.table: [] for series in moving.MOVED}


def test_there_and_back(two: tuple[psycopg.Connection, psycopg.Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAGES", 1)
    main, history = two
    main.execute(f"CREATE TABLE {PACKED.name(NOW, NOW + HOUR)} (LIKE {PACKED.table})")  # is being packed into
    before, plain = rows_of(main), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'checks_checkresult'::regclass"
    partitions = main.execute(plain).fetchall()
    move(main, history)
    assert (rows_of(main), rows_of(history)) == (NOTHING, before)
    assert moving.left_behind(main) == []
    assert main.execute("SELECT to_regclass(%s)", [PACKED.name(NOW, NOW + HOUR)]).fetchone() == (None,)
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = %s"
    [(index,)] = history.execute(indexes, [OF_DAY]).fetchall()
    assert "(monitor_id)" in index
    move(main, history)  # again
    move(history, main)
    assert (rows_of(main), rows_of(history)) == (before, NOTHING)
    assert main.execute(plain).fetchall() == partitions
    assert leftovers(main) == leftovers(history) == []


def test_what_was_copied_ahead_is_copied_again_only_if_it_changed(
    two: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    main, history = two
    lines: list[str] = []
    ahead = moving.Move(main, history, lines.append)
    ahead.copy_closed(NOW)
    closed = [f"{OF_DAY}: copied 100 rows", "checks_packedreasons_p20260212: copied 50 rows"]
    closed.append("checks_hourlyrollup_p202602: copied 100 rows")
    assert sorted(lines) == sorted(closed)
    assert rows_of(history) == NOTHING
    lines.clear()
    ahead.copy_closed(NOW)
    assert lines == []
    main.execute(f"UPDATE {PACKED.table} SET count = 61, data = 'late' WHERE monitor_id = 5 AND start = %s", [LONG_AGO])
    before = rows_of(main)
    move(main, history, lines.append)
    assert [line for line in lines if line in closed] == closed[:1]
    assert (rows_of(main), rows_of(history)) == (NOTHING, before)


def test_a_kill_at_any_statement_loses_nothing(two: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    main, history = two
    before = rows_of(main)
    kills = 0
    while True:
        Mortal.left = kills
        try:
            move(main, history)
            break
        except Killed:
            kills += 1
        finally:
            Mortal.left = None
        found, moved = rows_of(main), rows_of(history)
        for table, rows in before.items():
            assert {*found[table], *moved[table]} == {*rows}
            assert len(moved[table]) == len({*moved[table]})
    assert kills > 50
    assert (rows_of(main), rows_of(history)) == (NOTHING, before)
    assert leftovers(history) == []


def test_a_history_that_was_begun_in_both(two: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    """Processes were started with the second database before the move: each has some hours of a day and a month."""
    main, history = two
    before = rows_of(main)
    make(history, PACKED.table, PACKED.name(YESTERDAY), YESTERDAY, YESTERDAY + DAY)
    pack(history, YESTERDAY + 12 * HOUR)
    make(history, ROLLUPS.table, ROLLUPS.name(YESTERDAY), *ROLLUPS.bounds(YESTERDAY))
    rollup = f"INSERT INTO {ROLLUPS.table} SELECT 3, %s, 0, %s, 0, 0, 0"
    for at, up in [(YESTERDAY, 61), (YESTERDAY + HOUR, 1)]:
        history.execute(rollup, [at, up])
    move(main, history)
    found = rows_of(history)
    assert len(found[PACKED.table]) == len(before[PACKED.table]) + 100
    assert len(found[ROLLUPS.table]) == len(before[ROLLUPS.table]) + 1
    late = history.execute(f"SELECT up FROM {ROLLUPS.table} WHERE monitor_id = 3 AND hour = %s", [YESTERDAY])
    assert late.fetchone() == (61,)
    assert rows_of(main) == NOTHING


def test_different_results_of_one_time_stay_where_they_are(
    two: tuple[psycopg.Connection, psycopg.Connection],
) -> None:
    main, history = two
    make(history, PACKED.table, PACKED.name(YESTERDAY), YESTERDAY, YESTERDAY + DAY)
    pack(history, YESTERDAY, monitors="1, 1", count=9)  # the six hours that begin then
    before = rows_of(main)
    with pytest.raises(moving.MoveRefused, match=r"p2026030403 was not moved: \S+_p20260304 has other rows"):
        move(main, history)
    stay = [row for row in before[PACKED.table] if row[1] > YESTERDAY]
    assert rows_of(main) == NOTHING | {PACKED.table: stay}


def test_another_process_packs(urls: tuple[str, str]) -> None:
    with psycopg.connect(urls[0]) as packing, psycopg.connect(urls[0], autocommit=True) as lock:
        packing.execute("SELECT pg_advisory_xact_lock(hashtextextended('packing', 0))")
        with pytest.raises(moving.MoveRefused, match="stop all processes"), moving.locked(lock):
            pass


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_command(urls: tuple[str, str]) -> None:
    flush_broker()
    main, history = urls
    with psycopg.connect(main, autocommit=True) as database:
        fill(database)
        before = rows_of(database)
        given = {"DATABASE_URL": main, "HISTORY_DATABASE_URL": history}
        for arguments, last in {("--ahead",): "Copied.", (): "with HISTORY_DATABASE_URL."}.items():
            done = run("move_history", *arguments, **given)
            assert done.returncode == 0, done.stderr
            assert last in done.stdout.splitlines()[-1]
        assert rows_of(database) == NOTHING
        assert run("move_history", "--back", **given).returncode == 0
        assert rows_of(database) == before


@pytest.mark.parametrize(
    ("history", "code", "message"),
    [
        ("", 2, "HISTORY_DATABASE_URL is not set"),
        ("{main}", 2, "both addresses name the same database"),
        ("postgresql://127.0.0.1:1/none", 4, "a database does not answer"),
        ("{server}/postgres", 4, "a database is not migrated"),
    ],
)
def test_the_command_refuses(urls: tuple[str, str], history: str, code: int, message: str) -> None:
    flush_broker()
    main = urls[0]
    address = history.format(main=main, server=main.rpartition("/")[0])
    done = run("move_history", DATABASE_URL=main, HISTORY_DATABASE_URL=address)
    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_the_command_refuses_while_a_process_runs(urls: tuple[str, str]) -> None:
    flush_broker()
    main, history = urls
    with redis.Redis.from_url(settings.REDIS_URL or "") as broker:
        broker.hset(metrics.PROCESSES_KEY, "worker|other", f"{BROKER.time()}|0")
    done = run("move_history", DATABASE_URL=main, HISTORY_DATABASE_URL=history)
    flush_broker()
    assert done.returncode == 1
    assert "processes run, or ended less than 10 s ago: worker" in done.stderr


def test_migrate_migrates_both(urls: tuple[str, str]) -> None:
    main, history = urls
    with psycopg.connect(history, autocommit=True) as database:
        database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        done = run("migrate", "--verbosity", "0", DATABASE_URL=main, HISTORY_DATABASE_URL=history)
        assert done.returncode == 0, done.stderr
        assert moving.left_behind(database) == []
        assert rows_of(database) == NOTHING


def test_migrate_gives_no_new_monitor_an_id_of_the_history(urls: tuple[str, str]) -> None:
    def migrate(*given: str) -> int:
        """Return the id of the next monitor afterwards."""
        done = run("migrate", *given, "--verbosity", "0", DATABASE_URL=urls[0], HISTORY_DATABASE_URL=urls[1])
        assert done.returncode == 0, done.stderr
        with psycopg.connect(urls[0]) as main:
            [[found]] = main.execute("SELECT nextval('monitors_monitor_id_seq')")
        return int(found)

    first = migrate()
    with psycopg.connect(urls[1]) as history:
        make(history, PACKED.table, PACKED.name(YESTERDAY, YESTERDAY + DAY), YESTERDAY, YESTERDAY + DAY)
        pack(history, YESTERDAY, monitors="70, 77")
    assert migrate("--plan") == first + 1
    assert migrate("checks") == first + 2
    assert migrate() == 78
    assert migrate() == 79
