"""What public pages show, and what they never show."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import utc_now
from incidents.models import Incident
from incidents.windows import create_window
from monitors.models import LocationFailure, Monitor, MonitorState
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from projects.models import Membership
from statuspages import caching
from statuspages.badges import create_badge, delete_badge
from statuspages.content import content_of
from statuspages.models import StatusPage
from statuspages.services import create_note, delete_page, set_logo, update_page
from tests.factories import IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import keep_checked, minutes
from tests.locations import add_agent, shared
from tests.statuspages.making import look, make_page, make_subscriber, picture

SECRET = "Billing of ACME at db7"
URL = "http://127.0.0.1:9/s3cret-path"
ATOM = "{http://www.w3.org/2005/Atom}"


def private_monitor(owner: User, **given: Any) -> Monitor:
    now = utc_now() - timedelta(days=3)
    monitor = MonitorFactory(owner=owner, created_at=now, up=True, name=SECRET, url=URL, **given)
    keep_checked(utc_now() + timedelta(hours=1))
    return monitor


def everything_of(page: StatusPage) -> str:
    """Return all public responses of a page, headers and bodies, in one text."""
    root = f"/status/{page.slug}"
    month = f"{utc_now():%Y-%m}"
    answers = [look(root + rest) for rest in ("", ".json", ".atom", "/theme.css", f"/history/{month}")]
    assert {answer.status_code for answer in answers} == {200}
    return "\n".join(f"{answer.headers} {answer.content.decode()}" for answer in answers)


def test_a_partial_outage_is_degraded(user: User) -> None:
    monitor, whole = private_monitor(user), private_monitor(user)
    online = shared("fra", name="Frankfurt <1>")
    shared("ams", name="Amsterdam")
    add_agent(online, seen=utc_now())
    Monitor.objects.filter(pk=monitor.pk).update(locations=["default", "fra", "ams"])
    failure = LocationFailure.objects.create(
        monitor=monitor, location_id=online.pk, config_version=1, failures=3, since=utc_now(), detail=SECRET
    )
    plain, detailed = make_page(user, [monitor, whole]), make_page(user, [monitor, whole], show_locations=True)
    for page in (plain, detailed):
        content = content_of(page, now=utc_now())
        assert (content.state, content.sentence) == ("degraded", "1 of 2 is degraded")
        assert [one["status"] for one in content.groups[0]["monitors"]] == ["degraded", "up"]
    shown = everything_of(plain)
    assert "Frankfurt" not in shown
    assert SECRET not in shown
    shown = everything_of(detailed)
    assert "Frankfurt &lt;1&gt;" in shown
    assert SECRET not in shown
    body = json.loads(look(f"/status/{detailed.slug}.json").content)
    names = [settings.LOCATION_NAME, "Frankfurt <1>", "Amsterdam"]
    places = [{"name": name, "status": status} for name, status in zip(names, ["up", "down", "unknown"], strict=True)]
    assert [one.get("locations") for one in body["groups"][0]["monitors"]] == [places, None]
    badge = create_badge(Caller(user), monitor.public_id, now=utc_now())
    assert "status: degraded" in look(f"/badge/{badge.key}/status.svg").content.decode()
    stale = MonitorState.objects.filter(pk=monitor.pk)
    stale.update(next_due_at=utc_now() - timedelta(days=1), last_checked_at=utc_now() - timedelta(days=2))
    assert {one["status"] for one in shown_places(detailed)} == {"unknown"}
    keep_checked(utc_now() + timedelta(hours=1))
    now = utc_now()
    window = {"name": "Move", "starts_at": now - timedelta(hours=1), "ends_at": now + timedelta(hours=1)}
    create_window(Caller(user), window | {"monitors": "all"}, now=now)
    assert [one["status"] for one in shown_places(detailed)] == ["up", "maintenance", "unknown"]
    assert content_of(detailed, now=now).state == "maintenance"
    failure.delete()
    assert "degraded" not in str(content_of(detailed, now=now))


def shown_places(page: StatusPage) -> list[dict[str, str]]:
    places: list[dict[str, str]] = content_of(page, now=utc_now()).groups[0]["monitors"][0]["locations"]
    return places


def has_outage(monitor: Monitor, *, hours_ago: float = 2, **columns: Any) -> Incident:
    at = utc_now() - timedelta(hours=hours_ago)
    return IncidentFactory(
        monitor=monitor,
        detail=f"{URL} answered 500.",
        started_at=at,
        confirmed_at=at + minutes(1),
        announced_at=at + minutes(1),
        **columns,
    )


def test_a_page_shows_its_monitors_under_their_names_there(user: User) -> None:
    page = make_page(user, [private_monitor(user)], description="How <we> are.", accent="#5b6ee1")
    answer = look(f"/status/{page.slug}")
    text = answer.content.decode()
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "Shown 1" in text
    assert "All systems operational" in text
    assert "How &lt;we&gt; are." in text
    assert re.search(r"<path class=\"fill-up\"", text)
    assert "#5b6ee1" in look(f"/status/{page.slug}/theme.css").content.decode()


def test_a_stale_monitor_is_not_operational(user: User) -> None:
    monitors = [private_monitor(user) for _ in range(2)]

    def go_stale(monitor: Monitor) -> tuple[str, str]:
        """Return the state and the sentence of a page with both monitors, if this one was not checked for an hour."""
        at = utc_now() - timedelta(hours=1)
        MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=at, last_checked_at=at, claimed_at=None)
        page = make_page(user, monitors)
        status = json.loads(look(f"/status/{page.slug}.json").content)["status"]
        assert status["description"] in look(f"/status/{page.slug}").content.decode()
        return status["state"], status["description"]

    assert go_stale(monitors[0]) == ("unknown", "No current data for 1 of 2")
    assert go_stale(monitors[1]) == ("unknown", "No current data")


def test_nothing_of_a_monitor_is_told_but_what_is_shown(user: User) -> None:
    monitor = private_monitor(user)
    other = private_monitor(user)
    page = make_page(user, [monitor])
    has_outage(monitor)
    has_outage(other)
    incident = has_outage(private_monitor(user), resolved_at=utc_now(), resolution=Incident.Resolution.RECOVERED)
    note = {"title": "Late", "status": "investigating", "text": "Orders are late."}
    create_note(Caller(user), page.public_id, note, now=utc_now())
    text = everything_of(page)
    for secret in (
        SECRET,
        "s3cret",
        "answered 500",
        monitor.public_id,
        other.public_id,
        incident.public_id,
        user.email,
        user.public_id,
    ):
        assert secret not in text, secret
    assert "Shown 1 is down" in text
    assert "Orders are late." in text


def test_what_is_gone_from_its_place_is_gone_from_the_page(user: User) -> None:
    colleague = UserFactory()
    project = ProjectFactory(owner=user, member=colleague)
    kept, moved, deleted = (private_monitor(user, project_id=project.public_id) for _ in range(3))
    page = make_page(user, [kept, moved, deleted], project_id=project.public_id)
    for monitor in (kept, moved, deleted):
        has_outage(monitor)
    update_monitor(Caller(user), moved.public_id, {"project_id": None}, now=utc_now())
    delete_monitor(Caller(user), deleted.public_id)
    cache.clear()
    text = everything_of(page)
    assert "Shown 1" in text
    assert "Shown 2" not in text
    assert "Shown 3" not in text

    theirs = make_page(colleague, [kept])
    assert "Shown 1" in everything_of(theirs)
    Membership.objects.filter(user=colleague).delete()
    cache.clear()
    assert "Shown 1" not in everything_of(theirs)


def test_hostile_text_is_text(user: User) -> None:
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x0b&amp;"
    monitor = private_monitor(user)
    shown = [{"name": attack, "monitors": [{"monitor_id": monitor.public_id, "name": attack}]}]
    page = make_page(user, [], name=attack, description=attack, groups=shown)
    has_outage(monitor)
    note = {"title": attack, "status": "investigating", "text": attack}
    create_note(Caller(user), page.public_id, note, now=utc_now())
    root = f"/status/{page.slug}"
    for path in (root, f"{root}/history/{utc_now():%Y-%m}"):
        text = look(path).content.decode()
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert(1)" in text
    feed = ElementTree.fromstring(look(f"{root}.atom").content)
    titles = [title.text for title in feed.iter(f"{ATOM}title")]
    assert attack.replace("\x0b", "") in titles
    assert json.loads(look(f"{root}.json").content)["page"]["name"] == attack


@pytest.mark.parametrize("rest", ["", ".json", ".atom", "/theme.css", "/logo", "/history/2026-01"])
def test_an_unpublished_page_is_as_none(user: User, rest: str) -> None:
    page = make_page(user, [private_monitor(user)])
    update_page(Caller(user), page.public_id, {"published": False})
    answer = look(f"/status/{page.slug}{rest}")
    assert answer.status_code == 404
    assert answer.content == look(f"/status/no-such-page{rest}").content


def test_a_page_that_is_deleted_is_gone_at_once(user: User, django_capture_on_commit_callbacks: Any) -> None:
    page = make_page(user, [private_monitor(user)])
    assert look(f"/status/{page.slug}").status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        delete_page(Caller(user), page.public_id)
    assert look(f"/status/{page.slug}").status_code == 404


def test_a_change_is_seen_at_once(user: User, django_capture_on_commit_callbacks: Any) -> None:
    page = make_page(user, [])
    assert "Shop status" in look(f"/status/{page.slug}").content.decode()
    with django_capture_on_commit_callbacks(execute=True):
        update_page(Caller(user), page.public_id, {"name": "Renamed"})
    assert "Renamed" in look(f"/status/{page.slug}").content.decode()


def test_json_says_what_the_page_says(user: User) -> None:
    monitor = private_monitor(user)
    page = make_page(user, [monitor])
    has_outage(monitor, resolved_at=utc_now(), resolution=Incident.Resolution.RECOVERED)
    answer = look(f"/status/{page.slug}.json")
    found = json.loads(answer.content)
    assert answer["Access-Control-Allow-Origin"] == "*"
    assert found["status"] == {"state": "up", "description": "All systems operational"}
    (shown,) = found["groups"][0]["monitors"]
    assert (shown["name"], shown["status"], shown["uptime_90d"]) == ("Shown 1", "up", 100.0)
    assert len(shown["days"]["uptime"]) == 90
    assert [one["title"] for one in found["past_incidents"]] == ["Shown 1 was down"]


@pytest.mark.parametrize(
    ("is_shown", "title"), [(True, "Shown 1 is down because Shown 2 is"), (False, "Shown 1 is down")]
)
def test_a_cause_is_named_if_the_page_shows_it(user: User, is_shown: bool, title: str) -> None:
    shop, router = private_monitor(user), private_monitor(user)
    page = make_page(user, [shop, router] if is_shown else [shop])
    has_outage(shop, caused_by=has_outage(router))
    found = json.loads(look(f"/status/{page.slug}.json").content)
    assert title in [one["title"] for one in found["incidents"]]


def test_the_feed_is_atom(user: User) -> None:
    monitor = private_monitor(user)
    page = make_page(user, [monitor])
    has_outage(monitor)
    feed = ElementTree.fromstring(look(f"/status/{page.slug}.atom").content)
    assert feed.tag == f"{ATOM}feed"
    (entry,) = feed.iter(f"{ATOM}entry")
    assert entry.findtext(f"{ATOM}title") == "Shown 1 is down"
    assert (entry.findtext(f"{ATOM}id") or "").startswith("tag:pulsekeeper,2026:")


def test_the_settings_of_monitors_are_not_read(user: User) -> None:
    monitors = [private_monitor(user) for _ in range(20)]
    page = make_page(user, monitors)
    texts = {"request_body": "x" * 500_000}
    Monitor.objects.update(config=monitors[0].config | texts)
    content_of(page, now=utc_now())
    tracemalloc.start()
    try:
        content_of(page, now=utc_now())
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # the settings take 10 MB
    finally:
        tracemalloc.stop()


def test_maintenance_names_a_limited_number_of_monitors(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_page(user, [private_monitor(user) for _ in range(3)])
    starts_at = utc_now() + timedelta(days=1)
    for days in range(4):
        start = starts_at + timedelta(days=days)
        given = {"name": f"{days}", "starts_at": start, "ends_at": start + minutes(30), "monitors": "all"}
        create_window(Caller(user), given, now=utc_now())
    for limit, shown in ((12, 4), (11, 3), (2, 1)):
        monkeypatch.setattr("statuspages.content.MOST_NAMED", limit)
        found = content_of(page, now=utc_now()).maintenance
        assert [each["starts_at"] for each in found] == [starts_at + timedelta(days=days) for days in range(shown)]
        assert {len(each["monitors"]) for each in found} == {3}


def test_maintenance_of_many_monitors_is_folded(user: User) -> None:
    page = make_page(user, [private_monitor(user) for _ in range(11)])
    window = {"name": "x", "starts_at": utc_now() - minutes(1), "ends_at": utc_now() + minutes(30), "monitors": "all"}
    create_window(Caller(user), window, now=utc_now())
    assert "<summary>11 monitors</summary>" in everything_of(page)
    few = make_page(user, [private_monitor(user) for _ in range(10)])
    assert "<summary>10 monitors</summary>" not in everything_of(few)


def test_maintenance_is_shown_without_its_name_unless_the_page_says_so(user: User) -> None:
    monitor = private_monitor(user)
    now = utc_now()
    window = {"name": "Moving db7", "starts_at": now, "ends_at": now + timedelta(hours=1)}
    create_window(Caller(user), window | {"monitors": "all"}, now=now)
    hidden = make_page(user, [monitor])
    named = make_page(user, [monitor], show_window_names=True)
    assert "Moving db7" not in everything_of(hidden)
    assert "Scheduled maintenance" in everything_of(hidden)
    assert "Moving db7" in everything_of(named)


class TestPasswords:
    def test_without_it_nothing_is_seen(self, user: User) -> None:
        page = make_page(user, [private_monitor(user)], password="open sesame")
        set_logo(Caller(user), page.public_id, picture())
        for rest in ("", ".json", ".atom", "/theme.css", "/logo", f"/history/{utc_now():%Y-%m}"):
            answer = look(f"/status/{page.slug}{rest}")
            assert answer.status_code == 403
            assert "Shown 1" not in answer.content.decode()
            assert page.name not in answer.content.decode()
            assert answer["Cache-Control"] == "no-store"

    def test_with_it_everything_is(self, user: User, client: Any) -> None:
        page = make_page(user, [private_monitor(user)], password="open sesame")
        root = f"/status/{page.slug}"
        wrong = client.post(f"{root}/unlock", {"password": "close sesame"})
        assert (wrong.status_code, wrong.cookies) == (403, {})
        right = client.post(f"{root}/unlock", {"password": "open sesame"})
        (cookie,) = right.cookies.values()
        assert (cookie["samesite"], cookie["httponly"]) == ("Strict", True)
        # The test client sends every cookie everywhere; browsers only below a path that ends with a slash.
        assert cookie["path"] == "/status/"
        shown = client.get(root)
        assert "Shown 1" in shown.content.decode()
        assert "noindex" in shown.content.decode()
        assert shown["Cache-Control"] == "private, no-cache"
        assert "Access-Control-Allow-Origin" not in client.get(f"{root}.json")

    def test_another_pages_cookie_and_an_old_one_open_nothing(
        self, user: User, client: Any, django_capture_on_commit_callbacks: Any
    ) -> None:
        page, other = (make_page(user, [], password="open sesame") for _ in range(2))
        client.post(f"/status/{other.slug}/unlock", {"password": "open sesame"})
        stolen = client.cookies[f"status_{other.pk}"].value
        client.cookies[f"status_{page.pk}"] = stolen
        assert client.get(f"/status/{page.slug}").status_code == 403
        assert client.get(f"/status/{other.slug}").status_code == 200
        with django_capture_on_commit_callbacks(execute=True):
            update_page(Caller(user), other.public_id, {"password": "another one"})
        caching.clear_local_caches()
        assert client.get(f"/status/{other.slug}").status_code == 403

    def test_it_is_tried_a_few_times_only(self, user: User, client: Any, settings: Settings) -> None:
        settings.THROTTLE_SCALE = 1
        page = make_page(user, [], password="open sesame")
        tries = [client.post(f"/status/{page.slug}/unlock", {"password": "x"}).status_code for _ in range(11)]
        assert tries == [403] * 10 + [429]

    def test_many_addresses_together_try_it_so_often_only(self, user: User, client: Any, settings: Settings) -> None:
        settings.THROTTLE_SCALE = 1
        few = {"status-password": (2, 900), "status-password-page": (5, 900)}
        settings.THROTTLES = settings.THROTTLES | few
        page, other = (make_page(user, [], password="open sesame") for _ in range(2))

        def attempt(number: int, at: StatusPage) -> int:
            where = {"REMOTE_ADDR": f"203.0.{number}.1"}
            status: int = client.post(f"/status/{at.slug}/unlock", {"password": "x"}, **where).status_code
            return status

        assert [attempt(1, page) for _ in range(5)] == [403, 403, 429, 429, 429]
        assert [attempt(number, page) for number in (2, 3, 4, 5)] == [403, 403, 403, 429]
        assert attempt(5, other) == 403


class TestDomains:
    @pytest.fixture
    def page(self, user: User, settings: Settings) -> StatusPage:
        settings.STATUS_PAGE_DOMAINS = [".shop.example"]
        page = make_page(user, [private_monitor(user)], custom_domain="Status.Shop.example")
        StatusPage.objects.update(domain_verified_at=utc_now())
        return page

    def test_the_domain_is_the_page(self, page: StatusPage) -> None:
        host = "status.shop.example"
        text = look("/", host=host).content.decode()
        assert "Shown 1" in text
        assert f"/status/{page.slug}" not in text
        for path in ("/status.json", "/status.atom", "/theme.css", f"/history/{utc_now():%Y-%m}"):
            assert look(path, host=f"{host}:8443").status_code == 200
        assert json.loads(look("/status.json", host=host).content)["page"]["url"] == f"http://{host}/"
        assert "Shown 1" in look(f"/status/{page.slug}").content.decode()

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/monitors",
            "/v1/sessions",
            "/admin/",
            "/account/login/",
            "/openapi.json",
            "/metrics",
            "/readyz",
            "/monitors",
            "/static/admin/css/base.css",
            "/status/other",
            "/status-pages",
        ],
    )
    def test_and_nothing_else(self, page: StatusPage, user: User, path: str) -> None:
        make_page(user, [], slug="other")
        answer = look(path, host="status.shop.example")
        assert answer.status_code == 404
        assert "Page not found" in answer.content.decode()

    def test_its_styles_are_served(self, page: StatusPage) -> None:
        answer = look("/static/pulsekeeper/status.css", host="status.shop.example")
        answer.close()
        assert answer.status_code == 200

    def test_a_domain_without_a_page_shows_nothing(self, page: StatusPage) -> None:
        assert look("/", host="other.shop.example").status_code == 404
        assert look("/v1/monitors", host="other.shop.example").status_code == 404

    def test_an_unproved_domain_shows_nothing(self, page: StatusPage) -> None:
        StatusPage.objects.update(domain_verified_at=None)
        assert look("/", host="status.shop.example").status_code == 404
        page.refresh_from_db()
        assert page.url == f"http://localhost:8000/status/{page.slug}"

    def test_a_host_longer_than_any_domain_is_none(self, page: StatusPage) -> None:
        assert look("/", host=f"{'a.' * 2_000}shop.example").status_code == 404

    def test_hosts_that_are_none_of_ours_are_refused(self, page: StatusPage) -> None:
        assert look("/", host="evil.example").status_code == 400
        assert look(f"/status/{page.slug}", host="evil.example").status_code == 400


class TestCaching:
    def test_readers_that_have_it_get_304_and_others_may_have_it_packed(self, user: User) -> None:
        page = make_page(user, [private_monitor(user)])
        path = f"/status/{page.slug}"
        plain = look(path)
        packed = look(path, **{"accept-encoding": "br, gzip"})
        assert gzip.decompress(packed.content) == plain.content
        assert (packed["Content-Encoding"], packed["Vary"]) == ("gzip", "Accept-Encoding")
        assert plain["Cache-Control"] == "public, max-age=10"
        again = look(path, **{"if-none-match": plain["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert look(path, **{"accept-encoding": "gzip;q=0"}).content == plain.content

    def test_a_cached_page_asks_nothing_of_the_database(self, user: User) -> None:
        page = make_page(user, [private_monitor(user)])
        look(f"/status/{page.slug}")
        with CaptureQueriesContext(connection) as captured:
            assert look(f"/status/{page.slug}").status_code == 200
        assert len(captured) == 0

    def test_as_many_queries_for_many_monitors_as_for_one(self, user: User) -> None:
        counts = []
        for number in (1, 30):
            monitors = [private_monitor(user) for _ in range(number)]
            page = make_page(user, monitors)
            for monitor in monitors:
                has_outage(monitor)
            with CaptureQueriesContext(connection) as captured:
                look(f"/status/{page.slug}")
            counts.append(len(captured))
        assert counts[0] == counts[1] <= 20

    def test_while_one_renders_others_get_the_stored_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[str] = []

        def make(body: str) -> bytes:
            made.append(body)
            return body.encode()

        key = f"test:{utc_now().timestamp()}"
        assert caching.fetch(key, "text/plain", lambda: make("first")).body == b"first"
        monkeypatch.setattr(caching, "FRESH_SEC", 0.0)

        def second() -> bytes:
            caching.clear_local_caches()
            meanwhile = caching.fetch(key, "text/plain", lambda: make("not needed"))
            assert meanwhile.body == b"first"
            return make("second")

        caching.clear_local_caches()
        assert caching.fetch(key, "text/plain", second).body == b"second"
        assert made == ["first", "second"]


class TestBadges:
    NAMES = ("status", "uptime-24h", "uptime-7d", "uptime-30d", "uptime-90d", "latency")

    def test_they_show_the_status_and_nothing_more(self, user: User) -> None:
        monitor = private_monitor(user)
        badge = create_badge(Caller(user), monitor.public_id, now=utc_now())
        texts = []
        for name in self.NAMES:
            answer = look(f"/badge/{badge.key}/{name}.svg")
            assert (answer.status_code, answer["Content-Type"]) == (200, "image/svg+xml")
            texts.append(answer.content.decode())
            ElementTree.fromstring(answer.content)
        joined = "\n".join(texts)
        assert "status: up" in joined
        assert "uptime 90d: 100%" in joined
        for secret in (SECRET, "s3cret", monitor.public_id, user.email):
            assert secret not in joined

    def test_without_a_key_there_is_none(self, user: User) -> None:
        monitor = private_monitor(user)
        assert look(f"/badge/{monitor.public_id}/status.svg").status_code == 404
        badge = create_badge(Caller(user), monitor.public_id, now=utc_now())
        assert look(f"/badge/{badge.key}/name.svg").status_code == 404
        delete_badge(Caller(user), monitor.public_id)
        assert look(f"/badge/{badge.key}/status.svg").status_code == 404
        assert create_badge(Caller(user), monitor.public_id, now=utc_now()).key != badge.key


def test_subscribers_are_on_no_page(user: User) -> None:
    page = make_page(user, [])
    make_subscriber(page, email="reader@example.com")
    assert "reader" not in everything_of(page)


def test_the_admin_shows_who_has_which_address_and_no_secret(user: User, client: Any) -> None:
    page = make_page(user, [], password="open sesame")
    type(user).objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
    client.force_login(user)
    for path in ("/admin/statuspages/statuspage/", f"/admin/statuspages/statuspage/{page.pk}/change/"):
        text = client.get(path).content.decode()
        assert page.slug in text
        assert page.password_hash not in text
