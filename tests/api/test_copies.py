"""Copies of monitors, alert channels, maintenance windows and status pages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db.models import Model
from msgspec.structs import replace

from accounts.models import User
from alerts.models import AlertChannel
from alerts.serializers import ChannelInputSerializer, ChannelSerializer
from alerts.transports import settings_by_name
from audit.models import Entry
from checks.results.models import CheckResult
from core.clock import to_ms, utc_now
from core.text import copy_name
from incidents.models import Incident, MaintenanceWindow
from incidents.serializers import WindowInputSerializer, WindowSerializer
from locations.services import create_location
from monitors import types
from monitors.models import Monitor, StatusChange
from monitors.services import copy_monitor, update_monitor
from monitors.types.settings import MonitorConfig
from projects.access import Caller
from projects.models import Project
from statuspages.models import PageLogo, StatusPage
from statuspages.serializers import PageInputSerializer, StatusPageSerializer
from tests.api.client import Answer, Api
from tests.factories import (
    ChannelFactory,
    MembershipFactory,
    MonitorFactory,
    PlanFactory,
    ProjectFactory,
    UserFactory,
)
from tests.helpers import run_concurrently
from tests.locations import shared
from tests.site import Site
from tests.statuspages.making import make_page, make_subscriber, picture

HOUR_MS = 3_600_000
PEM_RULE = {"type": "text_contains", "value": "ok"}
HEADERS = [{"name": "Authorization", "value": "Bearer s3cret", "type": "bearer"}, {"name": "X-Empty", "value": ""}]

HEARTBEAT: dict[str, Any] = {"type": "heartbeat", "url": ""}
CHANGED: dict[str, dict[str, Any]] = {
    # A monitor that has another value than the default, for each setting.
    "name": {"name": "Orders"},
    "url": {"url": "https://shop.example/orders?a=b#c"},
    "interval_sec": {"interval_sec": 420},
    "slow_ms": {"slow_ms": 77},
    "timeout_ms": {"timeout_ms": 5_000},
    "check_ssl": {"url": "https://shop.example/", "check_ssl": True},
    "check_domain": {"check_domain": True},
    "fail_threshold": {"fail_threshold": 7},
    "confirmation_sec": {"confirmation_sec": 30},
    "locations": {"locations": ["fra", "default"]},
    "quorum": {"locations": ["fra", "default"], "quorum": 2},
    "recover_threshold": {"recover_threshold": 4},
    "tags": {"tags": ["Production", "web"]},
    "method": {"method": "GET"},
    "expect_status": {"expect_status": 204},
    "follow_redirects": {"follow_redirects": True},
    "request_headers": {"request_headers": HEADERS},
    "request_body": {"method": "POST", "request_body": '{"a": 1}'},
    "request_body_encoding": {"type": "port", "url": "tcp://db.example:1", "request_body_encoding": "hex"},
    "content_rules": {"content_rules": [PEM_RULE]},
    "tls_verify": {"tls_verify": False},
    "ca_certificate": {"url": "https://shop.example/"},  # the test adds the certificate
    "schedule": {"type": "scheduler", "schedule": "0 2 * * *"},
    "timezone": {"type": "scheduler", "schedule": "0 2 * * *", "timezone": "Europe/Berlin"},
    "missed": {"type": "scheduler", "schedule": "0 2 * * *", "missed": "once"},
    "grace_sec": HEARTBEAT | {"grace_sec": 7},
    "min_duration_sec": HEARTBEAT | {"min_duration_sec": 5},
    "max_duration_sec": HEARTBEAT | {"max_duration_sec": 500},
    "max_pings_per_hour": HEARTBEAT | {"max_pings_per_hour": 9},
    "packets": {"type": "ping", "url": "icmp://router.example", "packets": 5},
    "min_replies": {"type": "ping", "url": "icmp://router.example", "min_replies": 2},
    "records": {"type": "dns", "url": "dns:shop.example", "records": ["192.0.2.7"]},
}
PLACE_AND_STATE = {
    *("id", "public_id", "owner", "project", "registration", "created_at", "owned_since"),
    *("enabled", "muted_until", "config_version"),
}
"""Columns of a monitor that are not settings. Everything else is copied."""


@pytest.fixture
def certificate() -> str:
    import trustme

    return trustme.CA().cert_pem.bytes().decode()


def copy(api: Api, row: Any, body: Any = None, **options: Any) -> Answer:
    return api.send("post", f"{path_of(row)}/copy", body, **options)


def path_of(row: Any) -> str:
    collections: Mapping[type, str] = {
        Monitor: "monitors",
        AlertChannel: "alert-channels",
        MaintenanceWindow: "maintenance-windows",
        StatusPage: "status-pages",
    }
    return f"/v1/{collections[type(row)]}/{row.public_id}"


# Monitors


@pytest.mark.django_db
@pytest.mark.parametrize("name", types.settings())
def test_every_setting_of_a_monitor_is_copied(user: User, certificate: str, name: str) -> None:
    shared()
    given = CHANGED[name] | ({"ca_certificate": certificate} if name == "ca_certificate" else {})
    monitor = MonitorFactory(owner=user, **{"url": "http://127.0.0.1:9/"} | given)
    stored = monitor.full_config
    assert stored[name] != types.settings()[name].default or name == "interval_sec"
    made = Monitor.objects.get(pk=copy_monitor(Caller(user), monitor.public_id, {}, now=utc_now()).pk)
    assert made.full_config == replace(stored, name=f"{stored.name} (copy)")


def test_no_column_of_a_monitor_is_forgotten() -> None:
    columns = {field.name for field in Monitor._meta.get_fields() if not field.auto_created or field.concrete}
    others = {"tag_keys", "config", "header_values", "escalation_policy"}  # the last one: tests/api/test_on_call.py
    assert columns - PLACE_AND_STATE == {*MonitorConfig.columns, *others}


@pytest.mark.django_db
def test_a_type_keeps_what_it_does_not_use(user: User) -> None:
    """A client can send back what it read, also settings of other types."""
    monitor = MonitorFactory(owner=user, url="dns:shop.example", type="dns", packets=5, request_headers=HEADERS)
    made = copy_monitor(Caller(user), monitor.public_id, {}, now=utc_now())
    assert Monitor.objects.get(pk=made.pk).full_config == replace(monitor.full_config, name="Untitled (copy)")


def test_a_copy_is_checked_and_has_no_state(worker: None, site: Site) -> None:
    user = UserFactory()
    api = Api.signed_in(user)
    given = {"url": site.url("/ok"), "name": "Shop", "request_headers": HEADERS, "tags": ["web"]}
    monitor = Monitor.objects.get(public_id=api.post("/v1/monitors", given).json["id"])
    api.post(f"{path_of(monitor)}/mute", {"minutes": 60})
    api.patch(path_of(monitor), {"enabled": False})
    before = api.get(path_of(monitor)).json
    made = copy(api, monitor)
    assert (made.status, made.json["status"], site.requests) == (201, "up", 2)
    state = {"id", "name", "enabled", "muted_until"}
    state |= {name for name in before if name.startswith(("last_", "status", "uptime", "avg_"))}
    assert {name for name in before if before[name] != made.json[name]} <= state
    assert (made.json["name"], made.json["enabled"], made.json["muted_until"]) == ("Shop (copy)", True, None)
    assert made.json["request_headers"] == [{"name": "Authorization", "type": "bearer"}, {"name": "X-Empty"}]
    assert made.headers["ETag"] == api.get(f"/v1/monitors/{made.json['id']}").headers["ETag"]
    stored = Monitor.objects.get(public_id=made.json["id"])
    assert stored.full_config["request_headers"][0].value == "Bearer s3cret"
    assert CheckResult.objects.filter(monitor_id=stored.pk).count() == 1
    assert not StatusChange.objects.filter(monitor=stored, kind=StatusChange.Kind.PAUSED).exists()
    assert api.get(path_of(monitor)).json == before, "the source is as before"


@pytest.mark.django_db
def test_a_copy_of_a_monitor_that_is_down_has_no_incident(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, down=True)
    made = copy(api, monitor, {"enabled": False})
    assert (made.status, made.json["enabled"], made.json["status"], made.json["status_since"]) == (
        201,
        False,
        None,
        None,
    )
    stored = Monitor.objects.get(public_id=made.json["id"])
    state = stored.state
    assert (state.next_due_at, state.claimed_at, state.claim) == (None, None, 0)
    assert not Incident.objects.filter(monitor=stored).exists()
    assert not CheckResult.objects.filter(monitor_id=stored.pk).exists()


@pytest.mark.django_db
def test_a_heartbeat_gets_another_address(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, schedule="0 3 * * *", grace_sec=5)
    Api().post(f"/v1/heartbeats/{monitor.public_id}/ping")
    made = copy(api, monitor)
    assert (made.json["last_ping_at"], made.json["schedule"], made.json["grace_sec"]) == (None, "0 3 * * *", 5)
    assert made.json["id"] != monitor.public_id
    assert Api().post(f"/v1/heartbeats/{made.json['id']}/ping").status == 200
    (entry,) = Entry.objects.filter(monitor_id=Monitor.objects.get(public_id=made.json["id"]).pk)
    assert monitor.public_id not in str(entry.details), "the id is the secret of the source"


@pytest.mark.django_db
def test_the_body_is_a_patch(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, interval_sec=600)
    path = f"{path_of(monitor)}/copy"
    shown = api.get(path_of(monitor)).json
    made = api.post(path, shown | {"name": "Other", "interval_sec": 900, "tags": ["a"]})
    assert (made.status, made.json["name"], made.json["interval_sec"]) == (201, "Other", 900)
    refused = [
        ({"interval_sec": "60"}, "interval_sec"),
        ({"nothing": 1}, "nothing"),
        ({"name": ""}, "name"),
        ({"type": "http"}, "type"),
        ({"tags": ["a,b"]}, "tags[0]"),
        ({"enabled": None}, "enabled"),
        ({"locations": ["nowhere"]}, "locations"),
        ({"project_id": ProjectFactory().public_id}, "project_id"),
        ([], "The body must be a JSON object"),
        ({"schedule": "daily"}, "schedule"),
    ]
    count = Monitor.objects.count()
    for body, word in refused:
        answer = api.post(path, body)
        assert (answer.status, word in answer.error) == (422, True), (body, answer.text)
    web = MonitorFactory(owner=user)
    assert copy(api, web, {"url": "http://10.0.0.1/"}).error.startswith("validation_error url:")
    assert copy(api, web, {"enabled": False, "interval_sec": 1}).json["interval_sec"] == 60, "the plan's minimum"
    assert Monitor.objects.count() == count + 2
    # 404 comes before errors of the body.
    assert api.post(f"{path}x".replace("mon_", "mon_x"), {"nothing": 1}).status == 404
    assert Api.signed_in(UserFactory()).post(path, {"nothing": 1}).status == 404


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Shop", "Shop (copy)"),
        ("Shop (copy)", "Shop (copy) (copy)"),
        ("x" * 193, "x" * 193 + " (copy)"),
        ("x" * 200, "x" * 193 + " (copy)"),
        ("x" * 192 + " " + "y" * 7, "x" * 192 + " (copy)"),
        ("ß" * 200, "ß" * 193 + " (copy)"),
    ],
)
def test_the_name_of_a_copy_fits(api: Api, user: User, name: str, expected: str) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, name=name)
    assert copy(api, monitor).json["name"] == expected == copy_name(name, limit=200)


@pytest.mark.django_db
def test_a_copy_depends_on_the_same_monitors(api: Api, user: User) -> None:
    router, power = (MonitorFactory(owner=user).public_id for _ in range(2))
    source = Monitor.objects.get(public_id=MonitorFactory(owner=user, depends_on=[router, power]).public_id)
    off = {"enabled": False}
    assert copy(api, source, off).json["depends_on"] == [router, power]
    assert copy(api, source, off | {"depends_on": [power]}).json["depends_on"] == [power]
    project = ProjectFactory()
    MembershipFactory(project=project, user=user)
    assert copy(api, source, off | {"project_id": project.public_id}).json["depends_on"] == []


def test_the_limit_counts_copies(user: User) -> None:
    owner = UserFactory(plan=PlanFactory(monitor_limit=2))
    api = Api.signed_in(owner)
    monitor = MonitorFactory(owner=owner, heartbeat=True)
    assert copy(api, monitor).status == 201
    refused = copy(api, monitor)
    assert (refused.status, refused.json["error"], refused.json["limit"]) == (403, "monitor_limit", 2)
    assert Monitor.objects.filter(owner=owner).count() == 2


@pytest.mark.django_db(transaction=True)
def test_copies_made_at_once_do_not_exceed_the_limit() -> None:
    owner = UserFactory(plan=PlanFactory(monitor_limit=3))
    monitor = MonitorFactory(owner=owner, heartbeat=True)
    answers: list[Any] = run_concurrently(*[lambda: copy(Api.signed_in(owner), monitor) for _ in range(5)])
    assert sorted(answer.status for answer in answers) == [201, 201, 403, 403, 403]
    assert Monitor.objects.filter(owner=owner).count() == 3


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_a_copy_is_made_once_per_idempotency_key(api: Api, user: User, kind: str) -> None:
    row = make(kind, user)
    first, again, other = (copy(api, row, {"name": "Twice"}, key=key) for key in ("one", "one", "two"))
    assert (first.status, again.status) == (201, 201)
    assert (again.json["id"], again.headers["ETag"]) == (first.json["id"], first.headers["ETag"])
    assert other.json["id"] != first.json["id"]
    assert type(row)._default_manager.filter(name="Twice").count() == 2
    assert copy(api, row, {"name": "Other"}, key="one").status == 422


def make(kind: str, user: User, **given: Any) -> Any:
    if kind == "monitor":
        return MonitorFactory(owner=user, heartbeat=True, **given)
    if kind == "channel":
        return ChannelFactory(owner=user, **given)
    if kind == "page":
        return make_page(user, [], **given)
    api, start = Api.signed_in(user), to_ms(utc_now()) + HOUR_MS
    body = {"name": "Deploy", "starts_at": start, "ends_at": start + HOUR_MS, "monitors": "all"} | given
    return MaintenanceWindow.objects.get(public_id=api.post("/v1/maintenance-windows", body).json["id"])


# Secrets of monitors

DROPPED = [
    {"name": "Authorization", "type": "bearer", "value_dropped": True},
    {"name": "X-Empty"},
]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ({}, True),
        ({"url": "http://127.0.0.1:9/other"}, True),
        ({"url": "http://127.0.0.1:10/"}, False),
        ({"url": "https://127.0.0.1:9/"}, False),
        ({"url": "http://127.0.0.2:9/"}, False),
        ({"request_headers": [*({"name": one["name"]} for one in HEADERS), {"name": "Host", "value": "a"}]}, False),
    ],
)
def test_header_values_go_to_the_same_server_only(user: User, given: dict[str, Any], is_kept: bool) -> None:
    monitor = MonitorFactory(owner=user, request_headers=HEADERS, method="POST", request_body="{}")
    made = Monitor.objects.get(pk=copy_monitor(Caller(user), monitor.public_id, given, now=utc_now()).pk)
    header = made.full_config["request_headers"][0]
    assert (header.value, header.dropped) == (("Bearer s3cret", False) if is_kept else ("", True))
    assert made.options["request_body"] == "{}"
    assert Monitor.objects.get(pk=monitor.pk).full_config == monitor.full_config


@pytest.mark.django_db
def test_tls_settings_are_kept_at_another_server(user: User, certificate: str) -> None:
    monitor = MonitorFactory(owner=user, url="https://shop.example/", tls_verify=False, ca_certificate=certificate)
    given = {"url": "https://other.example/"}
    made = copy_monitor(Caller(user), monitor.public_id, given, now=utc_now()).full_config
    assert (made["tls_verify"], made["ca_certificate"]) == (False, certificate)


@pytest.mark.django_db
def test_header_values_stay_in_their_project(user: User) -> None:
    """Also between projects of one owner. The body is lost with the owner, as by a move."""
    shop, blog = ProjectFactory(owner=user, name="Shop"), ProjectFactory(owner=user, name="Blog")
    member = UserFactory()
    for project in (shop, blog):
        MembershipFactory(project=project, user=member)
    mine = ProjectFactory(owner=member)
    given = {"request_headers": HEADERS, "method": "POST", "request_body": "s3cret"}
    monitor = MonitorFactory(project=shop, **given)
    off = {"enabled": False}
    for caller in (user, member):
        api = Api.signed_in(caller)
        here = copy(api, monitor, off).json
        assert here["project_id"] == shop.public_id
        stored = Monitor.objects.get(public_id=here["id"])
        assert (stored.owner, stored.full_config["request_headers"][0].value) == (user, "Bearer s3cret")
        for project_id in (blog.public_id, None if caller == user else mine.public_id):
            there = copy(api, monitor, off | {"project_id": project_id}).json
            assert (there["project_id"], there["request_headers"]) == (project_id, DROPPED)
            stored = Monitor.objects.get(public_id=there["id"])
            is_mine = project_id == mine.public_id
            assert stored.header_values == ["", ""]
            assert (stored.owner, there["request_body"]) == ((member, None) if is_mine else (user, "s3cret"))
    assert copy(Api.signed_in(member), monitor, off | {"project_id": None}).json["request_body"] is None
    again = {"project_id": blog.public_id, "request_headers": [{"name": "Authorization", "value": "new"}]}
    there = copy(api, monitor, off | again)
    assert Monitor.objects.get(public_id=there.json["id"]).header_values == ["new"]
    token = Api.with_token(user, shop)
    assert copy(token, monitor, off).json["project_id"] == shop.public_id
    for project_id in (None, blog.public_id):
        assert "project_id" in copy(token, monitor, {"project_id": project_id}).error
    assert copy(Api.with_token(user, blog), monitor).status == 404


@pytest.mark.django_db
def test_a_private_location_gets_no_copied_values(user: User) -> None:
    office, _ = create_location(Caller(user), {"name": "Office"}, now=utc_now())
    monitor = MonitorFactory(owner=user, request_headers=HEADERS)
    given = {"locations": ["default", office.public_id]}
    made = copy_monitor(Caller(user), monitor.public_id, given, now=utc_now())
    assert made.full_config["request_headers"][0].dropped
    within = MonitorFactory(owner=user, request_headers=HEADERS, **given)
    made = copy_monitor(Caller(user), within.public_id, {}, now=utc_now())
    assert (made.locations, made.header_values) == (given["locations"], ["Bearer s3cret", ""])
    # A location of the owner's is not one of another project's.
    friend = UserFactory()
    project = ProjectFactory(owner=friend, member=user)
    answer = copy(Api.signed_in(user), within, {"project_id": project.public_id})
    assert (answer.status, answer.error.startswith("validation_error locations:")) == (422, True)


@pytest.mark.django_db
def test_a_member_copies_a_monitor_with_a_location_that_only_the_owner_sees(user: User) -> None:
    member = UserFactory()
    project = ProjectFactory(owner=user, member=member)
    office, _ = create_location(Caller(user), {"name": "Office"}, now=utc_now())
    monitor = MonitorFactory(project=project, url="http://127.0.0.1:9/")
    update_monitor(Caller(user), monitor.public_id, {"locations": [office.public_id]}, now=utc_now())
    made = copy_monitor(Caller(member), monitor.public_id, {}, now=utc_now())
    assert made.locations == [office.public_id]


@pytest.mark.django_db
def test_the_log_names_the_source(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(project=project, request_headers=HEADERS)
    copy(api, monitor, {"enabled": False})
    entry = api.get(f"/v1/projects/{project.public_id}/audit-log?action=monitor.created").json[0]
    assert (entry["target_name"], entry["details"]["copied_from"]) == ("Untitled (copy)", monitor.public_id)
    assert {"field": "request_headers"} in entry["details"]["changes"]
    assert "s3cret" not in str(entry)
    channel = ChannelFactory(project=project)
    copy(api, channel)
    entry = api.get(f"/v1/projects/{project.public_id}/audit-log?action=channel.created").json[0]
    assert entry["details"] == {"kind": "webhook", "copied_from": channel.public_id}


@pytest.mark.django_db
def test_lists_that_name_a_monitor_do_not_name_its_copy(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True)
    chosen = {"monitors": "chosen", "monitor_ids": [monitor.public_id]}
    rows = [ChannelFactory(owner=user, **chosen), make("window", user, **chosen), make_page(user, [monitor])]
    before = [api.get(path_of(row)).json for row in rows]
    made = copy(api, monitor).json
    assert [api.get(path_of(row)).json for row in rows] == before
    assert api.get(f"/v1/monitors/{made['id']}/badge").status == 404


# Other objects


def test_what_is_not_shown_of_the_others_is_secret() -> None:
    """A setting that a creation takes and a response shows is copied. Others have to be copied on purpose."""
    hidden = {
        one: {name for name, field in one().fields.items() if name not in shown().fields or field.write_only}
        for one, shown in (
            (ChannelInputSerializer, ChannelSerializer),
            (WindowInputSerializer, WindowSerializer),
            (PageInputSerializer, StatusPageSerializer),
        )
    }
    assert hidden == {
        ChannelInputSerializer: set(settings_by_name()),
        WindowInputSerializer: set(),
        PageInputSerializer: {"password"},
    }


def columns(row: Model) -> dict[str, Any]:
    fresh = type(row)._default_manager.get(pk=row.pk)
    return {field.name: getattr(fresh, field.attname) for field in fresh._meta.concrete_fields}


def differing(row: Any, answer: Answer) -> set[str]:
    assert answer.status == 201, answer.text
    made = type(row)._default_manager.get(public_id=answer.json["id"])
    before, after = columns(row), columns(made)
    return {name for name in before if before[name] != after[name]}


@pytest.mark.django_db
def test_a_channel_is_copied_whole(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(project=project)
    given = {
        "name": "On call",
        "topics": ["slow", "down"],
        "remind_every_hours": 3,
        "delay_min": 7,
        "hours": [{"days": [1, 7], "from": "22:00", "to": "06:00"}],
        "timezone": "Asia/Kathmandu",
        "outside": "drop",
        "templates": {"recovered": {"body": "{{ text }}"}},
        "monitors": "chosen",
        "monitor_ids": [monitor.public_id],
        "secret": "s" * 20,
    }
    channel = ChannelFactory(project=project, **given)
    AlertChannel.objects.update(enabled=False, failures=3, last_sent_at=utc_now(), last_tried_at=utc_now(), prompt=True)
    made = copy(api, channel)
    state = {"failures", "last_sent_at", "last_tried_at", "prompt"}
    assert differing(channel, made) == state | {"id", "public_id", "created_at", "confirmed_at", "name", "enabled"}
    assert (made.json["name"], made.json["enabled"], made.json["secret"]) == ("On call (copy)", True, None)
    assert made.json["monitor_ids"] == [monitor.public_id]
    assert copy(api, channel, {"enabled": False, "topics": []}).json["enabled"] is False
    wider = copy(api, channel, {"monitors": "all"}).json
    assert (wider["monitors"], wider["monitor_ids"]) == ("all", [])
    assert copy(api, channel, {"kind": "email"}).error.startswith("validation_error kind:")
    assert copy(api, channel, {"nothing": 1}).error.startswith("validation_error nothing:")


@pytest.mark.django_db
@pytest.mark.parametrize("scope", ["all", "project", "chosen"])
def test_the_scope_of_a_channel_is_copied_and_changed(api: Api, user: User, scope: str) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(project=project)
    given: dict[str, dict[str, Any]] = {
        "all": {},
        "project": {"scope_project_id": project.public_id},
        "chosen": {"monitor_ids": [monitor.public_id]},
    }
    channel = ChannelFactory(owner=user, monitors=scope, **given[scope])
    shown = api.get(path_of(channel)).json
    for other in given:
        made = copy(api, channel, {"monitors": other} | given[other])
        assert (made.status, made.json["monitors"]) == (201, other), made.text
        made = copy(api, channel, {"monitors": scope})
        names = ("monitors", "scope_project_id", "monitor_ids")
        assert [made.json[name] for name in names] == [shown[name] for name in names]


@pytest.mark.django_db
def test_a_channel_does_not_choose_monitors_that_the_caller_no_longer_sees(api: Api, user: User) -> None:
    project = ProjectFactory(owner=UserFactory(), member=user)
    alien, own = MonitorFactory(project=project), MonitorFactory(owner=user)
    chosen = {"monitors": "chosen", "monitor_ids": [alien.public_id, own.public_id]}
    channel, window = ChannelFactory(owner=user, **chosen), make("window", user, **chosen)
    page = make_page(user, [alien, own])
    project.memberships.filter(user=user).delete()
    for row in (channel, window):
        assert copy(api, row).json["monitor_ids"] == [own.public_id]
    (group,) = copy(api, page).json["groups"]
    assert [item["monitor_id"] for item in group["monitors"]] == [own.public_id]


NTFY = {
    "kind": "ntfy",
    "topic": "shop-alerts",
    "access_token": f"tk_{'a' * 29}",
    "priority": "high",
    "server": "https://ntfy.example",
}


@pytest.mark.django_db
def test_secrets_of_a_channel_stay_with_its_project_and_server(api: Api, user: User) -> None:
    hook = ChannelFactory(owner=user, url="https://hooks.example/a", secret="s" * 20)
    ntfy = ChannelFactory(owner=user, **NTFY)
    project = ProjectFactory(owner=user)
    there = {"project_id": project.public_id}

    def config(answer: Answer) -> dict[str, str]:
        assert answer.status == 201, answer.text
        return dict(AlertChannel.objects.get(public_id=answer.json["id"]).config)

    assert config(copy(api, hook)) == hook.config
    for body in ({"url": "https://elsewhere.example/"}, there | {"url": "https://hooks.example/a"}):
        answer = copy(api, hook, body)
        assert config(answer)["secret"] == answer.json["secret"] != "s" * 20
    answer = copy(api, hook, {"secret": "t" * 20})
    assert (config(answer)["secret"], answer.json["secret"]) == ("t" * 20, "t" * 20)
    assert copy(api, hook, there).error.startswith("validation_error url: is not copied")

    assert config(copy(api, ntfy)) == ntfy.config
    assert config(copy(api, ntfy, {"topic": "other"}))["access_token"] == NTFY["access_token"]
    moved = {"server": "https://attacker.example"}
    assert copy(api, ntfy, moved).error.startswith("validation_error topic: is not copied")
    for body in (moved | {"topic": "mine"}, {"topic": "https://attacker.example/mine"}, there | {"topic": "mine"}):
        assert "access_token" not in config(copy(api, ntfy, body)), body
    assert config(copy(api, ntfy, there | {"topic": "mine"}))["priority"] == "high"


@pytest.mark.django_db
def test_the_owner_of_an_address_is_asked_again(user: User) -> None:
    """A confirmed channel is not consent to others. The caller's own address needs none."""
    project = ProjectFactory(owner=user)
    other = ChannelFactory(project=project, kind="email", address="team@example.org")
    own = ChannelFactory(project=project, kind="email", address=user.email)
    AlertChannel.objects.filter(pk=other.pk).update(confirmed_at=utc_now(), confirmation_digest=None)
    api = Api.signed_in(user)
    mail.outbox.clear()
    made = copy(api, other)
    assert (made.json["hint"], made.json["confirmed_at"]) == ("t…@example.org", None)
    stored = AlertChannel.objects.get(public_id=made.json["id"])
    assert (stored.config, stored.confirmation_digest is None) == (other.config, False)
    assert copy(api, own).json["confirmed_at"] is not None
    assert copy(Api.with_token(user, project), own).json["confirmed_at"] is None, "a token may be shared"


