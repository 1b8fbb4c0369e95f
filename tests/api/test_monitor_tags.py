"""Alert channels, maintenance windows and status pages that select monitors by tags."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import User
from alerts.models import AlertChannel
from alerts.selectors import routes_of, routes_of_locations
from core.clock import to_ms, utc_now
from incidents import windows
from incidents.models import Incident
from incidents.selectors import windows_covering
from locations.models import Location
from locations.services import create_location
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from projects.access import Caller
from statuspages import caching
from statuspages.events import add_outage_events
from statuspages.models import PageEvent, StatusPage
from tests.api.client import Api
from tests.factories import ChannelFactory, IncidentFactory, ProjectFactory, UserFactory
from tests.statuspages.making import make_subscriber

WEBHOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/", "monitors": "chosen"}


def tagged(user: User, *tags: str, **given: Any) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=utc_now())


def retag(monitor: Monitor, *tags: str) -> None:
    update_monitor(Caller(monitor.owner), monitor.public_id, {"tags": list(tags)}, now=utc_now())


def window(**given: Any) -> dict[str, Any]:
    now = to_ms(utc_now())
    return {"name": "w", "starts_at": now - 1000, "ends_at": now + 600_000, "monitors": "chosen", **given}


def routed(*monitors: Monitor) -> list[int]:
    """Return the positions of the monitors that a channel covers, without the first channel of each account."""
    AlertChannel.objects.filter(kind="email").delete()
    routes = routes_of([monitor.pk for monitor in monitors])
    return [index for index, monitor in enumerate(monitors) if routes.get(monitor.pk)]


def covered(*monitors: Monitor) -> list[int]:
    """Return the positions of the monitors under maintenance, in the same way for each reader."""
    now = utc_now()
    found = windows.covered([monitor.pk for monitor in monitors], now)
    fresh = list(Monitor.objects.filter(pk__in=[monitor.pk for monitor in monitors]).select_related("owner"))
    coming = windows.coming(fresh, now=now, until=now + timedelta.resolution)
    assert {pk for one in coming for pk in one.monitor_ids} == found
    assert {one.pk for one in fresh if windows_covering(Caller(one.owner), one)} >= found
    return [index for index, monitor in enumerate(monitors) if monitor.pk in found]


def test_a_channel_covers_monitors_while_they_have_one_of_its_tags(api: Api, user: User) -> None:
    web, db, other, none = tagged(user, "Web"), tagged(user, "x", "DB"), tagged(user, "y"), tagged(user)
    made = api.post("/v1/alert-channels", WEBHOOK | {"monitor_tags": [" web", "db"]})
    assert (made.status, made.json["monitor_tags"], made.json["monitor_ids"]) == (201, ["web", "db"], [])
    assert routed(web, db, other, none) == [0, 1]
    retag(none, "WEB")
    retag(web)
    assert routed(web, db, other, none) == [1, 3]
    path = f"/v1/alert-channels/{made.json['id']}"
    before = api.get(path).headers["ETag"]
    assert api.patch(path, {"monitor_ids": [other.public_id], "monitor_tags": []}).json["monitor_tags"] == []
    assert api.get(path).headers["ETag"] != before
    assert routed(web, db, other, none) == [2]
    assert api.patch(path, {"monitor_tags": ["db"]}).json["monitor_ids"] == [other.public_id]
    assert routed(web, db, other, none) == [1, 2]
    assert api.patch(path, {"monitors": "all"}).json["monitor_tags"] == []
    assert api.get("/v1/alert-channels").json[0]["monitor_tags"] == []


def test_a_window_covers_monitors_while_they_have_one_of_its_tags(api: Api, user: User) -> None:
    web, db, other, none = tagged(user, "Web"), tagged(user, "x", "DB"), tagged(user, "y"), tagged(user)
    made = api.post("/v1/maintenance-windows", window(monitor_tags=["web", "db"]))
    assert (made.status, made.json["monitor_tags"], made.json["monitor_ids"]) == (201, ["web", "db"], [])
    assert covered(web, db, other, none) == [0, 1]
    retag(none, "WEB")
    retag(web)
    assert covered(web, db, other, none) == [1, 3]
    path = f"/v1/maintenance-windows/{made.json['id']}"
    before = api.get(path).headers["ETag"]
    assert api.patch(path, {"monitor_ids": [other.public_id], "monitor_tags": []}).json["monitor_tags"] == []
    assert api.get(path).headers["ETag"] != before
    assert covered(web, db, other, none) == [2]
    assert api.patch(path, {"monitor_tags": ["db"]}).json["monitor_ids"] == [other.public_id]
    assert covered(web, db, other, none) == [1, 2]
    assert api.patch(path, {"monitors": "all", "monitor_ids": []}).json["monitor_tags"] == []
    assert covered(web, db, other, none) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "make"),
    [("/v1/alert-channels", lambda: WEBHOOK), ("/v1/maintenance-windows", lambda: window())],
    ids=["channel", "window"],
)
def test_invalid_tags_are_refused(api: Api, user: User, path: str, make: Callable[[], dict[str, Any]]) -> None:
    body = make()

    def refused(answer: Any) -> None:
        assert (answer.status, answer.json["error"]) == (422, "validation_error"), answer.json

    for tags in (["a", "A"], [" "], ["a,b"], ["x" * 41], [str(number) for number in range(21)], "web", None, [1]):
        refused(api.post(path, body | {"monitor_tags": tags}))
    refused(api.post(path, body))
    refused(api.post(path, body | {"monitor_tags": []}))
    refused(api.post(path, body | {"monitors": "all", "monitor_tags": ["web"]}))
    made = f"{path}/{api.post(path, body | {'monitor_tags': ['web']}).json['id']}"
    refused(api.patch(made, {"monitor_tags": []}))
    refused(api.patch(made, {"monitors": "all", "monitor_tags": ["web"]}))
    assert api.patch(made, {"monitors": "all"}).status == 200
    refused(api.patch(made, {"monitor_tags": ["web"]}))
    refused(api.patch(made, {"monitors": "chosen"}))
    assert api.patch(made, {"monitors": "chosen", "monitor_tags": ["web"]}).json["monitor_tags"] == ["web"]


def test_tags_select_only_what_all_would_cover(user: User) -> None:
    """Anyone may add a person to a project: its monitors must not reach the person's channels and pages by a tag."""
    member = UserFactory()
    project, other = ProjectFactory(owner=user, member=member), ProjectFactory(owner=user)
    own, inside = tagged(user, "web"), tagged(user, "web", project_id=project.public_id)
    elsewhere, theirs = tagged(user, "web", project_id=other.public_id), tagged(member, "web")
    monitors = (own, inside, elsewhere, theirs)
    for owner, place, expected in (
        (member, {}, [3]),
        (user, {"project_id": project.public_id}, [1]),
        (user, {}, [0, 1, 2]),
    ):
        api = Api.signed_in(owner)
        channel = api.post("/v1/alert-channels", WEBHOOK | {"monitor_tags": ["web"]} | place)
        made = api.post("/v1/maintenance-windows", window(monitor_tags=["web"]) | place)
        assert (channel.status, made.status) == (201, 201)
        assert routed(*monitors) == covered(*monitors) == expected
        assert api.delete(f"/v1/alert-channels/{channel.json['id']}").status == 200
        assert api.delete(f"/v1/maintenance-windows/{made.json['id']}").status == 200


