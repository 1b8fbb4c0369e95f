"""A web process whose PostgreSQL refuses connections, never answers, or is only slow."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import requests
from django.db import connection

from core.db import separate_connection
from core.postgresql.availability import Availability
from monitors.models import Ping
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import PASSWORD
from tests.monitors.test_pings import heartbeat
from tests.processes.up import ROOT, free_port
from tests.processes.waiting import until
from tests.relay import Relay, relay

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 60
AWAY = {"error": "unavailable", "reason": "The database does not answer; try again in a moment."}


@pytest.fixture
def postgres() -> Iterator[Relay]:
    with relay() as made:
        yield made


@pytest.fixture
def web(postgres: Relay, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    command = [str(Path(sys.executable).with_name("granian")), "--interface", "rsgi", "--loop", "uvloop"]
    with (tmp_path / "web.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "config.rsgi:application"],
            cwd=ROOT,
            env=os.environ | {"DATABASE_URL": postgres.url, "DJANGO_SETTINGS_MODULE": "config.settings"},
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        try:
            return requests.get(f"{address}/healthz", timeout=PATIENCE_SEC).content == b"ok\n"
        except requests.ConnectionError:
            return False

    try:
        until(is_up, PATIENCE_SEC, "the web process listens")
        yield address
    finally:
        postgres.serve()
        process.terminate()
        process.wait(PATIENCE_SEC)


def test_every_request_is_answered_while_postgresql_is_away(web: str, postgres: Relay) -> None:
    user = UserFactory()
    credentials = {"email": user.email, "password": PASSWORD}
    ping = f"{web}/v1/heartbeats/{heartbeat(user).public_id}/ping"
    caller = {"Authorization": f"Bearer {Api.signed_in(user).token}"}

    def works() -> bool:
        answers = [requests.post(ping, timeout=PATIENCE_SEC)]
        answers += [requests.get(f"{web}/v1/monitors", headers=caller, timeout=PATIENCE_SEC)]
        return {answer.status_code for answer in answers} == {200}

    def check_refusals() -> None:
        for answer in (
            requests.get(f"{web}/v1/monitors", headers=caller, timeout=PATIENCE_SEC),
            requests.post(ping, timeout=PATIENCE_SEC),
            requests.post(f"{web}/v1/sessions", json=credentials, timeout=PATIENCE_SEC),
        ):
            assert (answer.status_code, answer.json(), answer.headers["Retry-After"]) == (503, AWAY, "5"), answer.url
        page = requests.get(f"{web}/monitors", cookies={"sessionid": "0" * 32}, timeout=PATIENCE_SEC)
        assert (page.status_code, page.headers["Retry-After"]) == (503, "5")
        assert "The database does not answer; try again in a moment." in page.text
        assert requests.get(f"{web}/healthz", timeout=PATIENCE_SEC).content == b"ok\n"
        ready = requests.get(f"{web}/readyz", timeout=PATIENCE_SEC)
        assert (ready.status_code, ready.json()["checks"]["database"]) == (503, "the database does not answer")

    assert works()
    for disappear in (postgres.silence, postgres.refuse):
        disappear()
        check_refusals()
        postgres.serve()
        until(works, PATIENCE_SEC, "PostgreSQL is used again")


def test_a_signal_whose_commit_was_not_answered_is_not_recorded_again(web: str, postgres: Relay) -> None:
    beat = heartbeat(UserFactory())
    url = f"{web}/v1/heartbeats/{beat.public_id}/ping"
    assert requests.post(url, b"first", timeout=PATIENCE_SEC).status_code == 200
    postgres.lose_commit()
    answer = requests.post(url, b"second", timeout=PATIENCE_SEC)
    assert (answer.status_code, answer.json()) == (503, AWAY)
    assert requests.post(url, b"third", timeout=PATIENCE_SEC).status_code == 200
    assert list(Ping.objects.order_by("at").values_list("body", flat=True)) == ["first", "second", "third"]


ASKED_AGAIN = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity AS waiting JOIN pg_stat_activity AS asked USING (datname)
         WHERE datname = current_database() AND waiting.wait_event_type = 'Lock'
           AND asked.query = '' AND asked.state_change > waiting.query_start + interval '1 second')
"""