@pytest.mark.django_db
def test_copies_that_ask_are_counted_as_invitations(user: User, settings: Any) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"invite": (1, 3600)}
    hook, address = ChannelFactory(owner=user), ChannelFactory(owner=user, kind="email", address="team@example.org")
    api = Api.signed_in(user)
    assert [copy(api, address).status for _ in range(2)] == [201, 429]
    assert [copy(api, hook).status for _ in range(2)] == [201, 201]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "limit", "error"),
    [
        ("channel", "alerts.services.MAX_CHANNELS", "channel_limit"),
        ("window", "incidents.windows.MAX_WINDOWS", "window_limit"),
        ("page", "statuspages.services.MAX_PAGES", "status_page_limit"),
    ],
)
def test_copies_count(api: Api, user: User, monkeypatch: pytest.MonkeyPatch, kind: str, limit: str, error: str) -> None:
    row = make(kind, user)
    monkeypatch.setattr(limit, type(row)._default_manager.filter(owner=user).count() + 1)
    answers = [copy(api, row) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 403]
    assert answers[1].json["error"] == error


@pytest.mark.django_db
def test_a_window_is_copied_whole(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(project=project)
    given = {
        "name": "Weekly",
        "time_zone": "Europe/Berlin",
        "rrule": "FREQ=WEEKLY",
        "monitors": "chosen",
        "monitor_ids": [monitor.public_id],
        "project_id": project.public_id,
    }
    window = make("window", user, **given)
    MaintenanceWindow.objects.update(previous_ends_at=utc_now())
    made = copy(api, window)
    assert differing(window, made) == {"id", "public_id", "created_at", "name", "previous_ends_at"}
    assert (made.json["name"], made.json["monitor_ids"]) == ("Weekly (copy)", [monitor.public_id])
    changed = copy(api, window, {"monitors": "all", "rrule": None, "name": "Once"}).json
    assert (changed["monitors"], changed["monitor_ids"], changed["rrule"]) == ("all", [], None)
    assert copy(api, window, {"project_id": None}).json["project_id"] is None
    refused = copy(api, window, {"ends_at": to_ms(window.starts_at) - 1})
    assert (refused.status, "ends_at" in refused.error) == (422, True)


@pytest.mark.django_db
def test_a_window_that_has_ended_needs_other_times(api: Api, user: User) -> None:
    window = make("window", user)
    past = {"starts_at": utc_now() - timedelta(days=2), "ends_at": utc_now() - timedelta(days=1)}
    MaintenanceWindow.objects.update(current_starts_at=None, current_ends_at=None, **past)
    assert copy(api, window).error.startswith("validation_error ends_at:")
    start = to_ms(utc_now()) + HOUR_MS
    assert copy(api, window, {"starts_at": start, "ends_at": start + HOUR_MS}).json["next_starts_at"] == start


@pytest.mark.django_db
def test_a_page_is_copied_whole_at_another_address(api: Api, user: User, settings: Any) -> None:
    settings.STATUS_PAGE_DOMAINS = ["*"]
    project = ProjectFactory(owner=user)
    monitors = [MonitorFactory(project=project) for _ in range(2)]
    given = {
        "project_id": project.public_id,
        "slug": "shop",
        "description": "All of it",
        "published": False,
        "theme": "dark",
        "accent": "#2f6fed",
        "password": "letters and 8",
        "custom_domain": "status.example.org",
        "show_window_names": True,
        "show_locations": True,
    }
    page = make_page(user, monitors, **given)
    api.send("put", f"{path_of(page)}/logo", {"image": b64encode(picture()).decode()})
    api.post(f"{path_of(page)}/notes", {"title": "Late", "text": "Late.", "status": "investigating"})
    make_subscriber(page)
    StatusPage.objects.update(domain_verified_at=utc_now(), domain_failures=1)
    made = copy(api, page)
    address = {"slug", "custom_domain", "domain_verified_at", "domain_check_at", "domain_failures"}
    assert differing(page, made) <= address | {"id", "public_id", "created_at", "version", "name"}
    assert (made.json["name"], made.json["slug"], made.json["protected"]) == ("Shop status (copy)", "shop-copy", True)
    assert (made.json["custom_domain"], made.json["domain_record"]) == (None, None)
    assert made.json["groups"] == api.get(path_of(page)).json["groups"]
    copied = f"/v1/status-pages/{made.json['id']}"
    assert (api.get(f"{copied}/notes").json, api.get(f"{copied}/subscribers").json) == ([], [])
    first, second = PageLogo.objects.order_by("pk")
    assert bytes(first.image) == bytes(second.image)
    assert made.json["has_logo"]
    assert made.headers["ETag"] == api.get(copied).headers["ETag"]

    assert [copy(api, page).json["slug"] for _ in range(2)] == ["shop-copy-2", "shop-copy-3"]
    assert copy(api, page, {"slug": "shop"}).error.startswith("validation_error slug: is already used")
    assert copy(api, page, {"slug": "admin"}).error.startswith("validation_error slug: is reserved")
    open_one = copy(api, page, {"password": None, "slug": "open", "published": True}).json
    assert (open_one["protected"], open_one["published"]) == (False, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("slug", "expected"),
    [("a" * 64, "a" * 59 + "-copy"), ("a" * 58 + "-bbbbb", "a" * 58 + "-copy"), ("a-copy", "a-copy-copy")],
)
def test_the_slug_of_a_copy_fits(api: Api, user: User, slug: str, expected: str) -> None:
    page = make_page(user, [], slug=slug)
    assert copy(api, page).json["slug"] == expected


@pytest.mark.django_db
def test_a_protected_page_is_not_published_without_its_password(api: Api, user: User) -> None:
    page = make_page(user, [], password="letters and 8")
    project: Project = ProjectFactory(owner=user)
    there = {"project_id": project.public_id}
    refused = copy(api, page, there)
    assert (refused.status, refused.error.startswith("validation_error password: ")) == (422, True)
    assert StatusPage.objects.count() == 1
    made = copy(api, page, there | {"password": "another of 8"}).json
    assert (made["protected"], made["project_id"]) == (True, project.public_id)
    assert StatusPage.objects.get(public_id=made["id"]).password_hash != page.password_hash
    assert not copy(api, page, there | {"password": None}).json["protected"]
    shown = make_page(user, [MonitorFactory(owner=user)])
    assert copy(api, shown, there).error.startswith("validation_error groups[0].monitors[0].monitor_id: ")
    assert copy(api, shown, there | {"groups": []}).status == 201


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_objects_of_others_are_not_found(user: User, kind: str) -> None:
    row = make(kind, user)
    stranger = Api.signed_in(UserFactory())
    before = type(row)._default_manager.count()
    for api in (stranger, Api.with_token(user, ProjectFactory(owner=user))):
        assert [copy(api, row, body).status for body in (None, {"name": 1})] == [404, 404]
    assert type(row)._default_manager.count() == before
