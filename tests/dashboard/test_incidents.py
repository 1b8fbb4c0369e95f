"""The pages of incidents."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import utc_now
from dashboard.incidents import EFFECTS, PAGE
from incidents import services
from incidents.models import Incident, IncidentEvent
from projects.access import Caller
from tests.factories import IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON

HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"


def outage(user: User, *, minutes: int = 0, resolved: bool = False, **columns: Any) -> Incident:
    monitor = MonitorFactory(owner=user, name=columns.pop("name", "Shop"), **columns.pop("given", {}))
    at = NOON + timedelta(minutes=minutes)
    incident = IncidentFactory(
        monitor=monitor,
        started_at=at,
        confirmed_at=at,
        resolved_at=at + timedelta(minutes=200) if resolved else None,
        resolution="recovered" if resolved else None,
        **{"reason_code": "http_failure", "detail": "Answered 503.", **columns},
    )
    incident.events.create(type=IncidentEvent.Type.CONFIRMED, text="It is down: Answered 503.", at=at)
    return incident


def named(page: Any) -> list[str]:
    """Return the names in the list, in order."""
    return re.findall(r'<a class="strong" href="[^"]*">([^<]*)</a>', page.content.decode())


def test_the_navigation_counts_open_incidents_of_the_user(web: Client, user: User) -> None:
    other, others = UserFactory(), Client()
    others.force_login(other)
    outage(user, resolved=True)
    outage(user)
    outage(user)
    outage(other, given={"project": ProjectFactory(owner=other, member=user)})
    IncidentFactory(monitor=None, owner=user, name="Declared")

    def counted(client: Client) -> str | None:
        found = re.search(r'<span class="count" title="open">(\d+)', client.get("/tokens").content.decode())
        return found and found[1]

    assert (counted(web), counted(others), counted(web)) == ("4", "1", "4")
    Incident.objects.filter(monitor__owner=other).delete()
    assert (counted(web), counted(others)) == ("3", None)


def test_open_ones_come_first_and_then_the_newest(web: Client, user: User) -> None:
    outage(user, name="over, old", resolved=True)
    outage(user, name="open, old")
    outage(user, name="over, new", minutes=5, resolved=True)
    outage(user, name="open, new", minutes=6, acknowledged_at=NOON)
    assert named(web.get("/incidents")) == ["open, new", "open, old", "over, new", "over, old"]
    for state, names in {
        "open": ["open, new", "open, old"],
        "acknowledged": ["open, new"],
        "resolved": ["over, new", "over, old"],
        "nonsense": ["open, new", "open, old", "over, new", "over, old"],
    }.items():
        assert named(web.get("/incidents", {"state": state})) == names, state


def test_the_list_is_limited_to_a_project_a_monitor_or_a_name(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="Tills")
    outage(user, name="Till 1", given={"project_id": project.public_id})
    other = outage(user, name="Shop 100%")
    assert named(web.get("/incidents", {"project": project.public_id})) == ["Till 1"]
    limited = web.get("/incidents", {"monitor": other.monitor_public_id})
    assert named(limited) == ["Shop 100%"]
    assert "All monitors" in limited.content.decode()
    assert named(web.get("/incidents", {"q": "0%"})) == ["Shop 100%"]
    assert "No matching incidents" in web.get("/incidents", {"q": "x" * 150}).content.decode()


def test_pages_follow_each_other_over_the_end_of_the_open_ones(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    rows = [
        Incident(owner=user, project=project, name=f"{number}", started_at=NOON, detail="")
        for number in range(PAGE + 20)
    ]
    for row in rows[:40]:
        row.resolved_at, row.resolution = NOON, "closed"
    Incident.objects.bulk_create(rows)
    seen: list[str] = []
    address: str | None = "/incidents?state="
    while address is not None:
        page = web.get(address)
        seen += named(page)
        found = re.search(r'href="([^"]+)" rel="next"', page.content.decode())
        address = None if found is None else f"/incidents{unescape(found[1])}"
    expected = [f"{n}" for n in [*range(PAGE + 19, 39, -1), *range(39, -1, -1)]]
    assert seen == expected


@pytest.mark.parametrize("after", ["", "2-1", "0-", "0-999999999999999999", "' OR 1=1", "0-9" * 100])
def test_an_odd_place_in_the_list_is_no_error(web: Client, user: User, after: str) -> None:
    outage(user)
    assert web.get("/incidents", {"after": after}).status_code == 200


def test_the_list_takes_as_many_queries_for_one_as_for_many(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    web.get("/incidents")
    counts = []
    for count in (1, 12):
        for number in range(count):
            outage(user, name=f"{count}.{number}", given={"project_id": project.public_id})
        with CaptureQueriesContext(connection) as queries:
            web.get("/incidents")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 8


def test_an_incident_says_what_since_when_and_why(web: Client, user: User) -> None:
    incident = outage(
        user,
        name=HOSTILE,
        detail=HOSTILE,
        evidence={
            "address": "192.0.2.1:443",
            "status_line": f"HTTP/1.1 503 {HOSTILE}",
            "headers": [["server", HOSTILE]],
            "body": HOSTILE,
            "redirects": [[302, f"https://shop.example/{HOSTILE}"]],
        },
    )
    services.comment(Caller(user), incident.public_id, text=f"first\n{HOSTILE}", now=NOON)
    text = web.get(f"/incidents/{incident.public_id}").content.decode()
    assert "<script>alert" not in text
    assert text.count(ESCAPED) >= 8
    for words in (
        "Unexpected status code",
        "192.0.2.1:443",
        f"/monitors/{incident.monitor_public_id}",
        "Confirmed",
        f"first<br>{ESCAPED}",
        f"Comment by {user.email}",
        "2026-03-01T12:00:00+00:00",
    ):
        assert words in text, words


@pytest.mark.parametrize("kind", IncidentEvent.Type.values)
def test_every_line_of_a_timeline_has_plain_words(web: Client, user: User, kind: str) -> None:
    incident = outage(user)
    IncidentEvent.objects.all().delete()
    incident.events.create(type=kind, text="What it was.", at=NOON)
    text = web.get(f"/incidents/{incident.public_id}").content.decode()
    timeline = text[text.index('id="incident-timeline"') : text.index("</ol>")]
    assert "What it was." in timeline
    assert kind not in timeline


def test_what_changed_is_fetched_and_nothing_while_nothing_did(web: Client, user: User) -> None:
    incident = outage(user)
    page = web.get(f"/incidents/{incident.public_id}").content.decode()
    found = re.search(r'data-poll="([^"]+)"', page)
    assert found is not None
    poll = unescape(found[1])
    assert web.get(poll, headers={"HX-Request": "true"}).status_code == 204
    services.acknowledge(Caller(user), incident.public_id, now=utc_now())
    changed = web.get(poll, headers={"HX-Request": "true"})
    text = changed.content.decode()
    assert changed.status_code == 200
    assert "<html" not in text
    assert text.count("hx-swap-oob") == 6
    assert f"Acknowledged by {user.email}" in text
    again = re.search(r'data-poll="([^"]+)"', text)
    assert again is not None
    assert web.get(unescape(again[1]), headers={"HX-Request": "true"}).status_code == 204


def test_a_poll_after_the_session_ended_leaves_the_page_as_it_is(client: Client, user: User) -> None:
    incident = outage(user)
    answer = client.get(f"/incidents/{incident.public_id}/live", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.content) == (401, b"")
    assert not {"HX-Refresh", "HX-Redirect", "Location"} & set(answer.headers)


def test_an_acknowledgement_with_a_comment_is_in_the_timeline(web: Client, user: User) -> None:
    incident = outage(user)
    address = f"/incidents/{incident.public_id}"
    page = web.post(f"{address}/acknowledge", follow=True)
    assert "Acknowledged. Reminders and the escalation have stopped." in page.content.decode()
    assert 'id="acknowledge"' not in page.content.decode()
    web.post(f"{address}/comments", {"text": "One\r\nTwo"})
    assert list(incident.events.values_list("type", "text"))[1:] == [
        ("acknowledged", f"Acknowledged by {user.email}."),
        ("commented", "One\nTwo"),
    ]


def test_what_is_over_by_now_is_said_and_not_an_error_page(web: Client, user: User) -> None:
    incident = outage(user, resolved=True)
    for action, reason in {
        "acknowledge": "The incident is already resolved.",
        "resolve": "resolved when the monitor recovers",
    }.items():
        page = web.post(f"/incidents/{incident.public_id}/{action}", follow=True)
        assert page.status_code == 200
        assert reason in page.content.decode()


@pytest.mark.parametrize(("text", "reason"), [("", "required"), ("x" * 2001, "at most 2000"), ("a\0b", "Null")])
def test_a_comment_that_is_refused_stays_in_its_field(web: Client, user: User, text: str, reason: str) -> None:
    incident = outage(user)
    page = web.post(f"/incidents/{incident.public_id}/comments", {"text": text}).content.decode()
    assert reason in page
    assert 'aria-invalid="true"' in page
    if text.startswith("x"):
        assert text in page
    assert incident.events.count() == 1


def test_declared_commented_and_resolved(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name=HOSTILE)
    form = web.get("/incidents/declare").content.decode()
    assert ESCAPED in form
    key = re.findall(r'name="form_key" value="(\w+)"', form)[0]
    given = {"title": HOSTILE, "text": "Nobody can pay.", "project_id": project.public_id, "form_key": key}
    page = web.post("/incidents/declare", given, follow=True)
    assert web.post("/incidents/declare", given).status_code == 302, "sent twice"
    incident = Incident.objects.get()
    assert page.redirect_chain == [(f"/incidents/{incident.public_id}", 302)]
    assert (incident.name, incident.detail, incident.project) == (HOSTILE, "Nobody can pay.", project)
    text = page.content.decode()
    assert f"Declared by {user.email}" in text
    assert 'id="resolve"' in text
    assert 'id="resolve"' not in web.post(f"/incidents/{incident.public_id}/resolve", follow=True).content.decode()
    incident.refresh_from_db()
    assert incident.resolution == "closed"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"title": ""}, "This field is required."),
        ({"title": "x" * 201}, "at most 200 characters"),
        ({"text": "x" * 2001}, "at most 2000 characters"),
        ({"project_id": "prj_of_somebody_else"}, "Select a valid choice."),
    ],
)
def test_a_declaration_that_is_refused_keeps_what_was_typed(
    web: Client, user: User, changes: dict[str, str], reason: str
) -> None:
    given = {"title": "Payments", "text": "Nobody can pay.", "project_id": "", "form_key": "k"} | changes
    text = web.post("/incidents/declare", given).content.decode()
    assert reason in text
    for name in ("title", "text"):
        assert given[name] in text
    assert not Incident.objects.exists()


def test_cause_and_effect_link_to_each_other(web: Client, user: User) -> None:
    cause = outage(user, name="Router")
    effect = outage(user, name=HOSTILE, caused_by=cause, quiet=Incident.Quiet.HELD)
    hidden = outage(UserFactory(), name="Hidden", caused_by=cause)
    page = web.get(f"/incidents/{effect.public_id}").content.decode()
    assert f'<dt>Caused by</dt><dd><a href="/incidents/{cause.public_id}">Router</a>' in page
    page = web.get(f"/incidents/{cause.public_id}").content.decode()
    assert f'<a href="/incidents/{effect.public_id}">{ESCAPED}</a> <span class="small muted">open</span>' in page
    assert hidden.public_id not in page
    assert "Alerts held: Router is down" in web.get(f"/monitors/{effect.monitor_public_id}").content.decode()
    (live,) = map(unescape, re.findall(r'data-poll="([^"]+)"', page))
    assert web.get(live, headers={"HX-Request": "true"}).status_code == 204
    Incident.objects.filter(pk=effect.pk).update(resolved_at=NOON, resolution="recovered")
    assert "resolved</span>" in web.get(live, headers={"HX-Request": "true"}).content.decode()
    for number in range(EFFECTS + 1):
        outage(user, name=f"Shop {number}", caused_by=cause)
    page = web.get(f"/incidents/{cause.public_id}").content.decode()
    assert ("and of 2 more" in page, "Shop 1<" in page, "Shop 30<" in page) == (True, True, True)
    assert f'href="/incidents/{effect.public_id}"' not in page, "the newest are shown"


def test_incidents_of_others_are_not_there(web: Client, user: User) -> None:
    theirs = outage(UserFactory())
    address = f"/incidents/{theirs.public_id}"
    assert named(web.get("/incidents")) == []
    assert web.get(address).status_code == 404
    assert web.get(f"{address}/live").status_code == 404
    for action in ("acknowledge", "comments", "resolve"):
        assert web.post(f"{address}/{action}", {"text": "mine"}).status_code == 404
    assert theirs.events.count() == 1


def test_signed_out_users_are_redirected_to_sign_in(client: Client, user: User) -> None:
    incident = outage(user, name="Secret plan")
    for address in ("/incidents", f"/incidents/{incident.public_id}", "/incidents/declare"):
        answer = client.get(address)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"/account/login/?next={address}")
        assert answer.content == b""


def test_forms_without_their_token_are_refused(user: User) -> None:
    incident = outage(user)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    for address in ("acknowledge", "comments", "resolve"):
        assert strict.post(f"/incidents/{incident.public_id}/{address}").status_code == 403
        assert strict.get(f"/incidents/{incident.public_id}/{address}").status_code == 405
    assert strict.post("/incidents/declare", {"title": "a", "text": "b"}).status_code == 403
