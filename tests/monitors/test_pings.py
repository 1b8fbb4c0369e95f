"""The batch path of pings against the slow path: it has the same effect on simple pings, and none on others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import resolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from checks.results.models import CheckResult
from config.middleware import pings as pings_middleware
from core.addresses import client_of
from core.db import release_connection
from monitors.heartbeats import runs
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.incoming import MAX_BODY_BYTES, MAX_BODY_BYTES_PER_HOUR, signal_of, target_of
from monitors.heartbeats.views import PingViewSet, Request, attempt_all, complete_all
from monitors.models import Monitor, MonitorState, Ping, StatusChange
from monitors.operations import mute_for
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, record_ping, run_concurrently, signal, state_of
from tests.processes.waiting import until

NOW = NOON + timedelta(minutes=5)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def owner(db: None) -> User:
    return UserFactory()


def heartbeat(owner: User, *, configured: dict[str, Any] | None = None, **state: Any) -> Monitor:
    """Create a heartbeat that has been up for long, except for the passed fields."""
    monitor = MonitorFactory(owner=owner, heartbeat=True, interval_sec=60, grace_sec=10)
    columns = {"enabled": True} | (configured or {})
    if "grace_sec" in columns:
        columns["config"] = {"grace_sec": columns.pop("grace_sec")}
    Monitor.objects.filter(pk=monitor.pk).update(**columns)
    up = {"status": "up", "status_since": at(-120), "fresh": False, "last_ping_at": at(-30)} | {
        "claim": 7,
        "applied_claim": 7,
        "next_due_at": at(40),
        "last_checked_at": at(-30),
    }
    MonitorState.objects.filter(pk=monitor.pk).update(**(up | state))
    return monitor


def left(monitor: Monitor) -> dict[str, Any]:
    """Return everything that a ping can write."""
    state = MonitorState.objects.filter(pk=monitor.pk).values()
    results = CheckResult.objects.filter(monitor_id=monitor.pk).order_by("claim", "checked_at")
    changes = StatusChange.objects.filter(monitor=monitor).order_by("pk")

    def rows(found: Any) -> list[dict[str, Any]]:
        return [{name: row[name] for name in row if name not in ("id", "monitor_id", "pk")} for row in found]

    pings = Ping.objects.filter(monitor_id=monitor.pk).order_by("at", "id").values()
    return {
        "state": rows(state),
        "results": rows(results.values()),
        "changes": rows(changes.values()),
        "pings": rows(pings),
    }


# Differences from a heartbeat that stays up, and whether the batch path may process it anyway.
DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "nothing": ({}, {}, True),
    "pinged at this moment": ({"last_ping_at": NOW}, {}, False),
    "signalled at this moment": ({"last_signal_at": NOW}, {}, False),
    "signalled before": ({"last_signal_at": at(-1)}, {}, True),
    "up since this moment": ({"status_since": NOW}, {}, True),
    "overdue": ({"last_ping_at": at(-900), "next_due_at": at(-830)}, {}, True),
    "claimed by a sweep": ({"claimed_at": at(-1), "slot_at": at(-2), "next_due_at": at(30)}, {}, True),
    "armed": ({"armed_at": at(500), "next_due_at": at(500)}, {}, True),
    "a latency": ({"last_latency_ms": 5, "last_connect_ms": 2, "last_ttfb_ms": 3}, {}, True),
    "a certificate": ({"cert_expires_at": at(10_000), "domain_expires_at": at(20_000)}, {}, True),
    "muted for long": ({"next_due_at": at(5_000)}, {"muted_until": at(5_000)}, True),
    "a mute that ended": ({}, {"muted_until": at(-5)}, True),
    "the longest gap": ({}, {"interval_sec": 2_147_483_647, "grace_sec": 2_147_483_647}, True),
    "no grace": ({}, {"grace_sec": 0}, True),
    "results not applied yet": ({"claim": 9}, {}, True),
    "never pinged": ({"status": None, "status_since": None, "fresh": True, "last_ping_at": None}, {}, False),
    "down": ({"status": "down"}, {}, False),
    "down, recovering": ({"status": "down", "passes": 1}, {"recover_threshold": 3}, False),
    "resumed": ({"fresh": True}, {}, False),
    "failures": ({"failures": 1}, {}, False),
    "failing": ({"failing_since": at(-50)}, {}, False),
    "passes": ({"passes": 1}, {}, False),
    "paused": ({"next_due_at": None}, {"enabled": False}, False),
    "an open run": ({"runs": {"": 1}}, {}, False),
    "a clock that was ahead": ({"last_ping_at": at(3), "next_due_at": at(73)}, {}, False),
    "up since later": ({"status_since": at(3)}, {}, False),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_both_ways_leave_the_same(owner: User, difference: str) -> None:
    state, configured, short = DIFFERENCES[difference]
    one, other, third = (heartbeat(owner, configured=configured, **state) for _ in range(3))
    assert record_ping(one.public_id, now=NOW)
    assert heartbeats.record(signal(other.public_id, now=NOW))
    assert left(one) == left(other)
    before = left(third)
    assert heartbeats.keep_up([signal(third.public_id, now=NOW)]) == [short]
    assert left(third) == (left(one) if short else before)


MOMENTS = st.none() | st.integers(-200, 200).map(at)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(["up", "up", "up", "down", None]),
            "fresh": st.sampled_from([False, False, False, True]),
            "failures": st.sampled_from([0, 0, 0, 1]),
            "passes": st.sampled_from([0, 0, 0, 1]),
            "status_since": MOMENTS,
            "failing_since": st.none() | MOMENTS,
            "last_ping_at": MOMENTS,
            "last_signal_at": MOMENTS,
            "armed_at": MOMENTS,
            "claimed_at": MOMENTS,
            "next_due_at": MOMENTS,
            "applied_claim": st.integers(0, 7),
        }
    ),
    st.fixed_dictionaries(
        {
            "enabled": st.sampled_from([True, True, True, False]),
            "muted_until": MOMENTS,
            "interval_sec": st.integers(1, 300),
            "grace_sec": st.integers(0, 300),
            "recover_threshold": st.integers(1, 3),
        }
    ),
)
def test_both_ways_have_the_same_effect_on_any_state(
    owner: User, state: dict[str, Any], configured: dict[str, Any]
) -> None:
    one, other = (heartbeat(owner, configured=configured, **state) for _ in range(2))
    assert record_ping(one.public_id, now=NOW) is heartbeats.record(signal(other.public_id, now=NOW)) is True
    assert left(one) == left(other)


def test_two_signals_never_have_the_same_time(owner: User) -> None:
    """On both paths the log is in the order in which signals changed the status."""
    monitor, rid = heartbeat(owner, last_ping_at=at(-60), status_since=at(-60)), UUID(int=0xA)
    words = [("", None), ("", None), ("log", None), ("fail", None), ("", None), ("start", rid), ("3", rid), ("", None)]
    for word, run in words:
        given = signal(monitor.public_id, word, now=NOW, rid=run)
        assert (given.is_plain and heartbeats.keep_up([given])[0]) or heartbeats.record(given)
    batch = [signal(monitor.public_id, word, now=NOW) for word in ("log", "fail", "start", "log", "")]
    assert all(heartbeats.record_all(batch))
    pings = Ping.objects.filter(monitor_id=monitor.pk).order_by("at")
    times = list(pings.values_list("at", flat=True))
    assert times == [NOW + number * runs.MICROSECOND for number in range(len(words) + len(batch))]
    kinds = [ping.kind for ping in pings if ping.kind in ("success", "fail")]
    assert kinds == ["success", "success", "fail", "success", "fail", "success", "fail", "success"]
    changes = StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("after", "at")
    assert list(changes) == [
        (after, times[number])
        for after, number in (("down", 3), ("up", 4), ("down", 6), ("up", 7), ("down", 9), ("up", 12))
    ]
    assert state_of(monitor).last_ping_at == state_of(monitor).last_signal_at == times[-1]


def test_starts_that_are_recorded_after_their_end_have_times_of_their_own(owner: User) -> None:
    monitor, rid = heartbeat(owner), UUID(int=0xA)
    assert heartbeats.record(signal(monitor.public_id, rid=rid, now=NOW))
    start = signal(monitor.public_id, "start", rid=rid, now=NOW)
    assert all(heartbeats.record_all([start] * 150))
    assert all(heartbeats.record_all([start] * 2))
    times = Ping.objects.filter(monitor_id=monitor.pk).values_list("at", flat=True)
    assert sorted(times) == [NOW - number * runs.MICROSECOND for number in reversed(range(153))]
    assert state_of(monitor).runs is None


@pytest.mark.django_db(transaction=True)
def test_signals_that_arrive_at_once_have_the_order_of_the_status(owner: User) -> None:
    monitor = heartbeat(owner)
    words = ["", "fail", "log", "start", "", "7", "", "fail"] * 3
    sent = [partial(heartbeats.record, signal(monitor.public_id, word, now=NOW)) for word in words]
    assert run_concurrently(*sent) == [True] * len(words)
    pings = list(Ping.objects.filter(monitor_id=monitor.pk).order_by("at").values_list("at", "kind"))
    assert len({moment for moment, _ in pings}) == len(words)
    changes = StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("at", "after")
    status, expected = "up", []
    for moment, kind in pings:
        after = {"success": "up", "fail": "down"}.get(kind, status)
        if after != status:
            expected.append((moment, after))
            status = after
    assert list(changes) == expected
    assert state_of(monitor).status == status


def test_a_user_agent_is_kept_as_utf8_with_replacement() -> None:
    """PEP 3333 passes bytes as Latin-1."""
    target = target_of("GET", "/v1/heartbeats/mon_a/ping")
    assert target is not None
    for sent, kept in [
        ("Jürgen/2 ☕".encode(), "Jürgen/2 ☕"),
        (b"J\xfcrgen", "J\ufffdrgen"),
        ("é".encode() * 300, "é" * 200),
        (b"x" * 300, "x" * 200),
    ]:
        meta = {"REQUEST_METHOD": "GET", "HTTP_USER_AGENT": sent.decode("latin-1")}
        assert signal_of(meta, target, b"", at=NOW, remote_addr=None).user_agent == kept


def test_a_start_that_is_recorded_after_its_success_opens_no_run(owner: User) -> None:
    """A job that does not wait for the response may send both at the same time."""
    monitor = heartbeat(owner)
    assert heartbeats.keep_up([signal(monitor.public_id, now=at(0.01))]) == [True]
    assert heartbeats.record(signal(monitor.public_id, "start", now=at(0)))
    assert state_of(monitor).runs is None
    assert heartbeats.record(signal(monitor.public_id, "start", now=at(1)))
    assert state_of(monitor).run_started_at == at(1)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("end", ["", "fail"])
def test_a_start_with_a_rid_that_is_recorded_after_its_end_opens_no_run(
    owner: User, end: str, *, together: bool
) -> None:
    monitor, rid = heartbeat(owner), UUID(int=0xA)
    given = [signal(monitor.public_id, kind, rid=rid, now=at(second)) for kind, second in ((end, 0.01), ("start", 0))]
    for batch in [given] if together else [[each] for each in given]:
        assert all(heartbeats.record_all(batch))
    assert state_of(monitor).runs is None
    assert heartbeats.record(signal(monitor.public_id, end, rid=rid, now=at(1)))
    assert state_of(monitor).last_duration_ms is None
    assert heartbeats.record(signal(monitor.public_id, "start", rid=rid, now=at(2)))
    assert state_of(monitor).run_started_at == at(2)


def test_an_end_that_is_repeated_in_one_batch_is_measured_once(owner: User) -> None:
    monitor, rid = heartbeat(owner), UUID(int=0xA)
    assert heartbeats.record(signal(monitor.public_id, "start", rid=rid, now=at(0)))
    end = signal(monitor.public_id, rid=rid, now=at(5))
    assert heartbeats.record_all([end, end]) == [True, True]
    durations = Ping.objects.filter(monitor_id=monitor.pk, kind="success").order_by("id").values_list("duration_ms")
    assert list(durations) == [(5000,), (None,)]


def test_many_at_once_are_each_taken_as_alone(owner: User) -> None:
    """Simple pings are recorded at their own times, a repeated one once, and others not at all."""
    simple = [heartbeat(owner) for _ in range(3)]
    down = heartbeat(owner, status="down")
    before = left(down)
    pings = [signal(monitor.public_id, now=at(second)) for second, monitor in enumerate(simple)]
    given = [*pings, signal(down.public_id, now=NOW), signal("mon_nothere", now=NOW), pings[0]]
    assert heartbeats.keep_up(given) == [True, True, True, False, False, False]
    for monitor, ping in zip(simple, pings, strict=True):
        state, moment = state_of(monitor), ping.at
        assert (state.claim, state.last_ping_at, state.next_due_at) == (8, moment, moment + timedelta(seconds=70))
        assert CheckResult.objects.get(monitor_id=monitor.pk).checked_at == moment
    assert left(down) == before


def requests_of(*paths: str, agent: str = "") -> list[Request]:
    found = []
    for path in paths:
        target = target_of("POST", f"/v1/heartbeats/{path}/ping")
        assert target is not None
        meta = {"REQUEST_METHOD": "POST", "HTTP_USER_AGENT": agent, "REMOTE_ADDR": "192.0.2.1"}
        found.append(Request(meta, client_of(meta), target))
    return found


def test_a_second_ping_that_comes_at_once_is_simple_too(owner: User) -> None:
    """Not a third, which takes the full path, as one heartbeat that is flooded must not delay the others."""
    monitor, down = heartbeat(owner, last_ping_at=NOON), heartbeat(owner, status="down")
    name = monitor.public_id
    attempts = attempt_all(requests_of(name, name, down.public_id, name, down.public_id, "mon_nothere"))
    assert [attempt.kept for attempt in attempts] == [True, True, None, None, None, None]
    signals = [attempt.signal for attempt in attempts if attempt.signal]
    last = Ping.objects.filter(monitor_id=monitor.pk).order_by("at").values_list("at", flat=True)
    assert list(last) == [signals[0].at, signals[1].at]
    assert (state_of(monitor).claim, state_of(monitor).last_ping_at) == (9, signals[1].at)
    assert [attempt.kept for attempt in complete_all(attempts[2:])] == [True, True, True, False]
    assert CheckResult.objects.filter(monitor_id=monitor.pk).count() == 3


def test_user_agents_that_come_at_once_are_kept_as_sent(owner: User) -> None:
    agents = ['{"a", NULL}', 'back\\slash\\"', "", "NULL", " , ", "'"]
    given = {heartbeat(owner, last_ping_at=NOON).public_id: agent for agent in agents}
    attempts = attempt_all([request for name, agent in given.items() for request in requests_of(name, agent=agent)])
    assert all(attempt.kept for attempt in attempts)
    stored = Ping.objects.order_by("at").values_list("user_agent", flat=True)
    assert list(stored) == agents


FULL = "é" * (MAX_BODY_BYTES // 2)


def kept_bytes(monitor: Monitor) -> int:
    return sum(len((ping.body or "").encode()) for ping in Ping.objects.filter(monitor_id=monitor.pk))


def test_beyond_the_limit_of_an_hour_bodies_are_dropped_and_signals_are_not(owner: User) -> None:
    monitor, other = heartbeat(owner), heartbeat(owner)
    full = MAX_BODY_BYTES_PER_HOUR // MAX_BODY_BYTES
    flood = [signal(monitor.public_id, "log", now=at(number), body=FULL) for number in range(full - 1)]
    assert all(heartbeats.record_all([*flood, signal(monitor.public_id, "log", now=at(full), body=FULL[1:])]))
    assert kept_bytes(monitor) == MAX_BODY_BYTES_PER_HOUR - 2
    words = ["", "start", "log", "fail"]
    # A slow clock starts no new hour.
    late = [signal(monitor.public_id, word, now=at(-1 if word == "log" else 200), body="why") for word in words]
    assert heartbeats.record_all(late) == [True] * 4
    assert heartbeats.record(signal(monitor.public_id, "log", now=at(201), body="ok"))
    assert kept_bytes(monitor) == MAX_BODY_BYTES_PER_HOUR
    dropped = Ping.objects.filter(monitor_id=monitor.pk, body_dropped=True)
    assert sorted(dropped.values_list("kind", "body")) == [(kind, None) for kind in ("fail", "log", "start", "success")]
    state = state_of(monitor)
    assert (state.status, state.last_ping_at) == ("down", at(200))

    assert heartbeats.record(signal(monitor.public_id, "log", now=at(3599), body="x"))
    assert heartbeats.record(signal(monitor.public_id, "log", now=at(3600), body=FULL))
    assert heartbeats.record(signal(other.public_id, "log", now=at(200), body=FULL))
    assert kept_bytes(monitor) == MAX_BODY_BYTES_PER_HOUR + MAX_BODY_BYTES
    assert kept_bytes(other) == MAX_BODY_BYTES


@pytest.mark.django_db(transaction=True)
def test_bodies_that_arrive_at_once_share_the_limit(owner: User) -> None:
    monitor = heartbeat(owner)
    flood = [signal(monitor.public_id, "log", now=NOW, body=FULL)] * (MAX_BODY_BYTES_PER_HOUR // MAX_BODY_BYTES // 3)
    assert run_concurrently(*[partial(heartbeats.record_all, flood)] * 4) == [[True] * len(flood)] * 4
    assert kept_bytes(monitor) == MAX_BODY_BYTES_PER_HOUR
    assert Ping.objects.filter(monitor_id=monitor.pk).count() == 4 * len(flood)


def test_the_short_way_takes_no_body(owner: User) -> None:
    """The statement would have to count bytes of the body; a ping without a body counts nothing."""
    monitor = heartbeat(owner)
    assert signal(monitor.public_id, now=NOW).is_plain
    assert not signal(monitor.public_id, now=NOW, body="").is_plain
    assert record_ping(monitor.public_id, now=NOW)
    assert state_of(monitor).bodies_since is None


@pytest.mark.django_db(transaction=True)
def test_a_held_heartbeat_holds_up_no_other(owner: User) -> None:
    held, free = heartbeat(owner), heartbeat(owner)
    answers: list[bool] = []

    def ping() -> None:
        answers.extend(heartbeats.keep_up([signal(held.public_id, now=NOW), signal(free.public_id, now=NOW)]))
        release_connection()

    with transaction.atomic():
        MonitorState.objects.select_for_update().get(monitor=held)
        thread = threading.Thread(target=ping)
        thread.start()
        thread.join(10)
        assert answers == [False, True]


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def pinged_amid(monitor: Monitor, change: Callable[[], object]) -> bool:
    """Return whether the batch recorded a ping that had to wait for the uncommitted `change`."""
    taken: list[bool] = []

    def ping() -> None:
        taken.append(record_ping(monitor.public_id, now=NOW))
        release_connection()

    thread = threading.Thread(target=ping)
    with transaction.atomic():
        change()
        thread.start()
        until(waits_for_a_lock, 30, "the ping waits")
    thread.join(10)
    return taken == [True]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("given_fields", "due"),
    [
        ({"interval_sec": 300}, at(310)),
        ({"grace_sec": 50}, at(110)),
        ({"interval_sec": 300, "grace_sec": 0}, at(300)),
        ({"name": "New"}, at(70)),
    ],
)
def test_a_ping_that_waited_for_an_edit_goes_by_what_it_left(
    owner: User, given_fields: dict[str, Any], due: datetime
) -> None:
    monitor = heartbeat(owner)
    edit = partial(update_monitor, Caller(owner), monitor.public_id, given_fields, now=at(-1))
    assert pinged_amid(monitor, edit)
    state = state_of(monitor)
    assert (state.next_due_at, state.last_ping_at, state.armed_at) == (due, NOW, None)
    assert (state.claim, CheckResult.objects.filter(monitor_id=monitor.pk).count()) == (8, 1)


@pytest.mark.django_db(transaction=True)
def test_a_ping_that_waited_for_a_mute_goes_by_it(owner: User) -> None:
    monitor = heartbeat(owner)
    assert pinged_amid(monitor, partial(mute_for, [monitor.pk], minutes=10, now=at(-1)))
    assert state_of(monitor).next_due_at == at(599)


@pytest.mark.django_db(transaction=True)
def test_a_ping_that_waited_for_a_pause_is_only_noted(owner: User) -> None:
    monitor = heartbeat(owner)
    pause = partial(update_monitor, Caller(owner), monitor.public_id, {"enabled": False}, now=at(-1))
    assert pinged_amid(monitor, pause)
    state = state_of(monitor)
    assert (state.next_due_at, state.last_ping_at, state.claim) == (None, NOW, 7)
    assert not CheckResult.objects.filter(monitor_id=monitor.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_ping_that_waited_for_a_deletion_finds_nothing(owner: User) -> None:
    monitor = heartbeat(owner)
    assert not pinged_amid(monitor, partial(delete_monitor, Caller(owner), monitor.public_id))
    assert not CheckResult.objects.filter(monitor_id=monitor.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_ping_that_waited_for_another_is_the_later_one(owner: User) -> None:
    monitor = heartbeat(owner)
    assert pinged_amid(monitor, partial(record_ping, monitor.public_id, now=at(-1)))
    state = state_of(monitor)
    assert (state.claim, state.applied_claim, state.last_ping_at) == (9, 9, NOW)
    claims = CheckResult.objects.filter(monitor_id=monitor.pk).values_list("claim", flat=True)
    assert sorted(claims) == [8, 9]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_the_short_cut_answers_what_the_endpoint_would(owner: User, method: str) -> None:
    """And with the headers that every response has."""
    monitor = heartbeat(owner, last_ping_at=NOON)
    path = f"/v1/heartbeats/{monitor.public_id}/ping"
    view = resolve(path).func
    assert view.cls is PingViewSet  # type: ignore[attr-defined]

    def never(request: object) -> Any:
        raise AssertionError("pings lets a ping through")

    short = Client().generic(method, path)
    request = short.wsgi_request
    assert pings_middleware(never)(request).content == view(request, monitor_id=monitor.public_id).content
    other = Client().get("/v1/nothing")
    kept = {"X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy"}
    assert kept <= set(short.headers)
    assert {name: short.headers[name] for name in kept} == {name: other.headers[name] for name in kept}
    assert short.headers["Content-Type"] == "application/json"


def test_other_methods_and_bodies(owner: User) -> None:
    path = f"/v1/heartbeats/{heartbeat(owner, last_ping_at=NOON).public_id}/ping"
    refused = Api().send("PUT", path)
    assert (refused.status, refused.json["error"]) == (405, "method_not_allowed")
    assert "POST" in refused.headers["Allow"]
    for content_type, body in [("text/plain", "exit 0"), ("application/json", "{"), ("multipart/form-data", b"\x00")]:
        assert Api().send("POST", path, body, content_type=content_type).json == {"ok": True}
    assert Api().send("POST", path.replace("/ping", "/ping/")).status == 404
