"""Queues: every task has one, a task without one is an error when it is run or sent, and the Procfile serves all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from celery.signals import task_success
from honcho.environ import parse_procfile

from config import system_checks
from config.celery import app
from config.routing import QUEUES, ROUTES, UnroutedTask, queue_of, unrouted
from tests.helpers import flush_broker
from tests.processes.waiting import until

ROOT = Path(__file__).parents[1]
PROCFILE = ROOT / "Procfile"

# Start a process of Celery as in the Procfile, with an additional task or entry of beat, and without a broker.
UNROUTED = """
import sys
from config.{module} import app
{change}
app.start(sys.argv[1:])
"""
TASK = '@app.task(name="shop.tasks.sell")\ndef sell(): pass'
ENTRY = 'app.conf.beat_schedule["sell"] = {"task": "shop.tasks.sell", "schedule": 1.0}'
WORKER = ["worker", "--pool", "threads", "--queues", "dispatch"]
BEAT = ["beat", "--pidfile="]


@pytest.mark.parametrize(
    ("module", "change", "command"), [("celery", TASK, WORKER), ("beat", ENTRY, BEAT)], ids=["worker", "beat"]
)
def test_a_process_does_not_start_with_an_unrouted_task(module: str, change: str, command: list[str]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            UNROUTED.format(module=module, change=change),
            *command,
        ],
        cwd=ROOT,
        env=os.environ | {"REDIS_URL": "redis://127.0.0.1:1/0", "CELERY_SKIP_CHECKS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "No queue in config/routing.py for: shop.tasks.sell." in done.stderr


def test_an_unrouted_task_cannot_be_sent_and_is_an_error_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROUTES, "alerts.tasks.*")
    with pytest.raises(UnroutedTask):
        app.send_task("alerts.tasks.tick")
    said = system_checks.check_tasks_have_queues()
    assert {message.id for message in said} == {"pulsekeeper.E004"}
    assert "alerts.tasks.tick has no queue." in {message.msg for message in said}


def test_every_task_and_every_entry_of_beat_has_a_queue_that_a_process_serves() -> None:
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert len(scheduled) > 10
    assert unrouted(scheduled | set(app.tasks)) == []
    served = {
        name: found[1].split(",")
        for name, line in parse_procfile(PROCFILE.read_text()).processes.items()
        if (found := re.search(r"--queues (\S+)", line))
    }
    assert sorted(queue for queues in served.values() for queue in queues) == sorted(QUEUES)
    assert set(ROUTES.values()) == set(QUEUES)
    # These send webhooks and e-mails: no other process can reach receivers.
    sending = {task for task in app.tasks if task.startswith(("alerts.", "statuspages."))}
    assert len(sending) > 4
    assert {queue_of(task) for task in sending} == {"alerts"}
    assert "alerts" in served["interactive"]


def test_a_queue_that_is_not_declared_is_refused() -> None:
    with pytest.raises(Exception, match="missing from task_queues"):
        app.send_task("alerts.tasks.tick", queue="alert")


@pytest.mark.django_db(transaction=True)
def test_tasks_of_celery_itself_still_run() -> None:
    flush_broker()
    done: list[str] = []

    def note(sender: Any, **_: object) -> None:
        done.append(sender.name)

    task_success.connect(note)
    app.send_task("celery.accumulate", args=[1, 2])
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=["dispatch"]):
        until(lambda: done == ["celery.accumulate"], 30, "it has run")
    task_success.disconnect(note)
