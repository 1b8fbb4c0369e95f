"""The audit of the packed past finds what is lost, doubled or changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from checks.results.models import HourlyRollup
from checks.results.partitions import PACKED, parts
from checks.results.store import NewResult, store_results
from tests.faults import past
from tests.faults.monitor_audit import Audit
from tests.helpers import restored_partitions

PASSED, OTHERS = 14, 3  # chunks of the first hours, and of a later one that stay late


@pytest.fixture
def recorded(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PAST_BEGAN", "PAST_FIRST"):
        monkeypatch.setenv(name, "")  # so that it is removed afterwards
    with restored_partitions():
        past.prepare()
        for chunk in range(1, PASSED):
            past._store(chunk)
        past.pack(past.first_moment() + timedelta(hours=3))
        for chunk in range(PASSED, PASSED + OTHERS):
            past._store(chunk)
        yield
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE faults_past")


def audited(log: Path) -> tuple[dict[str, int], dict[str, int]]:
    audit = Audit(0.0, 1.0, [], [])
    done = past.audit_past(audit, [log])
    return done, {kind: count for kind, count in audit.counts().items() if count}


def change(statement: str, *values: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        assert cursor.rowcount > 0


@pytest.mark.usefixtures("recorded")
@pytest.mark.django_db(transaction=True)
class TestAudit:
    def test_a_run_without_violations(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text("killed\nTraceback\nkilled\n")
        done, found = audited(log)
        assert found == {}
        each = 5 * len(past.MONITORS)
        assert done == {
            "results": (PASSED + OTHERS) * each, "late": OTHERS * each, "packed_meanwhile": PASSED * each, "kills": 2
        }  # fmt: skip

    def test_results_are_read_meanwhile(self, capsys: pytest.CaptureFixture[str]) -> None:
        past.record()
        assert capsys.readouterr().out == ""

    def test_an_error_of_a_process(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text(f"{past.VIOLATION}1 claims are twice read\n")
        assert audited(tmp_path / "log")[1] == {"lost_results": 1}

    def test_a_lost_row(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        name = PACKED.name(*parts(PACKED)[0])
        change(f"DELETE FROM {name} WHERE monitor_id = %s", past.MONITORS[0])
        past.read(past.MONITORS[0])
        assert f"{past.VIOLATION}60 claims" in capsys.readouterr().out
        assert audited(tmp_path / "log")[1]["lost_results"] == 60

    def test_a_result_that_is_stored_twice(self, tmp_path: Path) -> None:
        store_results(list(past.results_of_chunk(PASSED))[:1])  # before either is packed: then it would be recognized
        assert audited(tmp_path / "log")[1] == {"double_results": 1, "wrong_rollups": 1}

    def test_another_result(self, tmp_path: Path) -> None:
        (first, *_) = past.results_of_chunk(3)
        store_results([NewResult(first.monitor_id, 9_999, first.outcome)])
        assert audited(tmp_path / "log")[1] == {"changed_results": 1, "wrong_rollups": 1}

    def test_a_roll_up_of_other_results(self, tmp_path: Path) -> None:
        HourlyRollup.objects.filter(monitor_id=past.MONITORS[0], hour=past.first_moment()).update(up=0)
        assert audited(tmp_path / "log")[1] == {"wrong_rollups": 1}