def test_a_slow_database_is_no_outage(web: str, postgres: Relay) -> None:
    """A request waits for a lock, and PostgreSQL is too busy to accept connections."""
    user = UserFactory()
    caller = {"Authorization": f"Bearer {Api.signed_in(user).token}"}

    def answer() -> int:
        return requests.get(f"{web}/v1/monitors", headers=caller, timeout=PATIENCE_SEC).status_code

    assert answer() == 200
    postgres.silence_new()
    with ThreadPoolExecutor(1) as thread, separate_connection(patience_sec=PATIENCE_SEC) as locking:
        locking.execute("LOCK TABLE monitors_monitor IN ACCESS EXCLUSIVE MODE")
        slow = thread.submit(answer)
        with connection.cursor() as cursor:

            def asked_again() -> bool:
                cursor.execute(ASKED_AGAIN)
                return slow.done() or bool(cursor.fetchone()[0])

            until(asked_again, PATIENCE_SEC, "the web process asks PostgreSQL while the request waits")
        locking.rollback()
        assert slow.result() == 200


def test_one_failed_connection_is_no_outage() -> None:
    """Callers wait for a connection of the pool if another one has got an answer since, or if there are too many."""

    def is_away(error: psycopg.OperationalError, *, silent_for: float) -> bool:
        availability = Availability()
        availability.failed(error, since=availability.answered_at + silent_for)
        return availability.is_away

    refused = psycopg.OperationalError("connection refused")
    assert is_away(refused, silent_for=1)
    assert not is_away(refused, silent_for=0)
    assert not is_away(psycopg.errors.TooManyConnections(), silent_for=1)


def test_an_outage_has_a_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    availability = Availability()
    with caplog.at_level(logging.INFO, logger="core"):
        for _ in range(2):
            for _ in range(2):
                error = psycopg.OperationalError("connection refused")
                availability.failed(error, since=availability.answered_at + 1)
            for _ in range(2):
                availability.answered()
    assert caplog.messages == ["PostgreSQL does not answer: connection refused", "PostgreSQL answers again"] * 2


# In a separate process, because the pool belongs to the process.
POOL = """
import django; django.setup()
from django.db import OperationalError, connection
from tests.processes.waiting import until

pool, delays = connection.pool, []
schedule = pool.schedule_task
def noted(task, delay):
    if type(task).__name__ == "AddConnection":
        delays.append(delay)
    schedule(task, delay)
pool.schedule_task = noted
try:
    connection.ensure_connection()
except OperationalError:
    pass
until(lambda: len(delays) >= 5, 60, "the pool tries again, and again")
assert max(delays) <= 2, delays
print("ok")
"""


def test_the_pool_never_waits_long_before_it_tries_again() -> None:
    """Even after a long outage of PostgreSQL, although psycopg_pool doubles its delays."""
    done = subprocess.run(
        [sys.executable, "-c", POOL],
        cwd=ROOT,
        env=os.environ
        | {"DATABASE_URL": f"postgresql://127.0.0.1:{free_port()}/none", "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr
    assert done.stderr.count("error connecting") == 1, "it does not log each attempt"


HOSTS = """
import django; django.setup()
import sys
from django.db import OperationalError, connection
from tests.processes.waiting import until

def answers():
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            print(connection.connection.info.port, flush=True)
            return True
    except OperationalError:
        return False
    finally:
        connection.close()

for _ in sys.stdin:
    until(answers, 60, "one of the hosts answers")
"""


def test_the_second_host_takes_over(postgres: Relay) -> None:
    with relay() as second:
        url = postgres.url.replace(f":{postgres.port}/", f":{postgres.port},127.0.0.1:{second.port}/")
        with subprocess.Popen(
            [sys.executable, "-c", HOSTS],
            cwd=ROOT,
            env=os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "config.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("query\n")
            assert process.stdout.readline() == f"{postgres.port}\n"
            postgres.refuse()
            process.stdin.write("query\n")
            assert process.stdout.readline() == f"{second.port}\n"
            process.stdin.close()
            assert process.wait(PATIENCE_SEC) == 0
