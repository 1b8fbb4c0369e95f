"""What the audit log has of changes of monitors: each path writes one entry, with old and new values and no secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

import audit.services
from accounts.models import User
from accounts.services import change_plan
from audit.actions import Action
from audit.models import Entry
from checks.spec import Verdict
from core.clock import utc_now
from dashboard.monitors import actions as bulk
from manifests.importing import import_monitors
from monitors import changes, configuration, operations, types
from monitors.models import Monitor
from monitors.recording import record
from monitors.services import update_monitor
from projects.access import Caller
from pulsekeeper.importers.sources import SOURCES
from tests.api.client import Api
from tests.audit.reading import actions, forget_all, last
from tests.factories import MembershipFactory, MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, check_record, record_ping, run_concurrently
from tests.manifests.helpers import apply_text

SECRETS = ("s3cret", "hunter2")
URL = "https://shop.example/health"


def of(monitor: Monitor) -> list[tuple[str, list[dict[str, Any]]]]:
    entries = Entry.objects.filter(monitor_id=monitor.pk).order_by("pk")
    return [(entry.action, entry.details["changes"]) for entry in entries]


def change(field: str, before: Any, after: Any) -> dict[str, Any]:
    return {"field": field, "before": before, "after": after}


def test_the_life_of_a_monitor_over_the_api(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project, name="Shop", url=URL, interval_sec=300)
    path = f"/v1/monitors/{monitor.public_id}"
    forget_all()
    for body in (
        {"interval_sec": 600, "name": "Store", "expect_status": 204},
        {"interval_sec": 600},  # no change
        {"enabled": False},
        {"enabled": True, "timeout_ms": 5_000},
        {"enabled": False},
        {"enabled": True},
    ):
        assert api.patch(path, body).status == 200
    muted_until = api.post(f"{path}/mute", {"minutes": 30}).json["muted_until"]
    assert api.post(f"{path}/mute", {"minutes": 0}).status == 200
    assert api.post(f"{path}/mute", {"minutes": 0}).status == 200
    assert of(monitor) == [
        (
            "monitor.updated",
            [change("name", "Shop", "Store"), change("interval_sec", 300, 600), change("expect_status", None, 204)],
        ),
        ("monitor.paused", [change("enabled", True, False)]),
        ("monitor.updated", [change("timeout_ms", 10_000, 5_000), change("enabled", False, True)]),
        ("monitor.paused", [change("enabled", True, False)]),
        ("monitor.resumed", [change("enabled", False, True)]),
        ("monitor.muted", [change("muted_until", None, muted_until)]),
        ("monitor.unmuted", [change("muted_until", muted_until, None)]),
    ]
    assert api.delete(path).status == 200
    (gone,) = api.get("/v1/account/audit-log?action=monitor.deleted").json
    assert (gone["target_id"], gone["target_name"], gone["project_id"]) == (
        monitor.public_id,
        "Store",
        project.public_id,
    )
    assert {"field": "interval_sec", "before": 600} in gone["details"]["changes"]
    assert (gone["actor_type"], gone["actor_email"], gone["address"]) == ("user", user.email, "127.0.0.1")
    assert len(api.get(f"/v1/projects/{project.public_id}/audit-log").json) == 8


def test_a_creation_has_what_differs_from_the_defaults(user: User) -> None:
    monitor = MonitorFactory(owner=user, name="Shop", url=URL, interval_sec=300)
    assert of(monitor) == [
        (
            "monitor.created",
            [
                {"field": "type", "after": "http"},
                {"field": "url", "after": URL},
                {"field": "name", "after": "Shop"},
                {"field": "interval_sec", "after": 300},
            ],
        )
    ]
    heartbeat = MonitorFactory(owner=user, heartbeat=True)
    assert (last().monitor_id, last().target_id) == (heartbeat.pk, ""), "its id is a secret"


def test_no_secret_is_stored(api: Api, user: User) -> None:
    secret = {
        "url": "https://shop.example/a?token=s3cret#hunter2",
        "method": "POST",
        "request_body": "s3cret",
        "request_headers": [{"name": "X-Key", "value": "s3cret"}],
        "check_ssl": False,
    }
    monitor = MonitorFactory(owner=user, **secret)
    path = f"/v1/monitors/{monitor.public_id}"
    forget_all()
    changed = {
        "url": "https://shop.example/b?token=hunter2",
        "request_body": "hunter2",
        "request_headers": [{"name": "X-Key", "value": "hunter2"}],
    }
    assert api.patch(path, changed).status == 200
    assert api.patch(path, {"url": "https://shop.example/b?token=s3cret"}).status == 200
    assert of(monitor) == [
        (
            "monitor.updated",
            [
                change("url", "https://shop.example/a?…", "https://shop.example/b?…"),
                {"field": "request_headers"},
                {"field": "request_body"},
            ],
        ),
        ("monitor.updated", [{"field": "url"}]),
    ]
    api.delete(path)
    everything = str(list(Entry.objects.values()))
    assert not [word for word in SECRETS if word in everything]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ada:s3cret@shop.example/", "https://shop.example/"),
        ("https://s3cret@shop.example/x", "https://shop.example/x"),
        ("tls://s3cret@db.example:5432", "tls://db.example:5432"),
        ("https://hooks.slack.com/services/T0/s3cret", "https://hooks.slack.com/[masked]"),
        ("HTTPS://shop.example?s3cret", "HTTPS://shop.example?…"),
        ("dns://192.0.2.1/shop.example?type=MX", "dns://192.0.2.1/shop.example?type=MX"),
    ],
)
def test_addresses_lose_credentials(address: str, shown: str) -> None:
    assert changes.changed("url", None, address) == [change("url", None, shown)]


def test_texts_are_shown_only_if_they_are_declared_public() -> None:
    hidden = {name for name, setting in types.settings().items() if not setting.is_logged}
    assert hidden == {"request_headers", "request_body", "ca_certificate"}


def test_long_values_are_cut() -> None:
    configs = [configuration.build({"interval_sec": 60, "name": name}) for name in ("x" * 200, "\n".join("yy" * 200))]
    (found,) = changes.compare(*configs)
    assert (found["before"], len(found["after"])) == ("x" * 200, changes.MAX_VALUE)
    rules = [{"type": "text_contains", "value": "OK"}, {"type": "json_field", "path": "a.b", "equals": "1"}]
    with_rules = configuration.merge(configs[0], {"content_rules": rules})
    assert changes.compare(configs[0], with_rules) == [
        change("content_rules", None, "text_contains OK; json_field a.b 1")
    ]


def test_a_bulk_action_is_one_insert(user: User) -> None:
    monitors = [MonitorFactory(owner=user) for _ in range(5)]
    chosen = [monitor.public_id for monitor in monitors]
    forget_all()

    def inserts(name: str) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert bulk.apply(Caller(user), bulk.named(name), chosen, now=utc_now()).done == 5
        return [query["sql"] for query in captured if "audit_entry" in query["sql"]]

    for name in ("pause", "resume", "mute:60", "unmute"):
        (insert,) = inserts(name)
        assert insert.startswith("INSERT")
    assert [action for action, _ in of(monitors[4])] == [
        "monitor.paused",
        "monitor.resumed",
        "monitor.muted",
        "monitor.unmuted",
    ]
    assert set(Entry.objects.values_list("actor_id", flat=True)) == {user.pk}
    assert bulk.apply(Caller(user), bulk.named("resume"), chosen, now=utc_now()).done == 0
    assert Entry.objects.count() == 20


def test_commands_and_staff_act_for_the_owner(user: User) -> None:
    monitor = MonitorFactory(owner=user)
    operations.pause([monitor.pk], now=utc_now())
    assert (last().action, last().actor_type, last().actor_id) == ("monitor.paused", "operator", user.pk)


def test_a_manifest(user: User) -> None:
    gone = MonitorFactory(owner=user, name="Gone")
    kept = MonitorFactory(owner=user, name="Kept", url=URL, interval_sec=300)
    forget_all()
    text = f"""
        version: 1
        ungrouped: true
        monitors:
          - {{name: Kept, url: "{URL}", interval_sec: 900, enabled: false}}
          - {{name: New, type: heartbeat, interval_sec: 900}}
    """
    apply_text(user, text, prune=True)
    assert actions() == ["monitor.deleted", "monitor.updated", "monitor.created"]
    assert of(kept) == [("monitor.updated", [change("interval_sec", 300, 900), change("enabled", True, False)])]
    assert set(Entry.objects.values_list("actor_id", flat=True)) == {user.pk}
    assert Entry.objects.get(action=Action.MONITOR_DELETED).target_id == gone.public_id
    apply_text(user, text)
    assert Entry.objects.count() == 3, "a second time changes nothing"


def test_an_import(user: User) -> None:
    mapped = SOURCES["uptime-kuma"]('{"monitorList": [{"type": "http", "name": "A", "url": "https://a.example/"}]}')
    import_monitors(Caller(user), mapped.supported(), place={}, now=utc_now())
    assert of(Monitor.objects.get(name="A"))[0][0] == "monitor.created"


def test_a_plan_that_raises_intervals(user: User) -> None:
    short, hourly = MonitorFactory(owner=user, interval_sec=60), MonitorFactory(owner=user, interval_sec=3600)
    often = MonitorFactory(owner=user, heartbeat=True, interval_sec=60, schedule="* * * * *")
    forget_all()
    change_plan([user.pk], PlanFactory(name="slow", min_interval_sec=300))
    assert of(short) == [("monitor.updated", [change("interval_sec", 60, 300)])]
    assert of(often)[0][1][-1] == change("schedule", "* * * * *", None)
    assert of(hourly) == []


class TestMoves:
    def test_between_projects_of_one_owner(self, user: User) -> None:
        shop, store = ProjectFactory(owner=user), ProjectFactory(owner=user)
        monitor = MonitorFactory(owner=user, project=shop, name="Shop")
        forget_all()
        given = {"project_id": store.public_id, "name": "Store"}
        update_monitor(Caller(user), monitor.public_id, given, now=utc_now())
        made = [{"field": "name"}, change("project_id", shop.public_id, store.public_id)]
        found = Entry.objects.order_by("pk").values_list("project_id", "monitor_id", "details")
        assert list(found) == [(shop.pk, None, {"changes": made}), (store.pk, monitor.pk, {"changes": made})]
        update_monitor(Caller(user), monitor.public_id, {"project_id": None}, now=utc_now())
        assert (last().project_id, last().details["changes"]) == (
            store.pk,
            [change("project_id", store.public_id, None)],
        )

    def test_a_new_owner_sees_nothing_from_before(self, user: User) -> None:
        other, stranger = UserFactory(), UserFactory()
        shop, theirs = ProjectFactory(owner=user), ProjectFactory(owner=other)
        MembershipFactory(project=theirs, user=user, role="member")
        monitor = MonitorFactory(owner=user, project=shop, name="Old name")
        given = {"project_id": theirs.public_id, "name": "New name"}
        update_monitor(Caller(user), monitor.public_id, given, now=utc_now())
        monitor.refresh_from_db()
        found = changes.changes_of(monitor, Caller(other)).order_by("pk")
        assert [entry.action for entry in found] == ["monitor.received", "monitor.updated"]
        assert found[1].details == {"changes": [{"field": "name"}]}
        assert "Old name" not in page(other, monitor)
        assert page(stranger, monitor, status=404)


def page(user: User, monitor: Monitor, *, status: int = 200, htmx: bool = False) -> str:
    client = Client()
    client.force_login(user)
    headers = {"HX-Request": "true"} if htmx else {}
    answer = client.get(f"/monitors/{monitor.public_id}/changes", headers=headers)
    assert answer.status_code == status
    return answer.content.decode()


class TestPage:
    def test_members_see_who_changed_what(self, user: User) -> None:
        member, stranger = UserFactory(), UserFactory()
        project = ProjectFactory(owner=user, member=member)
        monitor = MonitorFactory(owner=user, project=project, name="<b>Shop</b>", interval_sec=300)
        update_monitor(Caller(user), monitor.public_id, {"interval_sec": 3600, "name": "Shop"}, now=utc_now())
        operations.mute_for([monitor.pk], minutes=30, now=utc_now(), caller=Caller(user))
        for htmx in (False, True):
            text = page(member, monitor, htmx=htmx)
            assert "Interval: 5m → 1h" in text
            assert "Name: &lt;b&gt;Shop&lt;/b&gt; → Shop" in text
            assert "Muted until: none → <time" in text
            assert user.email in text
            assert ("<html" in text) == (not htmx)
            page(stranger, monitor, status=404, htmx=htmx)
        assert f'hx-get="/monitors/{monitor.public_id}/changes"' in monitor_page(member, monitor)
        offered = re.findall('<option value="([^"]+)"', page(member, monitor))
        assert offered
        assert all(action.startswith("monitor.") for action in offered)

    def test_those_of_other_projects_are_for_the_owner(self, user: User) -> None:
        member = UserFactory()
        shop, store = ProjectFactory(owner=user), ProjectFactory(owner=user, member=member)
        monitor = MonitorFactory(owner=user, project=shop, name="Before")
        update_monitor(Caller(user), monitor.public_id, {"project_id": store.public_id}, now=utc_now())
        assert "Created a monitor</span>" in page(user, monitor)
        text = page(member, monitor)
        assert "Created a monitor</span>" not in text
        assert "Changed a monitor</span>" in text

    def test_ten_of_them_in_as_many_queries_as_one(self, user: User) -> None:
        monitor = MonitorFactory(owner=user, project=ProjectFactory(owner=user), interval_sec=300)
        client = Client(headers={"HX-Request": "true"})
        client.force_login(user)

        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                client.get(f"/monitors/{monitor.public_id}/changes")
            return len(captured)

        queries()
        one = queries()
        for minutes in range(10, 25):
            update_monitor(Caller(user), monitor.public_id, {"interval_sec": minutes * 60}, now=utc_now())
        assert queries() == one <= 5
        text = page(user, monitor, htmx=True)
        assert text.count("Changed a monitor") == 10
        assert "All changes" in text


def monitor_page(user: User, monitor: Monitor) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/monitors/{monitor.public_id}").content.decode()


def test_the_product_itself_writes_nothing(user: User) -> None:
    polled, heartbeat = MonitorFactory(owner=user, up=True), MonitorFactory(owner=user, heartbeat=True)
    forget_all()
    record([check_record(polled, claim=2, verdict=Verdict.DOWN, at=NOON)], now=NOON)
    record_ping(heartbeat.public_id, now=utc_now() + timedelta(minutes=1))
    assert actions() == []


@pytest.mark.django_db(transaction=True)
def test_two_changes_at_once_form_a_chain() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, interval_sec=300)
    forget_all()
    caller = Caller(user)
    run_concurrently(
        *(
            lambda seconds=seconds: update_monitor(caller, monitor.public_id, {"interval_sec": seconds}, now=utc_now())
            for seconds in (600, 900, 1200, 1500)
        )
    )
    values, before = [made[0] for _, made in of(monitor)], 300
    assert len(values) == 4
    for made in values:
        assert made["before"] == before
        before = made["after"]
    monitor.refresh_from_db()
    assert monitor.interval_sec == before


@pytest.mark.parametrize("name", ["update", "pause", "mute", "delete"])
def test_what_cannot_be_recorded_does_not_happen(user: User, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = MonitorFactory(owner=user)
    before = Monitor.objects.values().get()
    monkeypatch.setattr(audit.services, "insert_objects", _full_disk)
    todo: dict[str, Callable[[], object]] = {
        "update": lambda: update_monitor(Caller(user), monitor.public_id, {"name": "Other"}, now=utc_now()),
        "pause": lambda: operations.pause([monitor.pk], now=utc_now()),
        "mute": lambda: operations.mute_for([monitor.pk], minutes=5, now=utc_now()),
        "delete": lambda: operations.delete([monitor.pk]),
    }
    with pytest.raises(OSError, match="full"):
        todo[name]()
    assert Monitor.objects.values().get() == before


def _full_disk(*_: object, **__: object) -> None:
    raise OSError("the disk is full")


def test_a_patch_reads_the_monitor_once(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, project=ProjectFactory(owner=user), interval_sec=300)
    path = f"/v1/monitors/{monitor.public_id}"
    api.patch(path, {"interval_sec": 600})
    with CaptureQueriesContext(connection) as captured:
        assert api.patch(path, {"interval_sec": 900}).status == 200
    statements = [query["sql"] for query in captured]
    assert sum('"monitors_monitor"."config"' in sql for sql in statements) == 1, "\n\n".join(statements)
    assert len(statements) <= 16
    assert api.patch("/v1/monitors/mon_none", {"interval_sec": "x"}).status == 404
    assert api.patch(path, {"interval_sec": "x"}).status == 422


def test_actions_on_many_monitors_are_limited(user: User, settings: Settings) -> None:
    web = Client()
    web.force_login(user)
    settings.THROTTLE_SCALE, settings.THROTTLES = 1, settings.THROTTLES | {"manifest": (1, 60)}
    chosen = [MonitorFactory(owner=user).public_id for _ in range(2)]
    for action, status in (("pause", 302), ("resume", 429)):
        answer = web.post("/monitors/actions", {"action": action, "monitor": ",".join(chosen)})
        assert answer.status_code == status
    assert web.post("/monitors/actions", {"action": "resume", "monitor": chosen[0]}).status_code == 302
    assert Monitor.objects.filter(enabled=True).count() == 1
