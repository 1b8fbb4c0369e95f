"""`/system`: the status of the deployment, also while parts of it are down."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django.fixtures import Settings

from alerts.models import AlertChannel
from checks.own_network import OwnNetwork
from config import system_status
from core import metrics
from core.clock import utc_now
from core.postgresql import HISTORY
from core.version import product_version
from locations.models import Location
from monitors.agents.leases import BEHIND
from monitors.checking.own_network import follow
from monitors.models import Monitor, MonitorState
from monitors.scheduling import tick
from statuspages.models import PageEvent, PageMail, StatusPage, Subscriber
from tests.alerts.inbox import Inbox
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, UserFactory
from tests.helpers import flush_broker
from tests.locations import add_agent, shared
from tests.processes.up import free_port

# Read over a separate connection, which sees committed rows only.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _asked_anew(fresh_health: None) -> Iterator[None]:
    flush_broker()
    tick(utc_now())
    yield
    flush_broker()


def words(client: Client) -> str:
    answer = client.get(reverse("system_health"))
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    main = answer.content.decode().partition('id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", main)).split())


def test_what_there_is_to_look_at(staff: Client) -> None:
    monitor = MonitorFactory()
    MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=utc_now() - timedelta(hours=3, minutes=20))
    DeliveryFactory(channel=ChannelFactory(owner=monitor.owner), dead=True)
    page = StatusPage.objects.create(owner=monitor.owner, created_at=utc_now(), name="Shop", slug="shop")
    event = PageEvent.objects.create(page=page, kind="note", source="n", title="", text="", at=utc_now())
    subscriber = Subscriber.objects.create(
        page=page, created_at=utc_now(), address="a@example.com", address_digest=b"d", hint="a…"
    )
    PageMail.objects.create(event=event, subscriber=subscriber, next_try_at=utc_now(), give_up_at=utc_now())
    shown = words(staff)
    for line in (
        "Longest overdue monitor 3 h 20 min",
        "Due monitors 1",
        "The oldest due monitor has waited for 3 h 20 min: workers do not keep up, or none runs.",
        "Dead deliveries 1 View dead deliveries",
        "Alerts were given up",
        "Subscriber mails waiting 1",
        "dispatcher 0",
        "No process reports as web, worker, interactive, dispatcher, beat.",
        "probes 0",
        "Partitions ahead of checks_checkresult",
        "checks_hourlyrollup",
    ):
        assert line in shown, line
    assert re.search(r"Last scheduler run \d+ s ago", shown)
    assert re.search(r"Database size \d+\.\d MB", shown)


def test_it_asks_little(staff: Client) -> None:
    words(staff)
    with CaptureQueriesContext(connection) as captured:
        words(staff)
    assert len(captured) <= 5, "of the session and the person; the rest goes over a connection of its own"


def test_packing(staff: Client) -> None:
    """It begins a day after the migration."""
    with connection.cursor() as cursor:
        statement = "UPDATE django_migrations SET applied = %s WHERE name = '0005_packed_history'"
        cursor.execute(statement, [utc_now()])
        assert re.search(r"Packed until never Packing begins \d", words(staff))
        cursor.execute(statement, [utc_now() - timedelta(days=2)])
        assert "Packed until never" in (shown := words(staff))
        assert "Packing begins" not in shown


def test_without_the_broker(staff: Client, settings: Settings) -> None:
    settings.REDIS_URL = f"redis://:secret@127.0.0.1:{free_port()}/0"
    shown = words(staff)
    assert "Broker: does not answer." in shown
    assert "Processes and queues Unknown: the broker does not answer." in shown
    assert "Mail, network, lateness, clocks: not checked." in shown
    assert "Due monitors 0" in shown
    assert "secret" not in shown


def test_a_database_that_answers_too_slowly_leaves_the_rest(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_status, "_COUNTS", "SELECT pg_sleep(30)")
    monkeypatch.setattr(system_status, "PATIENCE_SEC", 1)
    shown = words(staff)
    assert "Monitors, alerts and storage are unknown: the database did not answer within 1 s." in shown
    assert "probes 0" in shown


def test_values_below_their_thresholds_are_no_problem() -> None:
    now = utc_now()
    status = system_status.system_status(now=now)
    assert status.database is not None
    assert status.broker is not None
    problems = list(system_status.find_problems(status, now=now))
    assert [line for line in problems if not line.startswith("No process reports")] == []
    assert not Monitor.objects.exists()


def test_workers_that_may_not_send_pings() -> None:
    now = utc_now()
    status = system_status.system_status(now=now)
    assert status.broker is not None
    status = replace(status, broker=replace(status.broker, without_pings=2))
    (problem,) = [line for line in system_status.find_problems(status, now=now) if "pings" in line]
    assert problem.startswith("2 workers may not send pings")
    assert "net.ipv4.ping_group_range" in problem
    assert "CAP_NET_RAW" in problem


def test_a_mail_server_that_is_missing_or_unreachable(staff: Client, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert "Alerts by e-mail are not delivered. No mail server is configured. Set EMAIL_URL" in words(staff)
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        settings.EMAIL_HOST, settings.EMAIL_PORT = closed.getsockname()
    assert re.search(r"Alerts by e-mail are not delivered\. .*refused.*Check EMAIL_URL", words(staff))
    with Inbox() as inbox:
        settings.EMAIL_PORT = inbox.port
        assert "Mail server ok" in words(staff)


def test_it_is_for_staff_and_linked(staff: Client, with_rights: Callable[..., Client]) -> None:
    address = reverse("system_health")
    assert address in staff.get(reverse("admin:index")).content.decode()
    assert staff.get("/admin/health/").headers["Location"] == address
    assert with_rights().get(address).status_code == 200
    somebody = Client()
    assert somebody.get(address).headers["Location"] == f"{reverse('account_login')}?next={address}"
    somebody.force_login(UserFactory())
    refused, absent = somebody.get(address), somebody.get("/nothing-here")
    assert refused.status_code == absent.status_code == 404
    main = [answer.content.decode().partition('id="content"')[2] for answer in (refused, absent)]
    assert main[0] == main[1]
    for client, is_linked in ((somebody, False), (staff, True)):
        assert (f'href="{address}"' in client.get(reverse("projects")).content.decode()) is is_linked


def test_failing_alerts_are_a_problem_but_one_failing_receiver_is_not(staff: Client) -> None:
    said = "Alerts to 2 channels fail and none was delivered in the last 10 min"
    owner = UserFactory()
    healthy = ChannelFactory(owner=owner)
    for number in range(2):
        assert said not in words(staff), number
        channel = ChannelFactory(owner=owner)
        DeliveryFactory(channel=channel)
        AlertChannel.objects.filter(pk=channel.pk).update(failures=1)
    assert said in words(staff)
    AlertChannel.objects.filter(pk=healthy.pk).update(last_sent_at=utc_now() - timedelta(minutes=1))
    assert said not in words(staff)


def test_servers_that_have_never_answered_a_process_are_listed(staff: Client) -> None:
    follow(OwnNetwork([("192.0.2.1", 443)]))
    metrics.report()
    assert "192.0.2.1:443 of CONNECTIVITY_TARGETS has never answered" in words(staff)


def test_locations_and_their_agents(staff: Client) -> None:
    fra, ohio, old, private = (shared(name.lower(), name=name) for name in ("Frankfurt", "Ohio", "Oslo", "Attic"))
    owner = UserFactory()
    Location.objects.filter(pk=private.pk).update(owner=owner)
    shared("unused", name="Unused")
    now = utc_now()
    add_agent(fra, name="fra-1", version=product_version(), seen=now, checks_per_min=118, lag_ms=38)
    add_agent(fra, name="fra-2", version="0.9.1", seen=now)
    add_agent(ohio, name="ohio-1", seen=now - timedelta(hours=1))
    add_agent(old, name="old-1", version=product_version(), protocol=0, seen=now)
    add_agent(private, name="attic-1")
    assert "offline, and checks nothing" not in words(staff), "no monitor names them"
    MonitorFactory(owner=owner, locations=["default", *(one.public_id for one in (fra, ohio, old, private))])
    shown = words(staff)
    for line in (
        f"Agents of Frankfurt do not have version {product_version()}: update fra-2 (0.9.1).",
        "The location Ohio is offline, and checks nothing: none of its agents is online.",
        "Agents of Oslo are too old for this server: update or revoke old-1.",
        f"Frankfurt online fra-1 {product_version()} 118 checks/min, lag 38 ms",
        "Unused · no monitors no agent yet",
        "Attic private offline attic-1",
    ):
        assert line in shown, line
    assert "The location Attic" not in shown, "its owner is notified"
    assert "The location Frankfurt" not in shown
    assert "Locations: " not in shown, "they are named"
    assert "Private locations offline" not in shown


def test_agents_that_are_behind_and_private_locations(staff: Client) -> None:
    fra, private = (shared(name.lower(), name=name) for name in ("Frankfurt", "Attic"))
    owner, now = UserFactory(), utc_now()
    Location.objects.filter(pk=private.pk).update(owner=owner, offline_since=now)
    agent, old = add_agent(fra, seen=now, version=product_version()), add_agent(private, name="attic-1", protocol=0)
    for location, each in ((fra, agent), (fra, agent), (private, old)):
        monitor = MonitorFactory(owner=owner, locations=[location.public_id])
        MonitorState.objects.filter(pk=monitor.pk).update(agent_id=each.pk, fault=BEHIND, fault_since=now)
    shown = words(staff)
    assert "The agents of Frankfurt are behind, and 2 checks had to wait: connect another agent." in shown
    assert "The agents of Attic" not in shown
    assert "Private locations offline 1" in shown
    assert "Agents of private locations with an older protocol 1" in shown


@pytest.mark.usefixtures("second_database")
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_sizes_of_both_databases(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = words(staff)
    assert re.search(r"History database size \d+\.\d MB Partitions ahead of checks_hourlyrollup", shown)
    assert "History ok" in shown
    elsewhere = connections.settings[HISTORY] | {"HOST": "127.0.0.1", "PORT": "1"}
    monkeypatch.setitem(connections.settings, HISTORY, elsewhere)  # of connections in new threads
    shown = words(staff)
    assert "History: its database does not answer: checks and alerts go on" in shown
    assert "History database size" not in shown
    assert "Longest overdue monitor" in shown