def test_a_channel_by_tag_hears_of_the_locations_of_its_monitors(user: User) -> None:
    project = ProjectFactory(owner=user)
    made, _ = create_location(Caller(user), {"name": "Office", "project_id": project.public_id}, now=utc_now())
    location = Location.objects.get(public_id=made.public_id)
    monitor = tagged(user, "web", project_id=project.public_id, locations=[made.public_id])
    channel = ChannelFactory(owner=user, project=project, monitors="chosen", monitor_tags=["WEB"])
    AlertChannel.objects.exclude(pk=channel.pk).delete()
    assert list(routes_of_locations([location.pk]).get(location.pk, ())) == [channel.pk]
    retag(monitor, "db")
    assert not routes_of_locations([location.pk]).get(location.pk)


def shown(slug: str) -> list[tuple[str, list[str]]]:
    """Return the groups of a public page with the names of their monitors."""
    cache.clear()
    caching.clear_local_caches()
    page = json.loads(Client().get(f"/status/{slug}.json").content)
    return [(group["name"], [one["name"] for one in group["monitors"]]) for group in page["groups"]]


def page_of(api: Api, *groups: dict[str, Any], **given: Any) -> Any:
    made = api.post("/v1/status-pages", {"name": "P", "slug": "tags", "groups": list(groups), **given})
    assert made.status == 201, made.json
    return made.json


