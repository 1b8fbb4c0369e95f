"""Services with their own forms: accepted settings, the request to each, and its responses.

The services are real HTTPS servers on loopback with certificates for the services' own names. Only name resolution is
replaced, so the address, the certificate check and the request are those of a real delivery.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import transaction
from pytest_django import Settings

from alerts.events import EventType, Payload
from alerts.messages import render
from alerts.models import AlertChannel
from alerts.outbox import OutboxItem, put
from alerts.transports import KINDS
from alerts.transports.base import AppriseService
from core.clock import utc_now
from notifications.outbox import SendResult
from tests.alerts import samples
from tests.alerts.samples import BASE_URL, DOWN, NOW, RECOVERED
from tests.api.client import Api
from tests.factories import ChannelFactory, UserFactory
from tests.targets.certificates import Certificates
from tests.targets.server import Script, Seen, Site, TargetServer, answer

PATH = "/v1/alert-channels"
OK_JSON = "Content-Type: application/json"
HOOK = "JHZ7lQml277CDHmQKMHI8qBe7bk2ZwO5UKjCiOAF7711o33MyqU344Qpgv7YTpadV_js"
KEY = "R0ABCDEF0123456789ABCDEF01234567"
WORKFLOW = "1234567890abcdef1234567890abcdef"
SIG = "k3yK3yk3yK3yk3yK3yk3yK3yk3yK3y-_k3yK3y"
RUN = f"/workflows/{WORKFLOW}/triggers/manual/paths/invoke"
SLACK_PATH = "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ".replace("/A1", "/B1")
LOGIC, FLOWS = "prod-01.westeurope.logic.azure.com", "default0a1b.73.environment.api.powerplatform.com"
SHARED = "&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0"
BOT = "123456789:AAaabbccddeeffgghhiijjkkllmmnnooppq"
TK = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
USER, APP = "uQiRzpo4DXghDmr9QzzfQu27cmVRsG", "azGDORePK8gMaC0QOYAMyEEuzJnyUi"


@dataclass(frozen=True)
class Case:
    """Entered settings, and the request that the service must get."""

    kind: str
    given: Mapping[str, str]
    host: str
    path: str
    answer: Script
    refusal: Script
    hint: str
    says: Callable[[Seen], str] = lambda request: request.body.decode()
    sent: Callable[[Seen], dict[str, Any]] = lambda _: {}
    expected: Mapping[str, Any] | None = None


def of_json(*names: str) -> Callable[[Seen], dict[str, Any]]:
    return lambda request: {name: json.loads(request.body).get(name) for name in names}


def of_form(*names: str) -> Callable[[Seen], dict[str, Any]]:
    return lambda request: {name: parse_qs(request.body.decode())[name][0] for name in names}


CASES = {
    "slack": Case(
        "slack",
        {"url": f"https://hooks.slack.com{SLACK_PATH}"},
        "hooks.slack.com",
        SLACK_PATH,
        [answer(200, b"ok")],
        [answer(404, b"no_service")],
        "…D4JD",
    ),
    "discord": Case(
        "discord",
        {"url": f"https://canary.discord.com/api/webhooks/417429632418316298/{HOOK}"},
        "discord.com",
        f"/api/webhooks/417429632418316298/{HOOK}",
        [answer(204)],
        [answer(404, b'{"message": "Unknown Webhook", "code": 10015}', OK_JSON)],
        "…6298",
    ),
    "teams": Case(
        "teams",
        {"url": f"https://{LOGIC}:443{RUN}?api-version=2016-06-01{SHARED}&sig={SIG}"},
        LOGIC,
        RUN,
        [answer(202)],
        [answer(401, b'{"error": {"code": "DirectApiAuthorizationRequired"}}', OK_JSON)],
        "…cdef",
        sent=lambda request: {k: v[0] for k, v in parse_qs(urlsplit(request.path).query).items()},
        expected={"api-version": "2016-06-01", "sp": "/triggers/manual/run", "sv": "1.0", "sig": SIG},
    ),
    "teams of Power Platform": Case(
        "teams",
        {"url": f"https://{FLOWS}:443/powerautomate/automations/direct{RUN}/?api-version=1{SHARED}&sig={SIG}"},
        FLOWS,
        f"/powerautomate/automations/direct{RUN}",
        [answer(202)],
        [answer(404, b"{}", OK_JSON)],
        "…cdef",
        sent=lambda request: {k: v[0] for k, v in parse_qs(urlsplit(request.path).query).items()},
        expected={"api-version": "1", "sp": "/triggers/manual/run", "sv": "1.0", "sig": SIG},
    ),
    "telegram": Case(
        "telegram",
        {"bot_token": BOT, "chat_id": "-1001234567890"},
        "api.telegram.org",
        f"/bot{BOT}/sendMessage",
        [answer(200, b'{"ok": true, "result": {}}', OK_JSON)],
        [answer(400, b'{"ok": false, "description": "Bad Request: chat not found"}', OK_JSON)],
        "-1001234567890",
        sent=of_json("chat_id"),
        expected={"chat_id": -1001234567890},
    ),
    "telegram by name": Case(
        "telegram",
        {"bot_token": BOT, "chat_id": "@shop_status"},
        "api.telegram.org",
        f"/bot{BOT}/sendMessage",
        [answer(200, b'{"ok": true, "result": {}}', OK_JSON)],
        [answer(403, b'{"ok": false, "description": "Forbidden"}', OK_JSON)],
        "@shop_status",
        sent=of_json("chat_id"),
        expected={"chat_id": "@shop_status"},
    ),
    "ntfy": Case(
        "ntfy",
        {"topic": "Shop-alerts", "access_token": TK, "priority": "high"},
        "ntfy.sh",
        "/",
        [answer(200, b'{"id": "x"}', OK_JSON)],
        [answer(403, b'{"code": 40301, "error": "forbidden"}', OK_JSON)],
        "ntfy.sh/Sh…",
        sent=lambda request: {
            "topic": json.loads(request.body)["topic"],
            "authorization": request.header("authorization"),
            "priority": request.header("x-priority"),
        },
        expected={"topic": "Shop-alerts", "authorization": f"Bearer {TK}", "priority": "high"},
    ),
    "ntfy elsewhere": Case(
        "ntfy",
        {"topic": "alerts", "server": "https://ntfy.example.com:8443"},
        "ntfy.example.com",
        "/",
        [answer(200, b"{}", OK_JSON)],
        [answer(429, b"{}", OK_JSON)],
        "ntfy.example.com:8443/al…",
        sent=lambda request: {"authorization": request.header("authorization")},
        expected={"authorization": None},
    ),
    "pushover": Case(
        "pushover",
        {"user_key": USER, "app_token": APP, "priority": "high"},
        "api.pushover.net",
        "/1/messages.json",
        [answer(200, b'{"status": 1}', OK_JSON)],
        [answer(400, b'{"status": 0, "errors": ["user identifier is invalid"]}', OK_JSON)],
        "…VRsG",
        sent=of_form("user", "token", "priority"),
        expected={"user": USER, "token": APP, "priority": "1"},
        says=lambda request: parse_qs(request.body.decode())["message"][0],
    ),
    "pagerduty": Case(
        "pagerduty",
        {"integration_key": KEY, "region": "eu"},
        "events.eu.pagerduty.com",
        "/v2/enqueue",
        [answer(202, b'{"status": "success", "message": "Event processed"}', OK_JSON)],
        [answer(400, b'{"status": "invalid event"}', OK_JSON)],
        "…4567",
        sent=of_json("routing_key", "event_action", "dedup_key"),
        expected={"routing_key": KEY, "event_action": "trigger", "dedup_key": DOWN.incident_id},
    ),
}


@pytest.fixture
def api(db: None) -> Api:
    return Api.signed_in(UserFactory())


@pytest.fixture
def pose(
    targets: TargetServer, certificates: Certificates, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Any], Site]:
    """Serve a script under a service's own name, with a certificate for it."""
    settings.SSL_CERT_FILE = certificates.ca_file
    real = socket.getaddrinfo

    def pose(host: str, script: Script | Callable[[Seen], Script]) -> Site:
        site = targets.serve(script, tls=certificates.for_host(host))

        def resolve(name: str, port: Any, *args: Any, **kwargs: Any) -> Any:
            if name != host:
                return real(name, port, *args, **kwargs)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", site.port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        return site

    return pose


