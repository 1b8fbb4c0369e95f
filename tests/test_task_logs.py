"""Log lines of tasks in a real worker on the real broker, and of beat."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from celery.contrib.testing.worker import start_worker
from django.db import connection
from django.db.utils import DatabaseErrorWrapper
from honcho.environ import parse_procfile

from config.celery import app
from config.routing import ROUTES
from core import logs
from tests.helpers import flush_broker
from tests.processes.waiting import until

ROOT = Path(__file__).parents[1]
logger = logging.getLogger("tests.tasks")


ROUTES["tests.speak"] = ROUTES["tests.connect"] = "dispatch"


@app.task(name="tests.speak")
def speak(secret: str) -> None:
    logger.warning("hello")
    if secret:
        raise ValueError("it broke")


@app.task(name="tests.connect")
def connect() -> None:
    """Fail as Django does while PostgreSQL refuses connections."""
    with DatabaseErrorWrapper(connection):
        psycopg.connect("host=127.0.0.1 port=1")


@pytest.fixture
def stream(transactional_db: None) -> Iterator[StringIO]:
    """Return the output of a worker."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.Formatter(json=True))
    flush_broker()
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=["dispatch"]):
        logging.getLogger().addHandler(handler)
        yield stream
        logging.getLogger().removeHandler(handler)


def lines(stream: StringIO, logger_name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["logger"] == logger_name]


def test_lines_of_a_task_name_it_and_the_request_that_asked(stream: StringIO) -> None:
    with logs.bound(request_id="req-of-a-person"):
        asked = speak.delay("argument-of-a-task")
    alone = speak.delay("")
    until(lambda: len(lines(stream, "tests.tasks")) == 2, 30, "both have spoken")
    first, second = lines(stream, "tests.tasks")
    named = {"task": "tests.speak", "task_id": asked.id, "request_id": "req-of-a-person"}
    assert first.items() >= named.items()
    assert (second["task_id"], second.get("request_id")) == (alone.id, None)
    failures = partial(lines, stream, "celery.app.trace")
    until(lambda: any("exception" in line for line in failures()), 30, "its failure is logged")
    (failure,) = [line for line in failures() if "exception" in line]
    assert failure.items() >= named.items()
    assert failure["exception"].endswith("ValueError: it broke")
    assert "argument-of-a-task" not in stream.getvalue()


def test_tasks_that_cannot_reach_postgresql_leave_one_line(stream: StringIO) -> None:
    for _ in range(3):
        connect.delay()
    speak.delay("and fail")
    failures = partial(lines, stream, "celery.app.trace")
    until(lambda: any("exception" in line for line in failures()), 30, "another failure keeps its traceback")
    (line,) = [line for line in failures() if line.get("task") == "tests.connect"]
    assert (line["level"], line["suppressed"]) == ("warning", 0)
    assert "Connection refused" in line["event"]
    assert "exception" not in line


def test_beat_writes_lines_like_all_others() -> None:
    code = (
        "import logging, config.beat; config.beat.app.log.setup(loglevel='WARNING')\n"
        "logging.getLogger('celery.beat').warning('late')"
    )
    environment = os.environ | {"LOG_FORMAT": "json"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, timeout=60
    )
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["event"] == "late"


def failed_start(name: str, **given: str) -> list[dict[str, Any]]:
    """Return what a process of the Procfile logs with LOG_FORMAT=json before it ends with an error."""
    command = parse_procfile((ROOT / "Procfile").read_text()).processes[name]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT,
        env={**os.environ, "LOG_FORMAT": "json", **given, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return [json.loads(line) for line in (done.stdout + done.stderr).splitlines()]


@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_a_process_that_cannot_start_says_so_in_its_format(name: str) -> None:
    lines = failed_start(name, BASE_URL="nonsense", PORT="0")
    assert any("BASE_URL" in line.get("exception", "") for line in lines)


def test_a_web_server_whose_port_is_taken_says_so_in_its_format() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        lines = failed_start("web", PORT=str(other.getsockname()[1]))
    assert "Address already in use" in lines[-1]["exception"]
