"""Log lines for collectors and for people."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import kombu.exceptions
import pytest
import redis
from django.test import Client

from core import logs

ROOT = Path(__file__).parents[2]
Reader = Callable[[], list[str]]


@pytest.fixture
def logger() -> logging.Logger:
    found = logging.getLogger("tests.logs")
    found.propagate = False
    found.setLevel(logging.DEBUG)
    return found


def _written(logger: logging.Logger, *, json: bool) -> Iterator[Reader]:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.Formatter(json=json))
    logger.addHandler(handler)
    yield lambda: stream.getvalue().splitlines()
    logger.removeHandler(handler)


@pytest.fixture
def as_json(logger: logging.Logger) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    for read in _written(logger, json=True):
        yield partial(_objects, read)


def _objects(read: Reader) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read()]


@pytest.fixture
def as_text(logger: logging.Logger) -> Iterator[Reader]:
    yield from _written(logger, json=False)


def test_a_line_is_an_object(logger: logging.Logger, as_json: Callable[[], list[dict[str, Any]]]) -> None:
    with logs.bound(request_id="r1"):
        logs.add(user="usr_1")
        logger.warning("%d batches\nwait", 3, extra={"monitor": 7, "reason": None, "data": {"args": ["secret"]}})
    logger.info("after")
    first, second = as_json()
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "3 batches\nwait",
        "level": "warning",
        "logger": "tests.logs",
        "request_id": "r1",
        "user": "usr_1",
        "monitor": 7,
        "reason": None,
    }
    assert "request_id" not in second


def test_a_crash_is_one_line(logger: logging.Logger, as_json: Callable[[], list[dict[str, Any]]]) -> None:
    try:
        int("password=hunter22")
    except ValueError:
        logger.exception("it broke")
    (line,) = as_json()
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("base 10: 'password=[masked]'")


def test_text_is_for_people(logger: logging.Logger, as_text: Reader) -> None:
    with logs.bound(task="t", task_id="1"):
        logger.warning("a name\nof two lines", extra={"count": 2, "password": "hunter22"})
    (line,) = as_text()
    assert line[19:] == " WARNING tests.logs: a name\\nof two lines  task=t task_id=1 count=2 password=[masked]"


def test_a_message_is_passed_once_in_a_while(
    logger: logging.Logger, as_json: Callable[[], list[dict[str, Any]]]
) -> None:
    rate = logs.OutageFilter()
    logger.addFilter(rate)
    for number in range(3):
        logger.warning("cannot connect to %d", number)
        with logs.bound(task="t"):
            logger.warning("cannot connect to %d", number)
    for name in ("com", "org"):
        logger.info("the lookup of .%s failed", name)
    rate.EVERY_SEC = 0
    logger.warning("cannot connect to %d", 3)
    logger.removeFilter(rate)
    assert [(line["event"], line.get("task"), line.get("suppressed")) for line in as_json()] == [
        ("cannot connect to 0", None, 0),
        ("the lookup of .com failed", None, None),
        ("the lookup of .org failed", None, None),
        ("cannot connect to 3", None, 5),
    ]


def test_outages_leave_one_line_without_a_traceback(
    logger: logging.Logger, as_json: Callable[[], list[dict[str, Any]]]
) -> None:
    outages = logs.OutageFilter()
    logger.addFilter(outages)
    for error in (redis.ConnectionError("refused"), kombu.exceptions.OperationalError("refused"), ValueError("ours")):
        for _ in range(2):
            logger.error("%s failed", type(error).__name__, exc_info=error)
    logger.removeFilter(outages)
    assert [(line["level"], line["event"], "exception" in line) for line in as_json()] == [
        ("warning", "ConnectionError failed", False),
        ("error", "ValueError failed", True),
        ("error", "ValueError failed", True),
    ]


def test_bindings_end_with_their_block() -> None:
    logs.add(lost=1)  # no context is bound here
    with logs.bound(a=1):
        with logs.bound(b=2):
            logs.add(c=3)
            assert logs.context() == {"a": 1, "b": 2, "c": 3}
        assert logs.context() == {"a": 1}
    assert logs.context() == {}


def test_structlog_is_loaded_for_the_first_line_and_rich_never() -> None:
    code = (
        "import logging, sys; from core.logs import Formatter\n"
        "handler = logging.StreamHandler(sys.stdout); handler.setFormatter(Formatter(json=True))\n"
        "logging.getLogger().addHandler(handler); assert 'structlog' not in sys.modules\n"
        "logging.warning('x'); assert 'structlog' in sys.modules; assert 'rich' not in sys.modules\n"
        "import rich"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert json.loads(done.stdout)["event"] == "x"


@pytest.mark.django_db
def test_strangers_write_no_traceback_by_a_long_query(caplog: pytest.LogCaptureFixture) -> None:
    assert Client().get(f"/admin/?{'x' * 16_384}").status_code == 400
    assert not [record for record in caplog.records if record.exc_info]