Pose = Callable[[str, Any], Site]


def stored(api: Api, kind: str, given: Mapping[str, str]) -> AlertChannel:
    made = api.post(PATH, {"kind": kind, **given})
    assert made.status == 201, made.text
    return AlertChannel.objects.get(public_id=made.json["id"])


def deliver(channel: AlertChannel, name: str = "down") -> SendResult:
    return KINDS[channel.kind].send(channel.config, samples.rendered(name), key="dlv_1", now=NOW)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_the_service_shows_is_enough_to_send(api: Api, pose: Pose, case: Case) -> None:
    channel = stored(api, case.kind, case.given)
    label = KINDS[case.kind].label
    assert (channel.hint, channel.name) == (case.hint, f"{label} {case.hint}")
    site = pose(case.host, case.answer)
    assert deliver(channel) == SendResult(delivered=True, detail=f"{label} accepted the message.")
    (request,) = site.seen
    assert request.method == "POST"
    assert urlsplit(request.path).path == case.path
    assert "Shop checkout is down." in case.says(request)
    assert case.sent(request) == (case.expected or {})
    shown = api.get(f"{PATH}/{channel.public_id}").text + api.get(PATH).text
    secrets = [s for s in KINDS[case.kind].settings if s.secret]
    assert not any(case.given[s.name] in shown for s in secrets if s.name in case.given)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_refusal_is_no_delivery_and_names_no_secret(api: Api, pose: Pose, case: Case) -> None:
    channel = stored(api, case.kind, case.given)
    site = pose(case.host, case.refusal)
    outcome = deliver(channel)
    assert (outcome.delivered, outcome.retry) == (False, True)
    assert outcome.detail.startswith(f"{KINDS[case.kind].label}: The receiver answered 4")
    assert len(site.seen) == 1
    for value in channel.config.values():
        assert len(value) < 6 or value not in outcome.detail


