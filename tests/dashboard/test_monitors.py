"""The pages of monitors: their content, number of queries, and actions."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.results.models import CheckResult, HourlyRollup
from checks.results.rollups import roll_up
from checks.spec import Verdict
from core.clock import to_ms, utc_now
from dashboard.monitors import actions
from dashboard.monitors.listing import Listing, tally
from dashboard.monitors.rows import MAX_REASON
from incidents import consuming
from incidents.windows import create_window
from monitors.configuration import build, config_columns
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.operations import mute_for
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_now
from monitors.services import update_monitor
from monitors.uptime.daily import leave_out
from projects.access import Caller
from projects.models import Project
from tests.factories import ChannelFactory, CheckResultFactory, MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, check_record, keep_checked, outcome, record_ping, state_of

HOSTILE = "<script>alert('x')</script>\"&"
MOST_QUERIES = 20


def page(web: Client, path: str, **headers: str) -> str:
    answer = web.get(path, headers=headers)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def names(html: str) -> list[str]:
    """Return the names of the monitors in the list, in order."""
    return [unescape(name) for name in re.findall(r'<a class="name truncate" href="[^"]*">([^<]*)</a>', html)]


def act(web: Client, action: str, **fields: Any) -> Any:
    """Send the action. A deletion is confirmed on its page."""
    answer = web.post("/monitors/actions", {"action": action, **fields}, follow=True)
    return confirm(web, answer) if 'name="tags"' in answer.content.decode() else answer


def confirm(web: Client, asked: Any) -> Any:
    """Confirm the deletion on its page."""
    sent = dict(re.findall(r'<input type="hidden" name="(action|tags|next)" value="([^"]*)">', asked.content.decode()))
    return web.post("/monitors/actions", sent, follow=True)


def check(monitor: Monitor, *verdicts: Verdict, at: datetime) -> None:
    """Record these checks, the first one at that time and the others a minute apart."""
    for verdict in verdicts:
        claims = claim_now([monitor.pk], now=at)
        record([CheckRecord(monitor.pk, claims[monitor.pk], 1, outcome(verdict, at=at))], now=at)
        at += timedelta(minutes=1)


@pytest.fixture
def shown(user: User) -> dict[str, Monitor]:
    """Create a monitor in every state, in an order that differs from all tested orders."""
    now = utc_now() - timedelta(hours=1)
    shop = ProjectFactory(owner=user, name="Shop")
    made = {
        "Up": MonitorFactory(owner=user, name="Up", up=True, created_at=now, url="http://127.0.0.1:9/needle"),
        "Down": MonitorFactory(owner=user, name="Down", down=True, created_at=now, fail_threshold=1),
        "Waiting": MonitorFactory(owner=user, name="Waiting", created_at=now, heartbeat=True),
        "Paused": MonitorFactory(owner=user, name="Paused", up=True, created_at=now, project=shop),
        "Slow": MonitorFactory(owner=user, name="Slow", slow=True, created_at=now, project=shop),
    }
    update_monitor(Caller(user), made["Paused"].public_id, {"enabled": False}, now=utc_now())
    mute_for([made["Slow"].pk], minutes=30, now=utc_now())
    keep_checked(utc_now() + timedelta(hours=1))
    for name, latency in (("Up", 30), ("Slow", 900), ("Paused", 50)):
        MonitorState.objects.filter(pk=made[name].pk).update(last_latency_ms=latency)
    return made


def test_nothing_yet_leads_on(web: Client) -> None:
    html = page(web, "/monitors")
    assert "/monitors/new" in html
    assert "/connectors" in html


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["Down", "Slow", "Waiting", "Up", "Paused"]),
        ("?sort=name", ["Down", "Paused", "Slow", "Up", "Waiting"]),
        ("?sort=latency", ["Slow", "Paused", "Up", "Down", "Waiting"]),
        ("?sort=uptime", ["Down", "Paused", "Slow", "Up", "Waiting"]),
        ("?state=down", ["Down"]),
        ("?state=paused", ["Paused"]),
        ("?state=muted", ["Slow"]),
        ("?state=pending", ["Waiting"]),
        ("?type=heartbeat", ["Waiting"]),
        ("?project_id=none", ["Down", "Waiting", "Up"]),
        ("?q=NEEDLE", ["Up"]),
        ("?q=pau", ["Paused"]),
        ("?q=100%25", []),
        ("?grouped=1", ["Slow", "Paused", "Down", "Waiting", "Up"]),
        ("?grouped=1&sort=uptime", ["Paused", "Slow", "Down", "Up", "Waiting"]),
        # Invalid values are ignored.
        ("?state=odd&sort=odd&type=odd&page=odd&project_id=%00", ["Down", "Slow", "Waiting", "Up", "Paused"]),
        ("?q=a%00b", []),
        ("?project_id=prj_none_of_mine", []),
        ("?page=99999", []),
    ],
)
def test_lists_what_is_asked_for(web: Client, shown: dict[str, Monitor], query: str, expected: list[str]) -> None:
    assert names(page(web, f"/monitors{query}")) == expected


def test_counts_the_states_and_says_in_the_title_what_is_down(web: Client, shown: dict[str, Monitor]) -> None:
    html = page(web, "/monitors")
    assert "<title>1 down · Monitors · Pulsekeeper</title>" in html
    counts = dict(re.findall(r'id="facet-(\w+)".*?<span class="number">(\d+)</span>', html, re.DOTALL))
    assert counts == {"all": "5", "down": "1", "slow": "1", "pending": "1", "up": "1", "paused": "1", "muted": "1"}


def test_says_what_fails_though_it_is_not_down_and_what_is_under_maintenance(web: Client, user: User) -> None:
    start = utc_now() - timedelta(hours=3)
    made = {
        name: MonitorFactory(owner=user, name=name, created_at=start, up=True, fail_threshold=3)
        for name in ("Failing", "Muted", "Both", "Mended", "Unmuted", "Serviced", "Fine", "Paused")
    }
    beat: dict[str, Any] = {"type": "heartbeat", "interval_sec": 3600, "grace_sec": 600}
    for name in ("Silent", "Punctual", "Rescheduled", "Waiting"):
        made[name] = MonitorFactory(owner=user, name=name, created_at=start, **beat)
        if name != "Waiting":
            record_ping(made[name].public_id, now=start if name != "Punctual" else utc_now())
    half_past = start + timedelta(minutes=90)
    fails = {"Failing": 2, "Muted": 0, "Both": 1, "Mended": 2, "Unmuted": 0, "Paused": 1}
    for name in fails:
        check(made[name], *[Verdict.DOWN] * fails[name], at=half_past)
    for name in ("Muted", "Both", "Unmuted", "Silent", "Punctual", "Rescheduled", "Waiting"):
        mute_for([made[name].pk], minutes=600, now=half_past)
    for name in ("Muted", "Both", "Unmuted"):
        check(made[name], Verdict.DOWN, Verdict.DOWN, at=half_past + timedelta(minutes=5))
    mute_for([made["Unmuted"].pk], minutes=0, now=utc_now())
    check(made["Mended"], Verdict.UP, at=half_past + timedelta(minutes=20))
    changed = start + timedelta(minutes=100)
    update_monitor(Caller(user), made["Rescheduled"].public_id, {"interval_sec": 3000}, now=changed)
    update_monitor(Caller(user), made["Paused"].public_id, {"enabled": False}, now=utc_now())
    keep_checked(utc_now() + timedelta(hours=1))
    window = {"name": "Rack", "starts_at": start, "ends_at": utc_now() + timedelta(hours=1), "monitors": "chosen"}
    create_window(Caller(user), window | {"monitor_ids": [made["Serviced"].public_id]}, now=utc_now())

    def said(name: str) -> str:
        html = page(web, f"/monitors?q={name}&sort=name")
        row = re.search(rf'<tr id="{made[name].public_id}".*?</tr>', html, re.DOTALL)
        assert row is not None
        notes = re.search(r'<div class="notes">(.*?)</div>', row[0])
        without_reason = re.sub(r'<span class="why.*?</span>', "", "" if notes is None else notes[1])
        return re.sub(r'<time datetime="([^"]*)".*?</time>', r"\1", without_reason)

    def since(at: datetime) -> str:
        return f"since {at.isoformat(timespec='seconds')}"

    expected = {
        "Failing": f"Failing 2 of 3 {since(half_past)}",
        "Muted": f"Muted, failing {since(half_past + timedelta(minutes=5))}",
        "Both": f"Muted, failing {since(half_past)}",
        "Mended": "",
        "Unmuted": f"Failing {since(half_past + timedelta(minutes=5))}",
        "Serviced": "Maintenance",
        "Fine": "",
        "Paused": "",
        "Silent": f"Muted, failing {since(start + timedelta(minutes=70))}",
        "Punctual": "Muted",
        "Rescheduled": f"Muted, failing {since(changed + timedelta(seconds=3600))}",
        "Waiting": "Muted",
    }
    assert {name: re.sub(r"<[^>]*>", "", said(name)) for name in made} == expected
    html = page(web, "/monitors")
    counts = dict(re.findall(r'id="facet-(\w+)".*?<span class="number">(\d+)</span>', html, re.DOTALL))
    assert (counts["failing"], counts["muted"], counts["maintenance"]) == ("6", "6", "1")
    failing = [name for name, text in expected.items() if "ailing" in text]
    assert names(page(web, "/monitors?state=failing&sort=name")) == sorted(failing)
    assert names(page(web, "/monitors?state=maintenance")) == ["Serviced"]
    for name, words in (
        ("Failing", "Failing 2 of 3"),
        ("Silent", "Failing"),
        ("Muted", "Muted until"),
        ("Serviced", "Maintenance until"),
    ):
        assert words in re.sub(r"<[^>]*>", "", page(web, f"/monitors/{made[name].public_id}")), name


def test_htmx_gets_the_list_alone_and_its_address(web: Client, shown: dict[str, Monitor]) -> None:
    answer = web.get("/monitors?q=up&state=&sort=state", headers={"HX-Request": "true"})
    assert answer.headers["HX-Push-Url"] == "/monitors?q=up"
    assert "<html" not in answer.content.decode()
    restored = web.get("/monitors", headers={"HX-Request": "true", "HX-History-Restore-Request": "true"})
    assert "<html" in restored.content.decode()


def test_long_lists_come_in_pages_that_miss_and_repeat_nothing(web: Client, user: User) -> None:
    make_many(user, 205)
    seen: list[str] = []
    for number in range(1, 6):
        for headers in ({}, {"HX-Request": "true"}):
            found = names(page(web, f"/monitors?sort=name&page={number}", **headers))
        seen += found
    assert seen == sorted(seen)
    assert len(set(seen)) == 205
    by_uptime = [names(page(web, f"/monitors?sort=uptime&page={number}")) for number in range(1, 6)]
    assert [len(found) for found in by_uptime] == [50, 50, 50, 50, 5]
    assert len({name for found in by_uptime for name in found}) == 205


def test_the_number_of_queries_does_not_grow_with_the_list(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    down = {"status": "down", "failing_since": utc_now(), "last_checked_at": utc_now()}
    make_many(user, 3, project_id=project.pk)
    MonitorState.objects.update(**down)
    few = queries(web, "/monitors?grouped=1&sort=uptime")
    make_many(user, 60, project_id=project.pk)
    MonitorState.objects.update(**down)
    assert queries(web, "/monitors?grouped=1&sort=uptime") == few <= MOST_QUERIES


def test_a_row_shows_why_its_monitor_is_down(web: Client, user: User) -> None:
    now = utc_now()
    down, without_text = (MonitorFactory(owner=user, created_at=now, down=True) for _ in range(2))
    failing = MonitorFactory(owner=user, created_at=now, up=True)
    check(failing, Verdict.DOWN, at=now)
    results = CheckResult.objects.filter(monitor_id=down.pk)
    results.update(detail=HOSTILE + "x" * 280)
    CheckResult.objects.filter(monitor_id=without_text.pk).update(detail=None)
    other = MonitorFactory(owner=user, up=True, created_at=now)

    def shown(monitor: Monitor) -> str:
        row = re.search(rf'<tr id="{monitor.public_id}".*?</tr>', page(web, "/monitors"), re.DOTALL)
        assert row is not None
        reason = re.search(r'<span class="why">(.*?)</span>', row[0])
        return "" if reason is None else reason[1]

    assert shown(down).startswith("&lt;script&gt;alert")
    assert len(unescape(shown(down))) == MAX_REASON
    assert shown(down).endswith("x…")
    assert shown(failing) == "Answered 500."
    assert shown(without_text) == "Unexpected status code"
    assert shown(other) == ""
    results.update(checked_at=now - timedelta(hours=1))  # the reason of an earlier check does not apply to the last one
    assert shown(down) == ""
    Monitor.objects.filter(pk=failing.pk).update(enabled=False)
    assert shown(failing) == ""


@pytest.mark.parametrize("covered", [False, True])
def test_the_bars_of_a_young_monitor_agree_with_its_percentages(web: Client, user: User, covered: bool) -> None:
    """An outage that is confirmed in the next hour, or during maintenance, counts the same in both."""
    hour = utc_now().replace(hour=12, minute=0, second=0, microsecond=0)
    first, now = hour - timedelta(hours=1, minutes=30), hour + timedelta(minutes=28)
    monitor = MonitorFactory(owner=user, url="https://young.example/", fail_threshold=3, created_at=first)
    check(monitor, Verdict.UP, at=first)
    if covered:
        leave_out({(monitor.pk, first): now + timedelta(hours=1)}, now=first)
    check(monitor, Verdict.DOWN, Verdict.DOWN, Verdict.DOWN, at=hour - timedelta(minutes=2))  # confirmed at the hour
    keep_checked(now + timedelta(hours=1))
    with time_machine.travel(now, tick=False):
        html, shown = page(web, "/monitors"), page(web, f"/monitors/{monitor.public_id}")
    assert 'aria-label="Last 24 hours: 1 with an outage, 2 up, 21 without observation."' in html
    percents = set(re.findall(r'<dt class="help">Uptime [^<]*</dt><dd class="value">([^<]*)</dd>', shown))
    lasted = "28 min" if covered else "30 min"  # as the incident says, which began with the first failed check
    assert percents == set(re.findall(rf"<title>[^<]*: ([^<,]*), down {lasted}", shown))


def test_an_outage_at_the_beginning_of_the_last_24_hours_is_in_the_bar(web: Client, user: User) -> None:
    now = utc_now()
    began = now - timedelta(hours=24) + timedelta(seconds=5)
    monitor = MonitorFactory(owner=user, fail_threshold=1)
    check(monitor, Verdict.DOWN, at=began)
    check(monitor, Verdict.UP, at=began + timedelta(seconds=30))
    keep_checked(now + timedelta(hours=1))
    html = page(web, "/monitors")
    assert 'aria-label="Last 24 hours: 1 with an outage, 23 up."' in html
    assert "99.97" in html


def test_says_only_what_changed(web: Client, shown: dict[str, Monitor]) -> None:
    html = page(web, "/monitors")
    content = re.search(r'data-content="(\w+)"', html)
    assert content is not None
    rows = re.findall(r'<tr id="(\w+)" data-version="(\w+)">', html)
    query = "&".join(f"row={public_id}:{version}" for public_id, version in rows)
    assert web.get(f"/monitors/live?content={content[1]}&{query}").status_code == 204

    MonitorState.objects.filter(pk=shown["Up"].pk).update(last_latency_ms=77)
    answer = page(web, f"/monitors/live?content={content[1]}&{query}&row=%00:1&row=odd")
    assert names(answer) == ["Up"]
    assert "77 ms" in answer


@pytest.mark.parametrize(
    ("action", "holds"),
    [
        ("pause", lambda m: not m.enabled),
        ("mute:60", lambda m: m.muted_until is not None),
        ("move:", lambda m: m.project is None),
    ],
)
def test_does_it_to_all_that_are_chosen(web: Client, user: User, action: str, holds: Any) -> None:
    project = ProjectFactory(owner=user)
    monitors = [MonitorFactory(owner=user, project=project) for _ in range(3)]
    chosen = ",".join(monitor.public_id for monitor in monitors[:2])
    answer = act(web, action, monitor=chosen, next="/monitors?sort=name")
    assert answer.redirect_chain == [("/monitors?sort=name", 302)]
    assert "2 monitors" in answer.content.decode()
    assert [holds(m) for m in Monitor.objects.select_related("project").order_by("pk")] == [True, True, False]


def test_undoes_it_and_deletes(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    project = ProjectFactory(owner=user, name="Till")
    for action in ("pause", "resume", "mute:30", "unmute", f"move:{project.public_id}"):
        act(web, action, monitor=monitor.public_id)
    monitor.refresh_from_db()
    assert (monitor.enabled, monitor.muted_until, monitor.project) == (True, None, project)
    assert "Deleted 1 monitor." in act(web, "delete", monitor=monitor.public_id).content.decode()
    assert not Monitor.objects.exists()


def test_monitors_already_in_that_state_are_reported(web: Client, user: User) -> None:
    chosen = [MonitorFactory(owner=user).public_id for _ in range(3)]
    act(web, "pause", monitor=chosen[0])
    html = act(web, "pause", monitor=",".join(chosen)).content.decode()
    assert "Paused 2 monitors." in html
    assert "1 monitor unchanged: already paused." in html
    assert not Monitor.objects.filter(enabled=True).exists()


@pytest.mark.parametrize("action", ["pause", "mute:60", "delete"])
def test_many_take_as_many_statements_as_one(user: User, action: str) -> None:
    def taken(count: int) -> int:
        make_many(user, count, name=f"Of {count}")
        chosen = list(Monitor.objects.filter(name__startswith=f"Of {count}").values_list("public_id", flat=True))
        with CaptureQueriesContext(connection) as queries:
            caller = Caller(user)
            tags = {one.public_id: one.tag for one in actions.to_delete(caller, chosen)}
            chosen_action = actions.deletion(tags) if action == "delete" else actions.named(action)
            assert actions.apply(caller, chosen_action, chosen, now=utc_now()).done == count
        return len(queries)

    assert taken(20) == taken(1)


def test_a_deletion_asks_and_asks_again_after_a_change(web: Client, user: User) -> None:
    first, second = (MonitorFactory(owner=user, name=f"{name} {HOSTILE}") for name in ("First", "Second"))
    MonitorFactory(owner=user, name="Third")
    sent = {"action": "delete", "monitor": f"{first.public_id},{second.public_id}", "next": "/monitors?sort=name"}
    asked = web.post("/monitors/actions", sent)
    assert asked.status_code == 200
    assert "Delete 2 monitors?" in asked.content.decode()
    assert names_to_delete(asked) == [f"First {HOSTILE}", f"Second {HOSTILE}"]
    assert Monitor.objects.count() == 3
    Monitor.objects.filter(pk=second.pk).update(name="Renamed")
    refused = confirm(web, asked)
    assert refused.status_code == 412
    assert "The settings of 1 of them have changed. Nothing was deleted." in refused.content.decode()
    assert names_to_delete(refused) == ["Renamed"]
    assert Monitor.objects.count() == 3
    check(first, Verdict.UP, at=utc_now())  # a check changes no settings
    done = confirm(web, refused)
    assert done.redirect_chain == [("/monitors?sort=name", 302)]
    assert "Deleted 2 monitors." in done.content.decode()
    assert [monitor.name for monitor in Monitor.objects.all()] == ["Third"]


def names_to_delete(asked: Any) -> list[str]:
    return [unescape(name) for name in re.findall(r'<a class="strong" href="[^"]*">(.*?)</a>', asked.content.decode())]


def test_a_change_at_the_last_moment_keeps_its_monitor(user: User) -> None:
    monitors = [MonitorFactory(owner=user) for _ in range(2)]
    chosen = [monitor.public_id for monitor in monitors]
    tags = {one.public_id: one.tag for one in actions.to_delete(Caller(user), chosen)}
    Monitor.objects.filter(pk=monitors[0].pk).update(interval_sec=3600)
    outcome = actions.apply(Caller(user), actions.deletion(tags), chosen, now=utc_now())
    assert (outcome.done, outcome.complaints) == (1, ["1 monitor unchanged: its settings have changed."])
    assert Monitor.objects.get() == monitors[0]


def test_only_so_many_are_deleted_at_once(web: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_DELETED", 2)
    monkeypatch.setattr("dashboard.monitors.overview.MAX_NAMED", 1)
    make_many(user, 3)
    assert "Select at most 2 monitors to delete at once." in act(web, "delete", all="1").content.decode()
    assert Monitor.objects.count() == 3
    chosen = ",".join(Monitor.objects.values_list("public_id", flat=True)[:2])
    asked = web.post("/monitors/actions", {"action": "delete", "monitor": chosen})
    assert (len(names_to_delete(asked)), "and 1 more" in asked.content.decode()) == (1, True)


def test_all_is_all_that_the_list_names_also_beyond_its_page(web: Client, user: User) -> None:
    make_many(user, 120, name="Shop")
    make_many(user, 2, name="Other")
    act(web, "delete", all="1", q="shop", monitor="")
    assert set(Monitor.objects.values_list("name", flat=True)) == {"Other 0000", "Other 0001"}


def test_tells_what_could_not_be_done(web: Client, user: User) -> None:
    small = UserFactory()
    small.plan = PlanFactory(monitor_limit=1)
    small.save(update_fields=["plan"])
    full = ProjectFactory(owner=small, admin=user)
    chosen = [MonitorFactory(owner=user).public_id for _ in range(2)]
    html = act(web, f"move:{full.public_id}", monitor=chosen).content.decode()
    assert "Moved 1 monitor." in html
    assert "1 monitor unchanged" in html
    assert Monitor.objects.filter(project=full).count() == 1


def test_stops_in_time_and_reports_what_is_left(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "PATIENCE_SEC", 0)
    chosen = [MonitorFactory(owner=user).public_id for _ in range(2)]
    outcome = actions.apply(Caller(user), actions.named("pause"), chosen, now=utc_now())
    assert outcome.done == 0
    assert outcome.complaints == ["2 monitors not processed in time: repeat the action."]
    assert Monitor.objects.filter(enabled=True).count() == 2


@pytest.mark.parametrize("action", ["", "explode", "mute:7", "mute:", "move:%00", "move:a b", "pause:1:2", "move:\0"])
def test_unknown_actions_do_nothing(web: Client, user: User, action: str) -> None:
    monitor = MonitorFactory(owner=user)
    before = Monitor.objects.values().get()
    answer = act(web, action, monitor=monitor.public_id)
    assert answer.status_code in (200, 422)
    assert Monitor.objects.values().get() == before or action == "pause:1:2"


@pytest.mark.parametrize("back", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"])
def test_goes_back_to_no_other_site(web: Client, user: User, back: str) -> None:
    monitor = MonitorFactory(owner=user)
    assert act(web, "pause", monitor=monitor.public_id, next=back).redirect_chain == [("/monitors", 302)]


@pytest.mark.parametrize("action", ["pause", "mute:30", "move:", "delete"])
def test_objects_of_another_account_are_not_found(web: Client, action: str) -> None:
    theirs = MonitorFactory(up=True)
    before = Monitor.objects.values().get()
    for path in ("", "/live", "/latency"):
        assert web.get(f"/monitors/{theirs.public_id}{path}").status_code == 404
    html = act(web, action, monitor=theirs.public_id).content.decode()
    assert "unchanged: not found." in html
    assert Monitor.objects.values().get() == before
    act(web, action, all="1")
    assert Monitor.objects.values().get() == before
    assert theirs.public_id not in page(web, f"/monitors/live?row={theirs.public_id}:1")


def test_nothing_is_shown_to_those_who_are_not_signed_in(client: Client, user: User, settings: Settings) -> None:
    settings.LOGIN_URL = "/account/login/"
    monitor = MonitorFactory(owner=user)
    paths = ["/monitors", "/monitors/live", f"/monitors/{monitor.public_id}", f"/monitors/{monitor.public_id}/live"]
    for path in paths:
        assert client.get(path).url.startswith("/account/login/")  # type: ignore[attr-defined]
    assert client.post("/monitors/actions", {"action": "delete", "monitor": monitor.public_id}).status_code == 302
    assert Monitor.objects.exists()


def test_hostile_texts_are_texts(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name=HOSTILE)
    now = utc_now()
    monitor = MonitorFactory(
        owner=user, name=HOSTILE, url=f"http://127.0.0.1:9/?{HOSTILE.replace(' ', '')}", project=project,
        created_at=now, up=True, type="keyword", request_headers=[{"name": "X-Key", "value": "s3cret-value"}],
        content_rules=[{"type": "text_contains", "value": HOSTILE}],
    )  # fmt: skip
    ChannelFactory(owner=user, name=HOSTILE)
    CheckResultFactory(
        monitor=monitor, claim=9, checked_at=now, verdict="down", reason_code="http_failure", detail=HOSTILE,
        evidence={"body": HOSTILE, "status_line": HOSTILE, "headers": [["server", HOSTILE]]},
    )  # fmt: skip
    for path in ("/monitors?grouped=1", f"/monitors/{monitor.public_id}", f"/monitors?q={HOSTILE}"):
        html = page(web, path)
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert" in html
        assert "s3cret-value" not in html


def test_the_page_of_a_monitor_shows_its_data(web: Client, user: User) -> None:
    now = utc_now()
    monitor = MonitorFactory(
        owner=user, name="Till", down=True, fail_threshold=1, created_at=now - timedelta(minutes=5), method="POST",
        request_body="it's", request_headers=[{"name": "X-Key", "value": "s3cret-value"}],
    )  # fmt: skip
    MonitorState.objects.filter(pk=monitor.pk).update(cert_expires_at=now + timedelta(days=9, hours=1))
    ChannelFactory(owner=user, name="On call")
    html = page(web, f"/monitors/{monitor.public_id}")
    assert "Answered 500." in html
    assert "9 days left" in html
    assert "9 days left" in page(web, f"/monitors/{monitor.public_id}/live"), "the first check may find it"
    assert "On call" in html
    assert "--header &#x27;X-Key: VALUE&#x27;" in html
    assert "--data-raw" in html
    assert "s3cret-value" not in html


def test_a_heartbeat_shows_how_to_ping_it(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, interval_sec=3600)
    html = page(web, f"/monitors/{monitor.public_id}")
    assert html.count(f"/v1/heartbeats/{monitor.public_id}/ping") >= 4
    assert "data-latency" not in html


def test_the_page_of_a_monitor_takes_few_queries(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True, created_at=utc_now() - timedelta(days=3))
    ChannelFactory(owner=user)
    fill(monitor, 500)
    path = f"/monitors/{monitor.public_id}"
    assert queries(web, path) <= MOST_QUERIES
    seen = re.search(r"/live\?seen=(\w+)", page(web, path))
    assert seen is not None
    assert web.get(f"{path}/live?seen={seen[1]}").status_code == 204
    MonitorState.objects.filter(pk=monitor.pk).update(last_checked_at=utc_now())
    answer = page(web, f"{path}/live?seen={seen[1]}")
    assert "<html" not in answer
    assert answer.count('hx-swap-oob="true"') == 6


@pytest.mark.parametrize("url", ["", "dns:example.com"])
def test_other_pages_take_few_queries(web: Client, user: User, url: str) -> None:
    columns = {"type": "dns", "url": url} if url else {"type": "heartbeat"}
    created_at = utc_now() - timedelta(days=3)
    monitor = MonitorFactory(owner=user, project=ProjectFactory(owner=user), created_at=created_at, **columns)
    ChannelFactory(owner=user)
    if not url:
        record_ping(monitor.public_id, now=utc_now())
    assert queries(web, f"/monitors/{monitor.public_id}") <= MOST_QUERIES


def test_an_open_page_shows_an_incident_that_begins_after_the_outage(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, created_at=utc_now(), up=True)
    check(monitor, *[Verdict.DOWN] * 3, at=utc_now())
    shown = page(web, f"/monitors/{monitor.public_id}")
    assert "No outage so far" in shown
    assert web.get(polled(shown)).status_code == 204
    consuming.consume(utc_now(), slow=lambda _: None)
    changed = page(web, polled(shown))
    assert "No outage so far" not in changed
    assert web.get(polled(changed)).status_code == 204


def test_the_chart_has_bounded_points_and_the_outages(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, created_at=utc_now() - timedelta(days=3))
    fill(monitor, 1_000)
    for name in ("1h", "24h", "7d", "30d", "90d"):
        answer = web.get(f"/monitors/{monitor.public_id}/latency?range={name}").json()
        assert 1 <= len(answer["x"]) <= 500
        assert answer["x"] == sorted(answer["x"])
        assert all(len(line) == len(answer["x"]) for line in answer["lines"].values())
    exact = web.get(f"/monitors/{monitor.public_id}/latency?range=24h").json()["whole"]
    assert (exact["p50"], exact["p95"], exact["p99"]) == (50, 95, 99)
    assert web.get(f"/monitors/{monitor.public_id}/latency?range=2y").status_code == 404


def test_the_chart_of_a_ping_has_its_loss(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="ping", url="icmp://127.0.0.1", created_at=utc_now() - timedelta(days=90))
    fill(monitor, 100)
    path = f"/monitors/{monitor.public_id}/latency?range="
    assert web.get(f"{path}24h").json()["loss"] is None
    CheckResult.objects.filter(monitor_id=monitor.pk).update(loss=F("claim") % 4 * 25, http_status=None)
    shown = page(web, f"/monitors/{monitor.public_id}")
    assert shown.count("25 % lost") == 5
    assert ">0 % lost" not in shown
    # Failed checks count, with and without a latency.
    CheckResult.objects.filter(monitor_id=monitor.pk, loss=75).update(verdict="down", latency_ms=None)
    for name in ("24h", "90d"):
        answer = web.get(f"{path}{name}").json()
        assert len(answer["loss"]) == len(answer["x"])
        assert answer["whole"]["loss"] == 37.5
    roll_up(utc_now() + timedelta(hours=2))
    assert HourlyRollup.objects.filter(monitor_id=monitor.pk, measured__gt=0).exists()
    assert web.get(f"{path}90d").json()["whole"]["loss"] == 37.5


@pytest.mark.parametrize(
    "back", ["", "monitors", "x" * 2048, "//evil.example", "https://evil.example/", "/\\evil.example"]
)
def test_an_action_returns_to_a_page_of_this_site_only(web: Client, user: User, back: str) -> None:
    monitor = MonitorFactory(owner=user)
    answer = web.post("/monitors/actions", {"action": "pause", "monitor": monitor.public_id, "next": back})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/monitors")


def test_check_now_is_awaited_by_the_page(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    address = f"/monitors/{monitor.public_id}/check"
    assert "Check now" in page(web, f"/monitors/{monitor.public_id}")
    started = web.post(address, headers={"HX-Request": "true"})
    assert started.headers["HX-Trigger-After-Swap"] == '{"poll": {}}'
    assert "Checking…" in started.content.decode()
    assert state_of(monitor).claim == 2
    poll = polled(web.get(polled(started)))
    assert web.get(poll).status_code == 204
    again = web.post(address, headers={"HX-Request": "true"})
    assert "checking=2-" in polled(again), "a running check is not started again"

    now = utc_now()
    record([check_record(monitor, claim=2, verdict=Verdict.DOWN, at=now)], now=now)
    done = web.get(poll).content.decode()
    assert "Checking…" not in done
    assert re.search(r'id="checked".*Checked <time.*<strong>Down</strong>', done, re.DOTALL)
    assert "checking=" not in polled(done)


@pytest.mark.parametrize("kind", ["http", "scheduler"])
def test_the_first_check_is_awaited_by_the_page(web: Client, user: User, kind: str) -> None:
    now = utc_now()
    monitor = MonitorFactory(owner=user, type=kind, created_at=now)
    shown = page(web, f"/monitors/{monitor.public_id}")
    assert re.search(r'id="poll"[^>]*data-every="1000"', shown)
    assert ("Running…" if kind == "scheduler" else "Checking…") in shown
    assert web.get(polled(shown)).status_code == 204
    record([check_record(monitor, claim=1, verdict=Verdict.UP, at=now)], now=now)
    done = page(web, polled(shown))
    assert re.search(r'id="checked".*<strong>Up</strong>', done, re.DOTALL)
    assert "No outage so far" in done
    assert "data-every" not in done
    assert "checking=" not in polled(page(web, f"/monitors/{monitor.public_id}"))


def test_no_first_check_is_awaited_for_long_or_where_none_is_made(web: Client, user: User) -> None:
    now = utc_now()
    late = MonitorFactory(owner=user, created_at=now - timedelta(minutes=2))
    heartbeat = MonitorFactory(owner=user, type="heartbeat", created_at=now)
    planned = MonitorFactory(owner=user, type="scheduler", schedule="0 3 * * *", created_at=now)
    paused = MonitorFactory(owner=user, created_at=now)
    Monitor.objects.filter(pk=paused.pk).update(enabled=False)
    for monitor in (late, heartbeat, planned, paused):
        assert "checking=" not in polled(page(web, f"/monitors/{monitor.public_id}"))


def test_the_result_of_check_now_is_removed_when_the_state_changes(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    poll = polled(web.post(f"/monitors/{monitor.public_id}/check", headers={"HX-Request": "true"}))
    now = utc_now()
    record([check_record(monitor, claim=2, verdict=Verdict.UP, at=now)], now=now)
    done = page(web, poll)
    assert "<strong>Up</strong>" in done
    assert web.get(polled(done)).status_code == 204, "it stays while it is current"
    check(monitor, *[Verdict.DOWN] * 3, at=now)
    assert re.search(r'<div id="checked" [^>]*hx-swap-oob="innerHTML">\s*</div>', page(web, polled(done)))


def test_check_now_says_why_there_is_no_result(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    live = f"/monitors/{monitor.public_id}/live"
    long_ago = to_ms(utc_now() - timedelta(minutes=2))
    assert "No worker has run the check yet." in page(web, f"{live}?checking=2-{long_ago}")
    for nonsense in ("2", "x-y", f"2-{'9' * 14}", "2-", f"{'9' * 19}-1"):
        assert web.get(f"{live}?checking={nonsense}").status_code == 200
    Monitor.objects.filter(pk=monitor.pk).update(enabled=False)
    recently = to_ms(utc_now())
    assert "paused before the check ran" in page(web, f"{live}?checking=2-{recently}")
    refused = web.post(f"/monitors/{monitor.public_id}/check", headers={"HX-Request": "true"})
    assert "The monitor is paused; resume it" in refused.content.decode()
    assert state_of(monitor).claim == 1


@pytest.mark.parametrize("kind", ["heartbeat", "scheduler"])
def test_check_now_is_for_what_is_looked_at(web: Client, user: User, kind: str) -> None:
    monitor = MonitorFactory(owner=user, type=kind)
    assert "Check now" not in page(web, f"/monitors/{monitor.public_id}")
    refused = web.post(f"/monitors/{monitor.public_id}/check", follow=True)
    assert f"a {kind} is not checked on demand" in refused.content.decode()


def make_many(user: User, count: int, *, name: str = "Monitor", project_id: int | None = None) -> None:
    now = utc_now()
    columns = config_columns(build({"interval_sec": 60, "url": "http://127.0.0.1:9/"}))
    made = Monitor.objects.bulk_create(
        Monitor(owner=user, created_at=now, project_id=project_id, **columns | {"name": f"{name} {number:04}"})
        for number in range(count)
    )
    MonitorState.objects.bulk_create(MonitorState(monitor=monitor, status="up", status_since=now) for monitor in made)
    StatusChange.objects.bulk_create(
        StatusChange(monitor=monitor, at=now - timedelta(hours=2), before="up", after="down") for monitor in made
    )


def fill(monitor: Monitor, count: int) -> None:
    """Record a check a minute until now, with latencies of 1 to 100 ms in turn."""
    now = utc_now()
    CheckResult.objects.bulk_create(
        CheckResult(
            monitor_id=monitor.pk, claim=number, checked_at=now - timedelta(minutes=number), verdict="up",
            latency_ms=number % 100 + 1, connect_ms=1, ttfb_ms=1, http_status=200,
        )
        for number in range(1, count + 1)
    )  # fmt: skip


def queries(web: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as found:
        page(web, path)
    return len(found)


def polled(answer: Any) -> str:
    """Return the URL that a page polls next."""
    text = answer if isinstance(answer, str) else answer.content.decode()
    found = re.search(r'data-poll="([^"]+)"', text)
    assert found is not None
    return unescape(found[1])


@pytest.mark.parametrize("change", ["name of the project", "project", "name"])
def test_the_list_is_another_one_when_a_monitor_goes_elsewhere_in_it(user: User, change: str) -> None:
    first, second = ProjectFactory(owner=user, name="A"), ProjectFactory(owner=user, name="C")
    monitor = MonitorFactory(owner=user, project=first)
    before = tally(Caller(user), Listing(), now=NOON)
    if change == "name of the project":
        Project.objects.filter(pk=first.pk).update(name="B")
    else:
        Monitor.objects.filter(pk=monitor.pk).update(**{change: second if change == "project" else "Other"})
    after = tally(Caller(user), Listing(), now=NOON)
    assert after.order != before.order
    assert after.content != before.content


def test_a_row_reads_no_settings_and_shows_the_beginning_of_a_long_address(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    Monitor.objects.update(
        url="http://shop.example/?" + "x" * 2_000, config=monitor.config | {"request_body": "secret"}
    )
    with CaptureQueriesContext(connection) as captured:
        text = web.get("/monitors?sort=uptime").content.decode()
    assert "x" * 150 in text
    assert "x" * 200 not in text
    assert not [query for query in captured if '"monitors_monitor"."config",' in query["sql"]]
