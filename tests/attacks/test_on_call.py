"""Attacks by tenants with on-call schedules, policies and links at their limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.models import DeliveryItem
from alerts.notify import MOST_ITEMS, notify_incidents
from checks.spec import Verdict
from core.clock import MAX_MS, to_ms, utc_now
from core.errors import NotFound
from incidents import consuming
from incidents.models import Incident, IncidentEvent
from monitors.models import Monitor
from oncall import selectors
from oncall.escalating import MAX_TAKEN_BACK, escalate, run_due, unacknowledge_by_link
from oncall.models import OnCallSchedule
from oncall.serializers import LATEST_MS
from oncall.services import MAX_HOURS_A_WEEK
from projects.access import Caller
from projects.models import Project
from tests.alerts.drivers import Drive, at, make_channel
from tests.api.client import Api
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.oncall.making import make_policy, make_schedule, reach_by

pytestmark = pytest.mark.django_db
DAY_MS = 86_400_000
WEEK = [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def owner() -> User:
    return UserFactory()


def hourly(*people: User, **fields: Any) -> dict[str, Any]:
    ids = [user.public_id for user in people]
    return {"user_ids": ids, "every": {"unit": "hour", "count": 1}, "starts_at": 0, "hours": []} | fields


def web_of(user: User) -> Client:
    web = Client()
    web.force_login(user)
    return web


def test_a_swap_of_centuries_is_refused_without_computing_them(owner: User) -> None:
    """Hourly turns until the year 9998 are 70 million shifts."""
    project = ProjectFactory(owner=owner)
    other = UserFactory()
    MembershipFactory(project=project, user=other)
    schedule = make_schedule(project, owner, layers=[hourly(owner, other)])
    whole = f"0-{MAX_MS}-{owner.public_id}"
    sent = {"first": whole, "second": whole}
    answer = web_of(owner).post(f"/on-call/schedules/{schedule.public_id}/swap", sent)
    assert answer.status_code == 200
    assert "This shift has changed" in answer.content.decode()


def test_shifts_are_computed_in_turns(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several requests at the limits would take the turns of all others."""
    monkeypatch.setattr(selectors._turns, "_patience_sec", 0.1)
    schedule = make_schedule(ProjectFactory(owner=owner), owner)
    policy = make_policy(ProjectFactory(owner=owner), (0, [owner]))
    paths = [
        *("/on-call", "/on-call/shifts", "/on-call/policies", f"/on-call/policies/{policy.public_id}"),
        f"/on-call/schedules/{schedule.public_id}",
    ]
    web, api = web_of(owner), Api.signed_in(owner)
    calls = [f"/v1/on-call-schedules/{schedule.public_id}/{name}" for name in ("shifts", "now")]
    with selectors.computing():
        assert {web.get(path).status_code for path in paths} == {429}
        assert {api.get(path).status for path in calls} == {429}
    assert {web.get(path).status_code for path in paths} == {200}
    assert {api.get(path).status for path in calls} == {200}


def test_the_hours_of_a_schedule_are_few(owner: User) -> None:
    """Ten layers of fifty minutes a day were 329,000 shifts a year, 33 MB of JSON."""
    api = Api.signed_in(owner)
    minutes = [{"days": WEEK, "from": f"{hour:02}:00", "to": f"{hour:02}:01"} for hour in range(10)]
    given: dict[str, Any] = {"name": "Minutes", "layers": [hourly(owner, hours=minutes)] * 2}
    created = api.post("/v1/on-call-schedules", given)
    assert created.status == 201
    assert MAX_HOURS_A_WEEK == 2 * 10 * 7
    more = hourly(owner, hours=[{"days": [1], "from": "23:00", "to": "23:01"}])
    for answer in (
        api.post("/v1/on-call-schedules", given | {"layers": [*given["layers"], more]}),
        api.patch(f"/v1/on-call-schedules/{created.json['id']}", {"layers": [*given["layers"], more]}),
    ):
        assert answer.status == 422
        assert answer.json["reason"].startswith("layers: ")


def test_an_answer_has_at_most_10_000_shifts(owner: User) -> None:
    project = ProjectFactory(owner=owner)
    other = UserFactory()
    MembershipFactory(project=project, user=other)
    minutes = [{"days": WEEK, "from": f"{hour:02}:30", "to": f"{hour:02}:31"} for hour in range(20)]
    layers = [hourly(owner), hourly(other, hours=minutes)]
    schedule = make_schedule(project, owner, layers=layers)
    path = f"/v1/on-call-schedules/{schedule.public_id}/shifts"
    api = Api.signed_in(owner)
    refused = api.get(f"{path}?from=0&to={366 * DAY_MS}")
    assert (refused.status, refused.json["error"]) == (422, "validation_error")
    assert "shorter range" in refused.json["reason"]
    assert api.get(f"{path}?from=0&to={200 * DAY_MS}").status == 200


