"""Concurrent signals, from web processes whose clocks differ, and during runs of the scheduler."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.addresses import client_of
from monitors.heartbeats import runs
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.history import pings_of
from monitors.heartbeats.incoming import signal_of, target_of
from monitors.models import Monitor, Ping, StatusChange
from monitors.scheduling import claim_due
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, run_concurrently, signal, state_of


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def job() -> Monitor:
    return MonitorFactory(owner=UserFactory(), heartbeat=True, interval_sec=600, grace_sec=60)


def send(monitor: Monitor, second: float, word: str = "", rid: UUID | None = None) -> bool:
    return heartbeats.record(signal(monitor.public_id, word, now=at(second), rid=rid))


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_run_races_with_the_sweep_at_its_deadline() -> None:
    for _ in range(5):
        monitor = job()
        send(monitor, 0, "start")
        claimed = [claim.monitor_id for claim in claim_due(at(61), limit=10)]
        assert claimed == [monitor.pk]
        sweep = partial(heartbeats.sweep, claimed, now=at(61))
        assert run_concurrently(partial(send, monitor, 61), sweep) == [True, False]
        state = state_of(monitor)
        assert (state.status, state.last_duration_ms, state.runs, state.run_started_at) == ("up", 61_000, None, None)
        assert state.next_due_at == at(61 + 660)
        changes = list(StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("after", "at"))
        assert changes in ([("up", at(61))], [("down", at(60)), ("up", at(61))])


@pytest.mark.django_db(transaction=True)
def test_many_ends_of_a_run_end_it_once() -> None:
    monitor, rid = job(), uuid4()
    send(monitor, 0, "start", rid)
    run_concurrently(*[partial(send, monitor, 10, word, rid) for word in ("", "fail", "7", "")])
    durations = Ping.objects.filter(monitor_id=monitor.pk, kind__in=["success", "fail"])
    assert sorted(filter(None, durations.values_list("duration_ms", flat=True))) == [10_000]


@pytest.mark.django_db
def test_a_clock_that_is_behind_never_moves_time_backwards() -> None:
    """If the end of a run is older than its start by the clocks of two web processes, the duration is 0."""
    monitor = job()
    send(monitor, 100, "start")
    send(monitor, 98)
    send(monitor, 97, "fail")
    send(monitor, 96, "start")
    first = [(ping.kind, ping.at, ping.duration_ms) for ping in reversed(pings_of(monitor, limit=10))]
    kinds = [("start", None), ("success", 0), ("fail", None), ("start", None)]
    times = [at(100) + number * runs.MICROSECOND for number in range(4)]
    assert first == [(kind, moment, ms) for (kind, ms), moment in zip(kinds, times, strict=True)]
    changes = StatusChange.objects.values_list("after", "at").order_by("pk")
    assert list(changes) == [("up", times[1]), ("down", times[2])]


@pytest.mark.django_db
def test_no_more_runs_are_watched_than_the_state_can_hold() -> None:
    monitor = job()
    rids = [UUID(int=number) for number in range(runs.MAX_OPEN + 1)]
    for second, rid in enumerate(rids):
        send(monitor, second * 0.1, "start", rid)
    assert len(runs.starts(state_of(monitor).runs or {})) == runs.MAX_OPEN
    assert unwatched(monitor) == 1
    send(monitor, 20, "start", rids[-1])
    assert unwatched(monitor) == 1, "it is the same run"
    send(monitor, 50, "", rids[-1])
    assert state_of(monitor).last_duration_ms == 30_000, "from the log"
    assert state_of(monitor).run_started_at == at(0)
    assert unwatched(monitor) == 0


@pytest.mark.django_db
def test_a_success_settles_runs_that_are_not_watched_either() -> None:
    monitor = job()
    for number in range(runs.MAX_OPEN + 2):
        send(monitor, 0, "start", UUID(int=number))
    send(monitor, 59)
    assert unwatched(monitor) == 2
    assert len(runs.starts(state_of(monitor).runs or {})) == runs.MAX_OPEN
    send(monitor, 61)
    assert state_of(monitor).runs is None


def unwatched(monitor: Monitor) -> int:
    return runs.unwatched(state_of(monitor).runs or {})


WORD = st.sampled_from(["", "/start", "/fail", "/log", "/9"])
TEXT = st.text(st.characters(), max_size=300)


@pytest.mark.django_db
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "/start", "/fail", "/log", "/9"]), TEXT, st.binary(max_size=200)), max_size=8
    ),
    st.none() | st.uuids(),
)
def test_arbitrary_signals_are_stored(requests: list[tuple[str, str, bytes]], rid: UUID | None) -> None:
    """Arbitrary bodies, user agents and rids, both through the batch and in one transaction."""
    monitor = job()
    given_signals = []
    for second, (word, agent, body) in enumerate(requests):
        target = target_of("POST", f"/v1/heartbeats/{monitor.public_id}/ping{word}")
        assert target is not None
        meta = {
            "REQUEST_METHOD": "POST",
            "HTTP_USER_AGENT": agent,
            "REMOTE_ADDR": "::ffff:192.0.2.1%eth0",
            "QUERY_STRING": f"a={agent.encode(errors='replace').hex()}&;;=%ff" + (f"&rid={rid}" if rid else ""),
        }
        address = client_of(meta).address
        given_signals.append(signal_of(meta, target, body, at=at(second), remote_addr=address))
    plain = [each for each in given_signals if each.is_plain]
    kept = [each for each, is_kept in zip(plain, heartbeats.keep_up(plain), strict=True) if is_kept] if plain else []
    rest = [each for each in given_signals if not any(each is other for other in kept)]
    assert heartbeats.record_all(rest) == [True] * len(rest)
    stored = Ping.objects.filter(monitor_id=monitor.pk).values_list("kind", "user_agent", "body", "rid", "remote_addr")
    assert sorted(stored, key=repr) == sorted(
        ((each.target.kind, each.user_agent, each.body, each.rid, "192.0.2.1") for each in given_signals), key=repr
    )
    assert all("\0" not in each.user_agent + (each.body or "") for each in given_signals)