def test_a_page_shows_monitors_while_they_have_one_of_its_tags(api: Api, user: User) -> None:
    first, second, third = tagged(user, "Web", name="b"), tagged(user, "db", name="A"), tagged(user, name="third")
    named = {"monitor_id": third.public_id, "name": "Public"}
    group = {"name": "One", "monitors": [named], "monitor_tags": ["web", "DB"]}
    page = page_of(api, group, {"monitors": [], "monitor_tags": ["db"]})
    assert page["groups"] == [group, {"name": "", "monitors": [], "monitor_tags": ["db"]}]
    assert shown("tags") == [("One", ["Public", "A", "b"])]
    retag(third, "web")
    retag(first)
    assert shown("tags") == [("One", ["Public", "A"])]
    changed = api.patch(f"/v1/status-pages/{page['id']}", {"groups": [{"monitors": [], "monitor_tags": ["web"]}]})
    assert changed.headers["ETag"] != api.get("/v1/status-pages").headers.get("ETag")
    assert shown("tags") == [("", ["third"])]
    for tags in (["a", "A"], [" "], ["a,b"], "web", None):
        answer = api.patch(f"/v1/status-pages/{page['id']}", {"groups": [{"monitors": [], "monitor_tags": tags}]})
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert second.tags == ["db"]


def test_a_page_by_tags_shows_only_the_own_monitors(user: User) -> None:
    """Else anyone could add the owner of a page to a project, and choose what the page shows."""
    stranger = UserFactory()
    project, foreign = ProjectFactory(owner=user), ProjectFactory(owner=stranger, member=user)
    tagged(user, "web", name="own")
    tagged(user, "web", name="inside", project_id=project.public_id)
    tagged(stranger, "web", name="foreign", project_id=foreign.public_id)
    api, group = Api.signed_in(user), {"monitors": [], "monitor_tags": ["web"]}
    page_of(api, group)
    assert shown("tags") == [("", ["inside", "own"])]
    page_of(api, group, slug="tags2", project_id=project.public_id)
    assert shown("tags2") == [("", ["inside"])]


def test_subscribers_hear_of_monitors_that_tags_select(api: Api, user: User) -> None:
    named, by_tag, other = tagged(user, "web", name="n"), tagged(user, "web", name="t"), tagged(user, name="o")
    group = {"monitors": [{"monitor_id": named.public_id, "name": "Public"}], "monitor_tags": ["WEB"]}
    page = StatusPage.objects.get(public_id=page_of(api, group)["id"])
    make_subscriber(page)
    now = utc_now()
    for monitor in (named, by_tag, other):
        IncidentFactory(monitor=monitor, announced_at=now, started_at=now)
    add_outage_events(now)
    add_outage_events(now)
    titles = set(PageEvent.objects.values_list("title", flat=True))
    assert titles == {"Public is down", "t is down"}
    Incident.objects.update(resolved_at=now, resolution="recovered", closing_announced_at=now)
    add_outage_events(now)
    assert set(PageEvent.objects.values_list("title", flat=True)) - titles == {
        "Public has recovered",
        "t has recovered",
    }
