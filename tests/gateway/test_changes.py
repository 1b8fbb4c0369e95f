"""The streams of changes that open pages follow: recipients of events, ends of streams, and limits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pytest
import requests
from django.contrib.sessions.models import Session
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.spec import Verdict
from config import changes
from config.connections import Connections
from config.gateway import Gateway
from config.shares import ThreadLane
from core import metrics
from core.clock import utc_now
from dashboard import changes as feed
from dashboard.changes import Feed, Follower, last_rows
from incidents.services import declare
from monitors.models import Monitor, StatusChange
from monitors.services import update_monitor
from projects.access import Caller
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.processes.waiting import until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SEC = 30
EVENT = b"data: changed\n\n"


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(changes, "EVERY_SEC", 0.05)
    monkeypatch.setattr(changes, "RECHECK_SEC", 0.0)
    monkeypatch.setattr(changes, "REFILL_SEC", 1_000.0)
    settings.ALLOWED_HOSTS = ["127.0.0.1"]


@pytest.fixture
def connections() -> Connections:
    return Connections()


@pytest.fixture
def gateway(connections: Connections) -> Gateway:
    return Gateway(WSGIHandler(), connections=connections)


@pytest.fixture
def port(gateway: Gateway) -> Iterator[int]:
    with serving(gateway) as port:
        yield port


class Browser:
    """A browser with a stream. `received` has all data."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self.received = b""
        self.has_ended = False

    @property
    def head(self) -> bytes:
        return self.wait_for(b"\r\n\r\n").partition(b"\r\n\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    def wait_for(self, text: bytes) -> bytes:
        while text not in self.received:
            self._receive()
        return self.received

    def wait_for_events(self, count: int) -> int:
        """Wait until this number of events has arrived. Return the number."""
        while self.received.count(EVENT) < count:
            self._receive()
        return self.received.count(EVENT)

    def wait_for_end(self) -> None:
        while not self.has_ended:
            self._receive()

    def _receive(self) -> None:
        assert not self.has_ended, self.received
        part = self._connected.recv(65_536)
        self.received += part
        # The last chunk ends the response, and the connection stays open.
        self.has_ended = not part or self.received.endswith(b"\r\n0\r\n\r\n")


def session_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


@contextmanager
def following(port: int, user: User | None, *, address: str = "127.0.0.1", cookie: str = "") -> Iterator[Browser]:
    """Return a browser whose stream has begun or was refused."""
    cookie = cookie or (session_of(user) if user is not None else "none")
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SEC, source_address=(address, 0)) as client:
        head = f"GET /changes HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: sessionid={cookie}\r\n\r\n"
        client.sendall(head.encode())
        browser = Browser(client)
        if browser.status == 200:
            browser.wait_for(b"retry: ")
        yield browser


def change(monitor: Monitor) -> None:
    """Store a change of status, as recording does."""
    StatusChange.objects.create(monitor=monitor, at=utc_now(), before=Verdict.UP, after=Verdict.DOWN)


def test_events_reach_those_who_see_the_monitor(port: int) -> None:
    owner, member, stranger = (UserFactory() for _ in range(3))
    project = ProjectFactory(owner=owner, member=member)
    shared, own, other = (
        MonitorFactory(owner=owner, project=project),
        MonitorFactory(owner=owner),
        MonitorFactory(owner=stranger),
    )
    with following(port, owner) as first, following(port, member) as second, following(port, stranger) as third:
        assert b"text/event-stream" in first.head
        assert b"x-accel-buffering: no" in first.head.lower()
        assert b"content-length" not in first.head.lower()
        change(own)
        first.wait_for_events(1)
        change(shared)
        first.wait_for_events(2)
        second.wait_for_events(1)
        change(other)
        third.wait_for_events(1)
        # Each query sends to all streams, so an event for others would have arrived before.
        assert [browser.received.count(EVENT) for browser in (first, second, third)] == [2, 1, 1]


@pytest.mark.parametrize("kind", ["paused", "created", "incident"])
def test_what_is_a_change(port: int, kind: str) -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, up=True)
    with following(port, user) as browser:
        if kind == "paused":
            update_monitor(Caller(user), monitor.public_id, {"enabled": False}, now=utc_now())
        elif kind == "created":
            MonitorFactory(owner=user)
        else:
            declare(Caller(user), {"title": "Power cut", "text": "Both racks.", "project_id": None}, now=utc_now())
        browser.wait_for_events(1)


def test_a_stream_needs_a_session(port: int) -> None:
    with following(port, None) as browser:
        assert browser.status == 401
    refused = requests.post(f"http://127.0.0.1:{port}/changes", timeout=PATIENCE_SEC)
    assert refused.status_code in (403, 405)


def test_a_stream_ends_with_its_session(port: int) -> None:
    user, blocked, renewed = UserFactory(), UserFactory(), UserFactory()
    monitor, key = MonitorFactory(owner=user), session_of(user)
    with ExitStack() as stack:
        signed_out, other = (stack.enter_context(following(port, user, cookie=cookie)) for cookie in (key, ""))
        second, third = (stack.enter_context(following(port, one)) for one in (blocked, renewed))
        Session.objects.filter(session_key=key).delete()
        signed_out.wait_for_end()
        User.objects.filter(pk=blocked.pk).update(is_active=False)
        second.wait_for_end()
        renewed.set_password("another fine long password")
        renewed.save(update_fields=["password"])
        third.wait_for_end()
        change(monitor)
        other.wait_for_events(1)


