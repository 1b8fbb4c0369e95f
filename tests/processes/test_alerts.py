"""Alerts of the real process tree, as received by a mail server and by webhooks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from functools import partial
from typing import Any

import psycopg
import pytest
import requests
from celery import Celery
from psycopg import sql

from alerts.outbox import QUIET
from devserver.session import embedded_servers
from tests.alerts.inbox import Inbox, part
from tests.alerts.receiver import Call, Receiver
from tests.processes.client import PASSWORD, Client, manage
from tests.processes.up import Up, free_port
from tests.processes.waiting import until
from tests.site import Site
from tests.targets.server import Hang, TargetServer

SECRET = "a secret of the receiver"
STORM = 30
PATIENCE = 60  # seconds, on a machine that is busy with other tests
PEOPLE = ("outage", "testing", "hanging", "storm")
"""One account per test, so that late alerts of one test do not reach the next one."""

# All times that alerts depend on.
MOMENTS = {
    "incidents_incident": ("started_at", "confirmed_at", "announced_at", "acknowledged_at", "resolved_at"),
    "incidents_incidentevent": ("at",),
    "alerts_delivery": ("created_at", "next_try_at", "give_up_at", "done_at"),
    "alerts_deliveryitem": ("at",),
}


@dataclass(frozen=True)
class Stage:
    """A running instance, and the receivers of its messages."""

    up: Up
    inbox: Inbox
    receiver: Receiver
    database: psycopg.Connection
    broker: Celery

    def pass_time(self, time: timedelta) -> None:
        """Move all times into the past by this duration."""
        for table, columns in MOMENTS.items():
            shifted = sql.SQL(", ").join(
                sql.SQL("{0} = {0} - %(time)s").format(sql.Identifier(column)) for column in columns
            )
            self.database.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), shifted), {"time": time})

    def remind(self) -> None:
        """Run the tasks that beat sends every minute."""
        self.broker.send_task("alerts.tasks.remind", queue="alerts")


@pytest.fixture(scope="module")
def stage(up: Up, inbox: Inbox, clean_environment: dict[str, str]) -> Iterator[Stage]:
    manage(
        up,
        "from accounts.services import create_account\n"
        f"for name in {PEOPLE}:\n"
        f"    create_account(email=f'{{name}}@example.com', password={PASSWORD!r}, plan='pro')",
        clean_environment,
    )
    with Receiver() as receiver, ExitStack() as stack:
        servers = stack.enter_context(embedded_servers(up.data_dir))
        database = stack.enter_context(psycopg.connect(servers.database_url, autocommit=True))
        broker = stack.enter_context(Celery(broker=servers.redis_url, set_as_current=False))
        yield Stage(up, inbox, receiver, database, broker)


class Somebody:
    """A client with a new account, a channel for its address, and a webhook."""

    def __init__(self, stage: Stage, name: str) -> None:
        assert name in PEOPLE
        self._stage, self._path = stage, f"/{name}"
        self.email = f"{name}@example.com"
        self.client = Client(stage.up, self.email)
        (mail,) = self.client.get("/alert-channels")
        hook = self.add_webhook(stage.receiver.url + self._path)
        self.channels = {"email": mail["id"], "webhook": hook}

    def add_webhook(self, url: str) -> str:
        made = self.client.post("/alert-channels", {"kind": "webhook", "url": url, "secret": SECRET})
        channel_id: str = made["id"]
        return channel_id

    def watch(self, url: str, name: str) -> str:
        # A server that is switched off refuses at once; a busy machine may be slow.
        body = {"name": name, "url": url, "interval_sec": 1, "timeout_ms": 10_000, "fail_threshold": 1}
        monitor_id: str = self.client.post("/monitors", body)["id"]
        self.client.wait_for(monitor_id, "up")
        return monitor_id

    @property
    def mails(self) -> list[EmailMessage]:
        return [mail for mail in self._stage.inbox.mails if mail["To"] == self.email]

    @property
    def calls(self) -> list[Call]:
        return [call for call in self._stage.receiver.calls if call.path == self._path]

    def deliveries(self, channel_id: str) -> list[dict[str, Any]]:
        """Return the messages, oldest first."""
        found: list[dict[str, Any]] = self.client.get(f"/alert-channels/{channel_id}/deliveries")
        return found[::-1]

    def wait_until_sent(self, *channel_ids: str) -> None:
        """Wait until all deliveries to these channels, at least one, are sent."""
        for channel_id in channel_ids:
            until(partial(self._is_sent, channel_id), PATIENCE, f"all is sent to {channel_id} that is to be sent to it")

    def _is_sent(self, channel_id: str) -> bool:
        return {one["state"] for one in self.deliveries(channel_id)} == {"sent"}

    def hear(self, *events: str) -> None:
        """Wait until exactly these have arrived through both channels, in this order, and are marked as sent."""
        until(
            lambda: len(self.mails) >= len(events) and len(self.calls) >= len(events), PATIENCE, f"{events[-1]} arrives"
        )
        self.wait_until_sent(*self.channels.values())
        assert [call.json["event"] for call in self.calls] == list(events)
        assert [mail["Subject"].partition(" ")[0] for mail in self.mails] == [f"[{event.upper()}]" for event in events]

    def incident(self, monitor_id: str) -> Any:
        """Return the only incident of a monitor, with its timeline."""
        (incident,) = self.client.get(f"/incidents?monitor_id={monitor_id}")
        return self.client.get(f"/incidents/{incident['id']}")


@pytest.fixture(scope="module")
def somebody(stage: Stage) -> Iterator[Callable[[str], Somebody]]:
    with ExitStack() as stack:

        def sign_in(name: str) -> Somebody:
            found = Somebody(stage, name)
            stack.callback(found.client.close)
            return found

        yield sign_in


def is_genuine(call: Call) -> bool:
    """Return whether the signature is valid, as in docs/use/webhooks.md; receivers decide which age they accept."""
    signed = call.headers["Pulsekeeper-Timestamp"].encode() + b"." + call.body
    expected = "v1=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, call.headers["Pulsekeeper-Signature"])


def seen(text: str) -> str:
    """Return the text as readers see it: in lines, without the characters that prevent links in names."""
    return "\n".join(text.replace("\u200b", "").splitlines())


@dataclass(frozen=True)
class Outage:
    """An outage with an alert, a reminder, an acknowledgement and a recovery."""

    of: Somebody
    monitor_id: str
    url: str
    incident: dict[str, Any]
    link: str


@pytest.fixture(scope="module")
def outage(stage: Stage, somebody: Callable[[str], Somebody]) -> Iterator[Outage]:
    """Play an outage that is reported in four messages, each through both channels, and in this order."""
    owner = somebody("outage")
    with Site() as site:
        url = site.url("/ok")
        monitor_id = owner.watch(url, "Shop checkout")
        site.stop()
        owner.hear("down")
        incident_id = owner.incident(monitor_id)["id"]

        stage.pass_time(timedelta(hours=25))

        def is_reminded() -> bool:
            # Repeat it, in case a tick was running. It is created only once.
            stage.remind()
            return all(len(owner.deliveries(one)) == 2 for one in owner.channels.values())

        until(is_reminded, PATIENCE, "a reminder is made")
        owner.hear("down", "reminder")

        owner.client.post(f"/incidents/{incident_id}/acknowledge")
        owner.hear("down", "reminder", "acknowledged")

        stage.pass_time(timedelta(hours=25))
        stage.remind()  # of nothing, because it is acknowledged
        site.start()
        owner.hear("down", "reminder", "acknowledged", "recovered")
        link = f"http://127.0.0.1:{stage.up.port}/incidents/{incident_id}"
        yield Outage(owner, monitor_id, url, owner.incident(monitor_id), link)


def test_an_outage_is_notified_once_each_time_and_recorded(outage: Outage) -> None:
    assert (outage.incident["status"], outage.incident["resolution"]) == ("resolved", "recovered")
    taken = [("alert_sent", None)] * 2
    assert [(event["type"], event["data"].get("news")) for event in outage.incident["events"]] == [
        ("first_failure", None),
        ("confirmed", None),
        ("announced", "down"),
        *taken,
        ("announced", "reminder"),
        *taken,
        ("acknowledged", None),
        ("announced", "acknowledged"),
        *taken,
        ("resolved", None),
        ("announced", "recovered"),
        *taken,
    ]
    keys = {
        "email": [mail["Pulsekeeper-Delivery"] for mail in outage.of.mails],
        "webhook": [call.key for call in outage.of.calls],
    }
    for kind, channel_id in outage.of.channels.items():
        deliveries = outage.of.deliveries(channel_id)
        assert [one["id"] for one in deliveries] == keys[kind]
        assert {(one["state"], one["attempts"], one["last_error"]) for one in deliveries} == {("sent", 1, None)}
        assert [(item["news"], item["incident_id"]) for one in deliveries for item in one["items"]] == [
            (news, outage.incident["id"]) for news in ("down", "reminder", "acknowledged", "recovered")
        ]


SAID = (
    ("Shop checkout is down.", "Since", "Reason", "Connection failed"),
    ("Shop checkout is still down and not acknowledged.", "Since", "(1 day 1 h)", "Reason"),
    ("outage@example.com has acknowledged that Shop checkout is down.", "Since", "(1 day 1 h)"),
    ("Shop checkout is up again.", "Since", "Until", "(2 days 2 h)"),
)


def test_the_mails_of_an_outage_are_a_thread_for_people(outage: Outage) -> None:
    root = f"<thread.{outage.incident['id']}@pulsekeeper.example>"
    for mail, said in zip(outage.of.mails, SAID, strict=True):
        assert mail["References"] == mail["In-Reply-To"] == root
        # Mail programs also use the subject for threads, without its tag.
        assert mail["Subject"].partition("] ")[2] == "Shop checkout"
        assert mail["From"] == "Pulsekeeper <alerts@pulsekeeper.example>"
        assert mail.get_content_type() == "multipart/alternative"
        text, html = seen(part(mail, "plain")), seen(part(mail, "html"))
        assert text.startswith(f"{said[0]}\n")
        assert text.endswith(f"\n{outage.link}")
        assert f'href="{outage.link}"' in html
        for words in (*said, outage.url):
            assert words in text
            assert words in html
    assert len({mail["Message-ID"] for mail in outage.of.mails}) == 4


def test_the_link_of_an_alert_asks_who_is_not_signed_in_to_sign_in(outage: Outage) -> None:
    answer = requests.get(outage.link, allow_redirects=False, timeout=10)
    path = f"/incidents/{outage.incident['id']}"
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/account/login/?next={path}")
    assert "Shop checkout" not in answer.text


def test_the_webhooks_of_an_outage_are_signed_and_say_the_same(outage: Outage) -> None:
    for call, said in zip(outage.of.calls, SAID, strict=True):
        assert is_genuine(call)
        body = call.json
        assert (body["id"], body["version"], body["link"]) == (call.key, 1, outage.link)
        assert seen(body["text"]) == said[0]
        assert body["monitor"] == {"id": outage.monitor_id, "name": "Shop checkout", "type": "http", "url": outage.url}
        assert (body["incident"]["id"], body["incident"]["reason_code"]) == (
            outage.incident["id"],
            "connection_failure",
        )
    ends = [call.json["incident"]["resolved_at"] for call in outage.of.calls]
    assert ends == [None, None, None, outage.incident["resolved_at"]]


def test_a_test_reports_the_response(somebody: Callable[[str], Somebody]) -> None:
    tester = somebody("testing")

    def tried(channel_id: str) -> tuple[bool, str]:
        found = tester.client.post(f"/alert-channels/{channel_id}/test")
        return found["delivered"], found["detail"]

    assert tried(tester.channels["webhook"]) == (True, "The receiver answered 200.")
    assert tried(tester.channels["email"]) == (True, "The mail server accepted the message.")
    closed = tester.add_webhook(f"http://127.0.0.1:{free_port()}/")
    assert tried(closed) == (False, "The receiver refused the connection.")

    (call,), (mail,) = tester.calls, tester.mails
    assert is_genuine(call)
    assert (call.json["event"], call.json["incident"]) == ("test", None)
    assert mail["Subject"] == "[TEST] Pulsekeeper"
    assert "This is a test." in part(mail, "plain")
    (logged,) = tester.deliveries(closed)
    assert (logged["state"], logged["last_error"]) == ("failed", "The receiver refused the connection.")
    assert [one["state"] for one in tester.deliveries(tester.channels["email"])] == ["sent"]


def test_a_receiver_that_hangs_delays_no_other(stage: Stage, somebody: Callable[[str], Somebody]) -> None:
    owner = somebody("hanging")
    with Site() as site, TargetServer() as targets:
        monitor_id = owner.watch(site.url("/ok"), "Shop")
        # Alerts are sent in order, so the others would wait for this one if a receiver could block another.
        hanging = targets.serve([Hang()])
        held = owner.add_webhook(hanging.url())
        after = owner.add_webhook(f"{stage.receiver.url}/after")
        site.stop()
        until(lambda: hanging.seen, PATIENCE, "a receiver that does not answer is called")
        owner.wait_until_sent(after)
        (delivery,) = owner.deliveries(held)
        assert (delivery["state"], delivery["attempts"], delivery["last_error"]) == ("waiting", 1, None), (
            "its first attempt is still running"
        )
        owner.hear("down")
        told = [event["type"] for event in owner.incident(monitor_id)["events"]]
        assert told == ["first_failure", "confirmed", "announced", *["alert_sent"] * 3]
    assert [call.json["event"] for call in stage.receiver.calls if call.path == "/after"] == ["down"]


def test_thirty_outages_at_once_are_three_messages_at_most(stage: Stage, somebody: Callable[[str], Somebody]) -> None:
    owner = somebody("storm")
    names = [f"Shop {number:02}" for number in range(1, STORM + 1)]
    with Site() as site:
        for number, name in enumerate(names):
            owner.watch(site.url(f"/ok?{number}"), name)
        site.stop()

        def all_written() -> bool:
            found = [owner.deliveries(one) for one in owner.channels.values()]
            return all(sum(len(one["items"]) for one in deliveries) >= STORM for deliveries in found)

        until(all_written, PATIENCE, "all are down, and their alerts are stored")
        stage.pass_time(QUIET)
        owner.wait_until_sent(*owner.channels.values())

    assert len(owner.calls) <= 3
    assert all(is_genuine(call) for call in owner.calls)
    items = [item for call in owner.calls for item in call.json.get("items", [call.json])]
    assert sorted(item["monitor"]["name"] for item in items) == names
    assert {item["event"] for item in items} == {"down"}

    assert len(owner.mails) <= 3
    text = "".join(part(mail, "plain") for mail in owner.mails)
    assert [name for name in names if text.count(name) != 1] == []
    last = owner.deliveries(owner.channels["email"])[-1]
    assert owner.mails[-1]["Subject"] == f"[DOWN] {len(last['items'])} monitors are down"

    incidents = [owner.client.get(f"/incidents/{one['id']}") for one in owner.client.get("/incidents")]
    assert sorted(incident["title"] for incident in incidents) == names
    for incident in incidents:
        told = [event["type"] for event in incident["events"]]
        assert told == ["first_failure", "confirmed", "announced", "alert_sent", "alert_sent"]