def test_the_last_times_have_a_local_time_and_a_turn_after_them(owner: User) -> None:
    """A time of the last day of the year 9999 made pages and manifests of all members fail."""
    api = Api.signed_in(owner)
    long = {"unit": "week", "count": 52}
    given: dict[str, Any] = {"name": "Last", "timezone": "Pacific/Kiritimati", "layers": [hourly(owner, every=long)]}
    last = {"user_id": owner.public_id, "starts_at": LATEST_MS - 1, "ends_at": LATEST_MS}
    for late in (
        {"layers": [hourly(owner, starts_at=LATEST_MS + 1)]},
        {"overrides": [last | {"ends_at": MAX_MS}]},
    ):
        assert api.post("/v1/on-call-schedules", given | late).status == 422
    layers = [*given["layers"], hourly(owner, starts_at=LATEST_MS)]
    created = api.post("/v1/on-call-schedules", given | {"layers": layers, "overrides": [last]})
    assert created.status == 201
    path = f"/v1/on-call-schedules/{created.json['id']}"
    assert api.get(f"{path}/shifts?from={MAX_MS}").status == 422
    latest = to_ms(utc_now().replace(year=9996))
    assert api.get(f"{path}/shifts?from={latest}&to={latest + 366 * DAY_MS}").status == 200
    assert api.get("/v1/manifest").status == 200
    web = web_of(owner)
    for page in ("", "/edit"):
        assert web.get(f"/on-call/schedules/{created.json['id']}{page}").status_code == 200
    policy = make_policy(owner, *[(1440, [OnCallSchedule.objects.get()])] * 10, repeat=9)
    for year in (9990, 9998):
        asked = {"at": f"{year}-12-31T23:59", "zone": "Pacific/Kiritimati"}
        assert web.get(f"/on-call/policies/{policy.public_id}", asked).status_code == 200


def test_an_escalation_all_of_whose_steps_are_due_at_once_leaves_turns_to_others(owner: User) -> None:
    """100 steps of ten people with ten channels each were 10,000 messages of one incident in a transaction."""
    project = ProjectFactory(owner=owner)
    people = [UserFactory() for _ in range(10)]
    for user in people:
        MembershipFactory(project=project, user=user)
        reach_by(user, *((0, make_channel(user)) for _ in range(10)))
    neighbour = UserFactory()
    drive = Drive()
    loud = drive.monitors(owner, ["One", "Two"], project_id=project.public_id)
    (quiet,) = drive.monitors(neighbour, ["Three"])
    Project.objects.update(escalation_policy=make_policy(project, *[(0, people)] * 10, repeat=9))
    Monitor.objects.filter(pk=quiet.pk).update(escalation_policy=make_policy(neighbour, (0, [neighbour])))
    for monitor in (*loud, quiet):
        drive.check(monitor, Verdict.DOWN, at(60))
    consuming.consume(at(61), slow=lambda _: None)
    notify_incidents(at(61))
    with CaptureQueriesContext(connection) as first:
        assert run_due(at(61))
    assert DeliveryItem.objects.filter(incident__monitor=quiet).count() == 1
    assert DeliveryItem.objects.count() <= MOST_ITEMS + 100
    assert len(first) < 30
    runs = 1
    while run_due(at(61)):
        runs += 1
    assert runs <= 10
    for incident in Incident.objects.filter(monitor__in=loud):
        assert DeliveryItem.objects.filter(incident=incident).count() == 10_000
        steps = incident.events.filter(type="escalated", data__has_key="step").order_by("pk")
        found = list(steps.values_list("data__round", "data__step"))
        assert found == [(number, step) for number in range(10) for step in range(10)]


def test_a_request_runs_some_of_the_steps_that_are_due_and_leaves_the_rest(owner: User) -> None:
    """Escalating ran 100 steps, 10,000 messages, in the transaction of a web request."""
    people = [owner, *(UserFactory() for _ in range(4))]
    project = ProjectFactory(owner=owner)
    for user in people:
        if user != owner:
            MembershipFactory(project=project, user=user)
        reach_by(user, *((0, make_channel(user)) for _ in range(10)))
    drive = Drive()
    (monitor,) = drive.monitors(owner, ["One"], project_id=project.public_id)
    Project.objects.update(escalation_policy=make_policy(project, (5, people), *[(0, people)] * 9, repeat=5))
    drive.check(monitor, Verdict.DOWN, at(60))
    consuming.consume(at(61), slow=lambda _: None)
    notify_incidents(at(61))
    incident = Incident.objects.get()
    escalate(Caller(owner), incident.public_id, now=at(62))
    assert DeliveryItem.objects.count() == 10 * 50, "the round: the next one waits five minutes"
    incident.escalation.policy = make_policy(project, *[(0, people)] * 10, repeat=9)
    incident.escalation.save()
    escalate(Caller(owner), incident.public_id, now=at(63))
    assert DeliveryItem.objects.count() == 500 + MOST_ITEMS
    while run_due(at(63)):
        pass
    assert DeliveryItem.objects.count() == 10 * 10 * 50


def test_acknowledging_and_taking_back_ends(owner: User) -> None:
    """Each time the people of the policy were notified again, and the timeline grew."""
    incident = Incident.objects.create(owner=owner, name="Shop", monitor_public_id="mon_1", started_at=utc_now())
    event = {"incident": incident, "type": "unacknowledged", "at": utc_now(), "text": "…"}
    IncidentEvent.objects.bulk_create(IncidentEvent(**event, data={"by": "a@x.example"}) for _ in range(99))
    IncidentEvent.objects.bulk_create(IncidentEvent(**event) for _ in range(50))  # by a timeout
    path = f"/v1/incidents/{incident.public_id}"
    api = Api.signed_in(owner)
    assert MAX_TAKEN_BACK == 100
    for status in (200, 403):
        assert api.post(f"{path}/acknowledge").status == 200
        assert api.post(f"{path}/unacknowledge").status == status


def test_a_link_to_an_incident_that_is_deleted_meanwhile_is_not_found(owner: User) -> None:
    with pytest.raises(NotFound):
        unacknowledge_by_link(owner, 1, now=utc_now() + timedelta(seconds=1))
