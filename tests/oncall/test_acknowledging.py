"""Acknowledging with the link of a message, without signing in."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.messages import render
from alerts.models import AlertChannel, DeliveryItem
from alerts.templates import with_texts
from checks.spec import Verdict
from core.clock import utc_now
from incidents.models import Escalation, Incident
from oncall import acknowledging
from oncall.models import AcknowledgeLink, EscalationPolicy
from projects.models import Project
from tests.alerts.drivers import Drive, at, make_channel
from tests.api.client import Api
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.helpers import NOON
from tests.oncall.making import make_policy

pytestmark = pytest.mark.django_db
DOWN, UP = Verdict.DOWN, Verdict.UP


@pytest.fixture(autouse=True)
def _stopped_clock() -> object:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def project() -> Project:
    return ProjectFactory()


@pytest.fixture
def anna(project: Project) -> User:
    user = UserFactory(email="anna@example.com")
    MembershipFactory(project=project, user=user)
    return user


@pytest.fixture
def ben(project: Project) -> User:
    user = UserFactory(email="ben@example.com")
    MembershipFactory(project=project, user=user)
    return user


@pytest.fixture
def link(drive: Drive, project: Project, anna: User, ben: User) -> str:
    """Return the path of the link in the message to Anna. Ben is notified too."""
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    Project.objects.update(escalation_policy=make_policy(project, (0, [anna, ben]), (10, [ben])))
    monitor = drive.monitor(owner, "<b>Shop</b>", project_id=project.public_id)
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    channel = AlertChannel.objects.get(owner=anna)
    (payload,) = [
        told for told, message in zip(drive.payload, drive.sent, strict=True) if message.channel_id == channel.pk
    ]
    assert payload.acknowledge_url is not None
    return payload.acknowledge_url.removeprefix("http://localhost:8000")


def test_get_changes_nothing_and_a_bare_post_acknowledges(link: str, anna: User) -> None:
    scanner = Client(enforce_csrf_checks=True)
    for _ in range(2):
        page = scanner.get(link)
        text = page.content.decode()
        assert page.status_code == 200
        assert "&lt;b&gt;Shop&lt;/b&gt; is down" in text
        assert "ben@example.com" in text
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert page.headers["X-Robots-Tag"] == "noindex"
        assert page.headers["Cache-Control"] == "no-store"
        assert "form-action 'self'" in page.headers["Content-Security-Policy"]
        assert "sessionid" not in page.cookies
    assert scanner.head(link).status_code == 200
    assert scanner.put(link).status_code == 405
    assert Incident.objects.get().acknowledged_at is None

    for _ in range(3):
        done = scanner.post(link)
        assert (done.status_code, "Acknowledged by anna@example.com" in done.content.decode()) == (200, True)
    incident = Incident.objects.get()
    assert incident.acknowledged_by == anna
    (event,) = incident.events.filter(type="acknowledged")
    assert event.text == "Acknowledged by anna@example.com, with the link of a message."
    assert event.data == {"by": "anna@example.com", "way": "link"}
    assert Escalation.objects.get().next_at is None


def test_the_form_takes_it_back(link: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.post(link)
    done = client.post(link, {"action": "take_back"})
    assert (done.status_code, "Acknowledge</button>" in done.content.decode()) == (200, True)
    incident = Incident.objects.get()
    assert (incident.acknowledged_at, incident.acknowledged_by) == (None, None)
    assert Escalation.objects.get().run == 1
    client.post(link)
    assert Incident.objects.get().acknowledged_at is not None


def test_a_resolved_incident(link: str, drive: Drive) -> None:
    incident = Incident.objects.get()
    assert incident.monitor is not None
    drive.check(incident.monitor, UP, at(100))
    drive.tick(at(101))
    done = Client().post(link)
    assert (done.status_code, "no longer down" in done.content.decode()) == (200, True)
    assert not incident.events.filter(type="acknowledged").exists()


def test_unknown_and_old_links(link: str) -> None:
    missing = Client().get("/a/" + "x" * 52)
    assert missing.status_code == 404
    assert "Copy it whole." in missing.content.decode()
    assert Client().post("/a/x").status_code == 404
    with time_machine.travel(NOON + timedelta(days=7, minutes=2), tick=False):
        for answer in (Client().get(link), Client().post(link)):
            assert answer.status_code == 410
        assert Incident.objects.get().acknowledged_at is None
    acknowledging.delete_old(NOON + timedelta(days=36))
    assert Client().get(link).status_code == 200
    acknowledging.delete_old(NOON + timedelta(days=38))
    assert Client().get(link).status_code == 404
    assert not AcknowledgeLink.objects.exists()


@pytest.mark.parametrize("ending", ["left", "closed"])
def test_the_link_of_someone_who_left(link: str, anna: User, ending: str) -> None:
    if ending == "left":
        anna.memberships.all().delete()
    else:
        User.objects.filter(pk=anna.pk).update(is_active=False)
    assert Client().get(link).status_code == 410
    assert Client().post(link).status_code == 410
    assert Incident.objects.get().acknowledged_at is None


def test_a_viewer_who_is_on_call_acknowledges(link: str, anna: User) -> None:
    anna.memberships.update(role="viewer")
    assert Client().post(link).status_code == 200
    assert Incident.objects.get().acknowledged_by == anna


def test_only_a_digest_is_stored(link: str) -> None:
    token = link.rpartition("/")[2]
    assert len(token) == 52
    with connection.cursor() as cursor:
        for table in ("oncall_acknowledgelink", "alerts_deliveryitem", "alerts_delivery", "incidents_incidentevent"):
            cursor.execute(f"SELECT t::text FROM {table} t")
            assert token not in str(cursor.fetchall())


def test_too_many_requests(link: str, monkeypatch: pytest.MonkeyPatch, settings: object) -> None:
    monkeypatch.setattr("oncall.incident_views.count_request", _refuse)
    answer = Client().post(link)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")


def _refuse(scope: str, identity: str) -> None:
    from core.errors import TooManyRequests

    raise TooManyRequests(wait=7)


def test_all_formats_have_the_link(link: str, drive: Drive) -> None:
    payload = drive.payload[0]
    message = render([payload], key="dlv_1", base_url="http://localhost:8000", now=utc_now())
    assert payload.acknowledge_url is not None
    assert f"\nAcknowledge: {payload.acknowledge_url}\n" in message.text
    assert f'href="{payload.acknowledge_url}"' in message.html
    assert message.webhook_body["acknowledge_url"] == payload.acknowledge_url
    assert list(message.acknowledge) == [("Acknowledge", payload.acknowledge_url)]
    own = with_texts(message, {"body": "It is down."})
    assert own.text == f"It is down.\n\nAcknowledge: {payload.acknowledge_url}\n"
    assert f'href="{payload.acknowledge_url}"' in own.html


def test_each_listed_incident_of_a_group_has_a_link(drive: Drive, project: Project, anna: User) -> None:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    Project.objects.update(escalation_policy=make_policy(project, (0, [anna])))
    monitors = drive.monitors(owner, [f"Shop {n}" for n in range(7)], project_id=project.public_id)
    drive.checks(monitors, DOWN, at(60))
    drive.ticks(at(61), at(80), every=1)
    message = render(drive.payload, key="dlv_1", base_url="http://localhost:8000", now=utc_now())
    urls = {told.acknowledge_url for told in drive.payload}
    assert len(urls) == 7
    assert set(re.findall(r"Acknowledge: (\S+)", message.text)) == urls
    assert set(re.findall(r'href="([^"]+/a/[^"]+)"', message.html)) == urls
    assert {item["acknowledge_url"] for item in message.webhook_body["items"]} == urls
    assert len(message.acknowledge) == 5


def test_channels_get_no_link(drive: Drive, project: Project, anna: User) -> None:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    channel = make_channel(owner, project=project, topics=())
    Project.objects.update(escalation_policy=make_policy(project, (0, [channel])))
    drive.check(drive.monitor(owner, "Shop", project_id=project.public_id), DOWN, at(60))
    drive.tick(at(61))
    assert [told.acknowledge_url for told in drive.payload] == [None]
    assert not AcknowledgeLink.objects.exists()
    assert DeliveryItem.objects.get().user is None


def test_the_api_shows_and_changes_it(link: str, anna: User, ben: User) -> None:
    api, incident = Api.signed_in(ben), Incident.objects.get()
    path = f"/v1/incidents/{incident.public_id}"
    policy = EscalationPolicy.objects.get()
    shown = api.get(path).json
    assert shown["acknowledged_by"] is None
    assert shown["escalation"] == {
        "policy_id": policy.public_id,
        "step": 1,
        "round": 0,
        "next_at": int(at(661).timestamp() * 1000),
    }
    done = api.post(f"{path}/escalate")
    assert (done.status, done.json["escalation"]) == (200, None)
    assert api.post(f"{path}/escalate").json["error"] == "not_escalating"
    acknowledged = api.post(f"{path}/acknowledge").json
    assert (acknowledged["acknowledged_by"], acknowledged["escalation"]) == (ben.public_id, None)
    again = api.post(f"{path}/unacknowledge").json
    assert (again["acknowledged_at"], again["acknowledged_by"], again["escalation"]["step"]) == (None, None, 0)
    assert api.post(f"{path}/unacknowledge").status == 200


def test_a_list_reads_escalations_with_their_incidents(drive: Drive, project: Project, anna: User) -> None:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    Project.objects.update(escalation_policy=make_policy(project, (0, [anna]), (10, [anna])))
    api, counts = Api.signed_in(anna), []
    for number in (1, 5):
        names = [f"Shop {number}.{n}" for n in range(number)]
        drive.checks(drive.monitors(owner, names, project_id=project.public_id), DOWN, at(60))
        drive.tick(at(61))
        with CaptureQueriesContext(connection) as queries:
            listed = api.get("/v1/incidents").json
        assert all(one["escalation"]["step"] == 1 for one in listed)
        counts.append((len(listed), len(queries)))
    assert [number for number, _ in counts] == [1, 6]
    assert counts[1][1] <= counts[0][1]