def test_every_service_has_a_case() -> None:
    assert {case.kind for case in CASES.values()} == {
        name for name, kind in KINDS.items() if isinstance(kind, AppriseService)
    }


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("slack", {"url": "https://hooks.slack.com/services/T1JJ3T3L2"}, "url: must be the URL of an incoming"),
    ("slack", {"url": f"https://hooks.slack.example{SLACK_PATH}"}, "for example https://hooks.slack.com/"),
    ("slack", {"url": f"http://hooks.slack.com{SLACK_PATH}"}, "url: must be"),
    ("slack", {"url": f"https://hooks.slack.com{SLACK_PATH}?template=/etc/passwd"}, "url: must be"),
    ("slack", {"url": f"https://hooks.slack.com{SLACK_PATH}\n"}, "url: must be"),
    ("slack", {"url": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"}, "url: must be"),
    ("slack", {}, "url: is required for a channel of kind slack"),
    ("slack", {"url": f"https://hooks.slack.com{SLACK_PATH}", "secret": "x" * 20}, "secret: is not a field"),
    ("discord", {"url": "https://discord.com/api/webhooks/417429632418316298"}, "url: must be the URL of a"),
    ("discord", {"url": f"https://discord.example/api/webhooks/417429632418316298/{HOOK}"}, "url: must be"),
    ("teams", {"url": "https://acme.webhook.office.com/webhookb2/x"}, "url: is of an Office 365 connector"),
    ("teams", {"url": f"https://{LOGIC}{RUN}?api-version=2016-06-01"}, "url: must be the whole URL"),
    ("teams", {"url": f"https://logic.azure.com.example{RUN}?api-version=1&sig={SIG}"}, "url: must be the whole URL"),
    ("teams", {"url": f"https://me@{LOGIC}{RUN}?api-version=1&sig={SIG}"}, "url: must be the whole"),
    ("telegram", {"bot_token": BOT}, "chat_id: is required"),
    ("telegram", {"bot_token": "123:abc", "chat_id": "1"}, "bot_token: must be the token that BotFather"),
    ("telegram", {"bot_token": BOT, "chat_id": "shop"}, "chat_id: must be the number of a chat"),
    ("telegram", {"bot_token": BOT, "chat_id": "1/../2"}, "chat_id: must be"),
    ("ntfy", {"topic": "a b"}, "topic: must be 1 to 64 letters"),
    ("ntfy", {"topic": "https://ntfy.sh/a/b"}, "topic: must be 1 to 64 letters"),
    ("ntfy", {"topic": "https://ntfy.sh/"}, "topic: must be 1 to 64 letters"),
    ("ntfy", {"topic": "https://ntfy.sh/a?priority=5"}, "topic: must be 1 to 64 letters"),
    ("ntfy", {"topic": "ftp://ntfy.sh/a"}, "server: must be"),
    ("ntfy", {"topic": "https://me:pw@ntfy.sh/a"}, "server: cannot contain a user name"),
    ("ntfy", {"topic": "https://10.0.0.1/a"}, "server: is a private or reserved address"),
    ("ntfy", {"topic": "https://[::1/a"}, "server: "),
    (
        "ntfy",
        {"topic": "https://ntfy.sh/a", "server": "https://ntfy.example.com"},
        "topic: is the URL of a topic",
    ),
    ("ntfy", {"topic": "a", "server": "http://93.184.216.34"}, "server: must be https://"),
    ("ntfy", {"topic": "a", "server": "https://ntfy.sh/a"}, "the topic has its own field"),
    ("ntfy", {"topic": "a", "server": "https://10.0.0.1"}, "server: is a private or reserved address"),
    ("ntfy", {"topic": "a", "server": "https://me:pw@ntfy.sh"}, "server: cannot contain a user name"),
    ("ntfy", {"topic": "a", "access_token": "secret"}, "access_token: must be tk_"),
    ("ntfy", {"topic": "a", "priority": "highest"}, "priority: must be one of min, low, default, high, max"),
    ("pushover", {"user_key": USER}, "app_token: is required"),
    ("pushover", {"user_key": USER[:-1], "app_token": APP}, "user_key: must be a user or group key: 30"),
    ("pushover", {"user_key": USER, "app_token": APP, "priority": "2"}, "priority: must be one of lowest"),
    ("pagerduty", {"integration_key": KEY[1:]}, "integration_key: must be the integration key of the Events"),
    ("pagerduty", {"integration_key": KEY, "region": "mars"}, "region: must be one of us, eu"),
]


@pytest.mark.parametrize(
    ("kind", "given", "reason"), REFUSED, ids=[f"{kind} {n}" for n, (kind, _, _) in enumerate(REFUSED)]
)
def test_what_cannot_be_sent_to_is_refused_with_an_example(
    api: Api, kind: str, given: dict[str, Any], reason: str
) -> None:
    refused = api.post(PATH, {"kind": kind, **given})
    assert (refused.status, refused.json["error"]) == (422, "validation_error")
    assert reason in refused.json["reason"]
    assert AlertChannel.objects.count() == 1


@pytest.mark.parametrize(
    ("given", "server", "topic"),
    [
        ({"topic": "https://ntfy.sh/shop"}, "https://ntfy.sh", "shop"),
        ({"topic": "ntfy.example.com/shop/"}, "https://ntfy.example.com", "shop"),
        ({"topic": "https://ntfy.example.com:8443/shop", "server": "https://ntfy.sh"}, None, "shop"),
        ({"topic": "http://ntfy.example.com/shop"}, "http://ntfy.example.com", "shop"),
        ({"topic": "shop", "server": "http://127.0.0.1:8080/"}, "http://127.0.0.1:8080", "shop"),
    ],
)
def test_ntfy_takes_the_url_of_a_topic(api: Api, given: dict[str, str], server: str | None, topic: str) -> None:
    config = stored(api, "ntfy", given).config
    assert (config["server"], config["topic"]) == (server or "https://ntfy.example.com:8443", topic)


def test_ntfy_takes_http_only_where_private_networks_are_allowed(
    api: Api, settings: Settings, targets: TargetServer
) -> None:
    site = targets.serve([answer(200, b"{}", OK_JSON)])
    url = site.url("/shop")
    channel = stored(api, "ntfy", {"topic": url, "access_token": TK})
    assert deliver(channel) == SendResult(delivered=True, detail="ntfy accepted the message.")
    assert json.loads(site.seen[0].body)["topic"] == "shop"
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    assert deliver(channel).delivered is False
    assert len(site.seen) == 1
    for refused in (url, "http://ntfy.example.com/shop"):
        assert api.post(PATH, {"kind": "ntfy", "topic": refused}).status == 422


def test_ntfy_sends_no_plain_text_to_public_addresses(
    api: Api, settings: Settings, targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If private networks are allowed, a name may still resolve publicly. The token would be sent in plain text."""
    site = targets.serve([answer(200, b"{}", OK_JSON)])
    channel = stored(api, "ntfy", {"topic": f"http://ntfy.example.com:{site.port}/shop", "access_token": TK})
    real, found = socket.getaddrinfo, {"address": "93.184.216.34"}

    def resolve(name: str, port: Any, *args: Any, **kwargs: Any) -> Any:
        if name != "ntfy.example.com":
            return real(name, port, *args, **kwargs)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found["address"], port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    refused = deliver(channel)
    assert not refused.delivered
    assert "so http is refused; use https." in refused.detail
    found["address"] = "127.0.0.1"
    assert deliver(channel).delivered
    assert len(site.seen) == 1


def test_a_change_keeps_what_is_not_given(api: Api) -> None:
    channel = stored(api, "ntfy", {"topic": "alerts", "access_token": TK})
    assert channel.config == {"topic": "alerts", "server": "https://ntfy.sh", "access_token": TK, "priority": "default"}
    changed = api.patch(f"{PATH}/{channel.public_id}", {"priority": "max", "access_token": None})
    assert changed.status == 200
    channel.refresh_from_db()
    assert (channel.config["priority"], channel.config["access_token"]) == ("max", TK)
    assert api.patch(f"{PATH}/{channel.public_id}", {"region": "eu"}).status == 422


def test_a_page_is_resolved_when_its_incident_is(api: Api, pose: Pose) -> None:
    channel = stored(api, "pagerduty", {"integration_key": KEY})
    site = pose("events.pagerduty.com", CASES["pagerduty"].answer)
    for payload in (DOWN, RECOVERED):
        message = render([payload], key="dlv_1", base_url=BASE_URL, now=NOW)
        assert KINDS[channel.kind].send(channel.config, message, key="dlv_1", now=NOW).delivered
    opened, closed = (json.loads(request.body) for request in site.seen)
    assert (opened["event_action"], opened["payload"]["severity"]) == ("trigger", "critical")
    assert opened["payload"]["source"] == "Pulsekeeper"
    assert closed == {"routing_key": KEY, "event_action": "resolve", "dedup_key": opened["dedup_key"]}


@pytest.mark.django_db(transaction=True)
def test_a_storm_is_a_page_for_each_incident() -> None:
    """A message for many incidents would open an alert that no recovery resolves."""
    owner = UserFactory()
    pager, chat = (ChannelFactory(owner=owner, kind="pagerduty", integration_key=KEY), ChannelFactory(owner=owner))
    pieces = [
        OutboxItem(f"outage:{n}", Payload(EventType.DOWN, at=0, monitor=str(n)), [pager.pk, chat.pk]) for n in range(5)
    ]
    with transaction.atomic():
        put(pieces, now=utc_now())
    assert [delivery.state for delivery in pager.deliveries.all()] == ["waiting"] * 5
    assert [delivery.state for delivery in chat.deliveries.all()] == ["gathering"]


ACKNOWLEDGE = f"{BASE_URL}/a/{'q' * 52}"
TO_A_PERSON = render([replace(DOWN, acknowledge_url=ACKNOWLEDGE)], key="dlv_1", base_url=BASE_URL, now=NOW)


def test_ntfy_has_a_button_that_acknowledges(api: Api, pose: Pose) -> None:
    channel = stored(api, "ntfy", CASES["ntfy"].given)
    site = pose("ntfy.sh", CASES["ntfy"].answer)
    assert KINDS["ntfy"].send(channel.config, TO_A_PERSON, key="dlv_1", now=NOW).delivered
    body = json.loads(site.seen[0].body)
    assert body["actions"] == [
        {"action": "http", "label": "Acknowledge", "url": ACKNOWLEDGE, "method": "POST", "clear": True}
    ]
    assert f"Acknowledge: {ACKNOWLEDGE}" in body["message"]


@pytest.mark.parametrize("is_refused", [False, True])
def test_telegram_has_a_button_unless_it_refuses_the_address(api: Api, pose: Pose, is_refused: bool) -> None:
    def bot(request: Seen) -> Script:
        if is_refused and "reply_markup" in json.loads(request.body):
            return [answer(400, b'{"ok": false, "description": "Bad Request: BUTTON_URL_INVALID"}', OK_JSON)]
        return [answer(200, b'{"ok": true, "result": {}}', OK_JSON)]

    channel = stored(api, "telegram", CASES["telegram"].given)
    site = pose("api.telegram.org", bot)
    assert KINDS["telegram"].send(channel.config, TO_A_PERSON, key="dlv_1", now=NOW).delivered
    first, *others = (json.loads(request.body) for request in site.seen)
    assert first["reply_markup"] == {"inline_keyboard": [[{"text": "Acknowledge", "url": ACKNOWLEDGE}]]}
    assert len(others) == is_refused
    for sent in (first, *others):
        assert ACKNOWLEDGE in sent["text"]


def test_other_services_have_the_link_as_text(api: Api, pose: Pose) -> None:
    channel = stored(api, "slack", CASES["slack"].given)
    site = pose("hooks.slack.com", CASES["slack"].answer)
    assert KINDS["slack"].send(channel.config, TO_A_PERSON, key="dlv_1", now=NOW).delivered
    assert ACKNOWLEDGE in site.seen[0].body.decode()
