"""Verify the second host of docs/operate/deployment.md. `deploy/manage shell` runs these functions in the walkthrough.

It needs only the packages of production.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from django.db import connection, transaction

from accounts.models import User
from checks.results.models import CheckResult
from core.clock import utc_now
from monitors.services import Draft, complete, create_monitors, limits_at

TARGET = "tcp://10.77.1.11:443"  # the proxy on the first host
WAIT_SEC = 120


def verify_connections() -> None:
    """Verify that the servers accept this host with TLS, the password and the CA, and not with one of them missing."""
    database, broker = os.environ["DATABASE_URL"], os.environ["REDIS_URL"]
    without_authority = broker.partition("?")[0]
    _expect("", _connect(database), _ping(broker))
    with connection.cursor() as cursor:
        cursor.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        assert cursor.fetchone() == (True,)
    _expect("no encryption", _connect(database.replace("sslmode=verify-full", "sslmode=disable")))
    _expect("password authentication failed", _connect(_with_password(database)))
    _expect("certificate verify failed", _connect(database.replace("/etc/pulsekeeper/ca.pem", "system")))
    _expect("closed by server|reset by peer", _ping(without_authority.replace("rediss://", "redis://")))
    _expect("invalid username-password pair", _ping(_with_password(broker)))
    _expect("certificate verify failed", _ping(without_authority))


def verify_refusals() -> None:
    """Verify that the servers refuse a third address, also with the secrets of the second host."""
    _expect("no pg_hba.conf entry", _connect(os.environ["DATABASE_URL"]))
    _expect("Connection refused", _ping(os.environ["REDIS_URL"]))


def verify_checks() -> None:
    """Verify that processes of this host check a new monitor. Those of the first host must be stopped."""
    owner = User.objects.select_related("plan").get(email="you@example.com")
    config = complete({"type": "port", "name": "second host", "url": TARGET}, limits_at(None, owner))
    with transaction.atomic():
        (monitor,) = create_monitors(None, [Draft(owner, None, config)], now=utc_now())
    deadline = time.monotonic() + WAIT_SEC
    while not (verdicts := list(CheckResult.objects.filter(monitor_id=monitor.pk).values_list("verdict", flat=True))):
        if time.monotonic() > deadline:
            raise SystemExit(f"no check within {WAIT_SEC} s")
        time.sleep(0.2)
    assert verdicts[0] == "up", verdicts
    print(f"checked by the second host alone: {verdicts[0]}")  # noqa: T201


def _connect(url: str) -> Callable[[], object]:
    return lambda: psycopg.connect(url, connect_timeout=5).close()


def _ping(url: str) -> Callable[[], object]:
    return redis.Redis.from_url(url, socket_connect_timeout=5, retry=None).ping


def _with_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}"))


def _expect(refusal: str, *attempts: Callable[[], object]) -> None:
    """Verify that each attempt fails with a message that has this pattern, or succeeds if it is empty."""
    for attempt in attempts:
        try:
            attempt()
        except (psycopg.OperationalError, redis.RedisError) as error:
            message = str(error)
        else:
            message = ""
        if bool(message) != bool(refusal) or not re.search(refusal, message):
            raise SystemExit(f"expected {refusal or 'a connection'!r}, got {message!r}")
        print(f"as expected: {message or 'connected'}")  # noqa: T201