def test_a_removed_member_gets_no_more_events(port: int) -> None:
    owner, member = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner)
    membership = MembershipFactory(project=project, user=member)
    monitor, own = MonitorFactory(owner=owner, project=project), MonitorFactory(owner=member)
    with following(port, member) as browser:
        change(monitor)
        browser.wait_for_events(1)
        membership.delete()
        for count in (2, 3):  # the look that finds the second one reads the role after the membership has ended
            change(own)
            browser.wait_for_events(count)
        change(monitor)
        change(own)
        assert browser.wait_for_events(4) == 4


@pytest.fixture
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "STREAMS_OF_ACCOUNT", 2)
    monkeypatch.setattr(changes, "STREAMS_OF_SESSION", 1)
    monkeypatch.setattr(changes, "MEMORY_BYTES", 12 * changes.STREAM_BYTES)


def open_streams() -> float:
    metrics.report()
    return changes.STREAMS.read(metrics.read_levels())[()]


@pytest.mark.usefixtures("_little_room")
def test_streams_have_limits(port: int) -> None:
    user = UserFactory()
    cookie = session_of(user)
    with following(port, user, cookie=cookie) as first, following(port, user) as second:
        assert (first.status, second.status) == (200, 200)
        with following(port, user, address="127.0.0.2") as refused:
            assert refused.status == 429, "an account has two"
        with following(port, UserFactory(), address="127.0.0.1") as refused:
            assert refused.status == 429, "an address has a quarter of what is free"
        with following(port, UserFactory(), address="127.0.0.3") as another:
            assert another.status == 200
    until(lambda: not open_streams(), PATIENCE_SEC, "all places are free")
    with following(port, user, cookie=cookie) as first:
        assert first.status == 200
        with following(port, user, cookie=cookie) as refused:
            assert refused.status == 429, "a session has one"


def test_streams_hold_no_thread_and_end_with_the_process(port: int, gateway: Gateway, connections: Connections) -> None:
    users = [UserFactory() for _ in range(4)]
    cookies = [session_of(user) for user in users for _ in range(7)]
    with ExitStack() as stack:
        stack.enter_context(following(port, users[0]))
        before = threading.active_count()
        browsers = [
            stack.enter_context(following(port, None, cookie=cookies[n % 28], address=f"127.0.0.{2 + n % 8}"))
            for n in range(100)
        ]
        assert threading.active_count() < before + 20
        assert requests.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SEC).status_code == 200
        page = requests.get(
            f"http://127.0.0.1:{port}/monitors", cookies={"sessionid": cookies[0]}, timeout=PATIENCE_SEC
        )
        assert page.status_code == 200
        assert not connections.active, "the guard may end them"
        loop = next(iter(gateway._changes._open)).ended.get_loop()
        loop.call_soon_threadsafe(gateway._changes.close)  # as SIGTERM does
        for browser in browsers:
            browser.wait_for_end()
        with following(port, None, cookie=cookies[0]) as late:
            assert late.status == 503


def test_a_stream_has_events_at_a_limited_rate(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "BURST", 3)
    user, other = UserFactory(), UserFactory()
    monitor, last = MonitorFactory(owner=user), MonitorFactory(owner=other)
    with following(port, user) as browser, following(port, other) as witness:
        for count in range(3):
            change(monitor)
            browser.wait_for_events(count + 1)
        change(monitor)
        change(last)
        witness.wait_for_events(1)
        assert browser.received.count(EVENT) == 3


def test_streams_without_credit_wait_behind_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a few hundred streams with constant changes would use all events of the process."""
    monkeypatch.setattr(changes, "MOST_AT_ONCE", 1)
    streams = changes.Streams(ThreadLane("streams", threads=1, at_once=1, queue=1))
    sent = []

    class Transport:
        def __init__(self, name: str) -> None:
            self.name = name

        async def send_bytes(self, data: bytes) -> None:
            sent.append(self.name)

    async def look() -> None:
        follower = Follower(0, "", "", frozenset(), ())
        busy, first, second = (changes.Stream(cast("Any", Transport(name)), follower) for name in ("busy", "1", "2"))
        streams._due = dict.fromkeys([busy, first, second])
        busy._credit = 0.0
        await streams._send()
        busy._credit = 1.0
        await streams._send()
        await streams._send()

    asyncio.run(look())
    assert sent == ["1", "2", "busy"]


def test_a_silent_stream_has_comments(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SILENT_SEC", 0.0)
    with following(port, UserFactory()) as browser:
        browser.wait_for(b":\n\n")


# The feed


def test_a_row_that_is_committed_later_is_found() -> None:
    first, second = MonitorFactory(), MonitorFactory()
    since = last_rows()
    reader = Feed(since)
    late = StatusChange(monitor=first, at=utc_now(), after=Verdict.DOWN)
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('monitors_statuschange_id_seq')")
        (late.pk,) = cursor.fetchone()
    change(second)
    assert reader.read() == {("owner", second.owner_id)}
    late.save(force_insert=True)
    assert reader.read() == {("owner", first.owner_id)}
    assert reader.read() == set()


def test_the_feed_remembers_rows_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = MonitorFactory()
    reader = Feed(last_rows())
    change(monitor)
    assert reader.read() == {("owner", monitor.owner_id)}
    monkeypatch.setattr(feed, "HELD_SEC", -1.0)
    assert reader.read() == set()
    assert (reader._seen, list(reader._since)) == ({}, list(last_rows()))
    change(monitor)
    assert reader.read() == {("owner", monitor.owner_id)}


def test_too_many_changes_are_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_CHANGES", 3)
    monitor = MonitorFactory()
    reader = Feed(last_rows())
    for _ in range(5):
        change(monitor)
    assert reader.read() is None
    assert reader.read() == set()
