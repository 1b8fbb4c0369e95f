"""What tests start from, made through the services that production uses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from allauth.account.models import EmailAddress
from django.conf import settings
from django.db import connection

from accounts.models import Plan, User
from accounts.services import create_account
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.services import create_channel
from checks.results.partitions import SERIES, make, parts
from checks.spec import CheckOutcome, ReasonCode, Verdict
from connectors.models import Connector
from core.clock import to_ms
from core.errors import ApiError
from monitors.models import Monitor, MonitorState
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.services import FIRST_CLAIM, create_monitor
from projects.access import Caller
from projects.models import Membership, Project, Role
from projects.services import create_project

PASSWORD = "a fine long password"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

_numbers = itertools.count(1)


PLANS = {"free": (300, None, 50), "pro": (60, None, 1000), "local": (10, 60, None)}


def make_user(*, plan: str = "pro", email: str | None = None) -> User:
    if plan in PLANS:  # a test of transactions empties the tables behind itself, those of migrations too
        names = ("min_interval_sec", "default_interval_sec", "monitor_limit")
        defaults = dict(zip(names, PLANS[plan], strict=True))
        Plan.objects.get_or_create(name=plan, defaults=defaults)
    return create_account(email=email or f"user{next(_numbers)}@example.com", password=PASSWORD, plan=plan)


def make_unconfirmed(email: str, *, password: str = PASSWORD) -> User:
    """An account of an earlier version, whose sign-up was never confirmed."""
    user = make_user(plan="free", email=email)
    user.set_password(password)
    user.save(update_fields=["password"])
    EmailAddress.objects.filter(user=user).update(verified=False)
    return user


def make_plan(*, min_interval_sec: int = 60, monitor_limit: int = 1000) -> Plan:
    return Plan.objects.create(
        name=f"plan-{next(_numbers)}", min_interval_sec=min_interval_sec, monitor_limit=monitor_limit
    )


def make_project(owner: User, *, name: str = "Shop", **roles: User) -> Project:
    """A project of `owner`; `admin=user` and `member=user` add people."""
    project = create_project(Caller(owner), name=name, now=NOON)
    for role, user in roles.items():
        Membership.objects.create(project=project, user=user, role=Role(role))
    return project


def make_monitor(owner: User, *, now: datetime = NOON, first: Verdict | None = None, **given: Any) -> Monitor:
    """A monitor as POST leaves it before its first check; `first` records one with that verdict."""
    given.setdefault("url", "http://127.0.0.1:9/")
    monitor = create_monitor(Caller(owner), given, now=now)
    if first is not None:
        record([check_record(monitor, claim=FIRST_CLAIM, verdict=first, at=now)], now=now)
    return monitor


def make_channel(owner: User, *, now: datetime = NOON, **given: Any) -> AlertChannel:
    """By default a webhook, which needs nobody's consent."""
    if "kind" not in given:
        given |= {"kind": "webhook", "url": "http://127.0.0.1:9/hook"}
    return create_channel(Caller(owner), given, now=now)[0]


def make_delivery(
    channel: AlertChannel,
    *,
    state: Delivery.State = Delivery.State.WAITING,
    at: datetime = NOON,
    monitor: Monitor | None = None,
    items: int = 1,
) -> Delivery:
    """A message as the outbox would leave it in that state."""
    done = state in (Delivery.State.SENT, Delivery.State.DEAD)
    delivery = Delivery.objects.create(
        channel=channel,
        created_at=at,
        state=state,
        next_try_at=at,
        give_up_at=at + timedelta(hours=24),
        attempts=3 if done else 0,
        last_error="The receiver answered with status 503." if state == Delivery.State.DEAD else None,
        done_at=at + timedelta(hours=24) if done else None,
    )
    payload = Payload(event_type=EventType.DOWN, at=to_ms(at))
    if monitor is not None:
        payload = replace(payload, monitor_id=monitor.public_id, monitor=monitor.name)
    DeliveryItem.objects.bulk_create(
        DeliveryItem(
            delivery=delivery,
            channel=channel,
            source=f"test {next(_numbers)}",
            payload=payload.as_json(),
            at=at,
        )
        for _ in range(items)
    )
    return delivery


def make_connector(user: User, *, provider: str = "vercel", **columns: Any) -> Connector:
    """As linking leaves it, with tokens that no provider gave."""
    connector = Connector(user=user, provider=provider, created_at=NOON, meta="Shop Ltd", **columns)
    connector.tokens = {"access_token": f"access-{next(_numbers)}"}
    connector.save()
    return connector


def outcome(verdict: Verdict, *, at: datetime = NOON, latency_ms: int = 20) -> CheckOutcome:
    if verdict is Verdict.DOWN:
        return CheckOutcome(
            verdict=verdict, checked_at=at, reason_code=ReasonCode.HTTP_FAILURE, detail="Answered 500."
        )
    return CheckOutcome(verdict=verdict, checked_at=at, latency_ms=latency_ms, http_status=200)


def check_record(
    monitor: Monitor, *, claim: int, verdict: Verdict, at: datetime, config_version: int = 1
) -> CheckRecord:
    return CheckRecord(monitor.pk, claim, config_version, outcome(verdict, at=at))


def state_of(monitor: Monitor) -> MonitorState:
    return MonitorState.objects.get(pk=monitor.pk)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


@contextmanager
def own_partitions() -> Iterator[None]:
    """Partitions that are made or dropped meanwhile are put back to what the migrations made. Not in a transaction."""
    before = {series: parts(series) for series in SERIES}
    try:
        yield
    finally:
        for series, there in before.items():
            for start, _ in set(parts(series)) - set(there):
                with connection.cursor() as cursor:
                    cursor.execute(f"DROP TABLE {series.name(start)}")
            make(series, there)


def empty_broker() -> None:
    """No messages, and no throttle has counted anything."""
    assert settings.REDIS_URL is not None
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.flushdb()


def at_once(*actions: Callable[[], object]) -> list[object]:
    """Run all in threads that start together; what each returned or raised, in their order.

    An AssertionError or a database error is raised here; errors that the API knows are outcomes.
    """
    barrier = threading.Barrier(len(actions))
    outcomes: list[object] = [None] * len(actions)

    def run(index: int, action: Callable[[], object]) -> None:
        try:
            barrier.wait(timeout=10)
            outcomes[index] = action()
        except BaseException as error:  # noqa: BLE001  (a thread's error has to reach the test)
            outcomes[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive(), "a race did not end: a deadlock?"
    for result in outcomes:
        if isinstance(result, BaseException) and not isinstance(result, ApiError):
            raise result
    return outcomes
