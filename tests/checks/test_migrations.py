"""Results survive the way into partitions, and the way back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from checks.partitions import RESULTS
from checks.results import store_results
from checks.spec import Verdict
from core.clock import utc_now
from tests.makers import NOON, outcome

BEFORE, AFTER = [("checks", "0002_evidence")], [("checks", "0005_deleted_monitors")]
COLUMNS = "monitor_id, claim, checked_at, verdict, latency_ms, http_status, reason_code, detail, evidence"


def migrate(to: list[tuple[str, str]]) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(to)


def rows() -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COLUMNS} FROM checks_checkresult ORDER BY monitor_id, claim")
        return list(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_there_and_back_again() -> None:
    latest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    moments = [NOON, utc_now(), utc_now() - timedelta(days=3), utc_now() + timedelta(days=400)]
    store_results(
        [
            (7, claim, outcome(verdict, at=at))
            for claim, at in enumerate(moments)
            for verdict in ([Verdict.UP, Verdict.DOWN][claim % 2],)
        ]
    )
    stored = rows()
    assert len(stored) == 4
    try:
        migrate(BEFORE)
        assert rows() == stored
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict) VALUES (9, 1, %s, 'up')",
                [NOON],
            )
            cursor.execute("SELECT count(DISTINCT id) FROM checks_checkresult")
            assert cursor.fetchone() == (5,)
        migrate(AFTER)
        assert rows()[:4] == stored
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT tableoid::regclass::text FROM checks_checkresult ORDER BY monitor_id, claim"
            )
            parts = [name for (name,) in cursor.fetchall()]
        days = [RESULTS.name(RESULTS.bounds(at)[0]) for at in moments]
        assert parts == [RESULTS.default, days[1], days[2], RESULTS.default, RESULTS.default]
    finally:
        migrate(latest)
