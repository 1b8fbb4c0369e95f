"""The pages that create, change and test a monitor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import trustme
from celery import Celery
from celery.contrib.testing.worker import start_worker
from django.template.loader import render_to_string
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.probes.ping.rights import may_ping
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, BLOCKED_BY_AGENT, Failure, failed
from config.celery import app
from core import replies
from core.clock import utc_now
from dashboard.monitors import editing
from monitors.checking.results import as_check_result
from monitors.checking.runner import drain
from monitors.models import DnsChange, Monitor
from tests.api.client import Api
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import flush_broker, run_concurrently, state_of
from tests.processes.waiting import until
from tests.site import Site
from tests.targets.catalogue.resolvers import NAME, A
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.resolvers import saying
from tests.targets.server import TargetServer

SCRIPT = "<script>alert(1)</script>"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;"
URL = "http://127.0.0.1:9/health"


def key_in(page: str) -> str:
    found = re.search(r'name="form_key" value="([a-z2-7]+)"', page)
    assert found is not None
    return found[1]


def typed(**given: Any) -> dict[str, Any]:
    """Return the data of a form with only an address entered, and these fields."""
    return (
        {
            "form_key": "a-key",
            "type": "http",
            "url": URL,
            "interval_sec": "5m",
            "grace_sec": "1m",
            "timeout_ms": "10s",
            "slow_ms": "1.5s",
            "fail_threshold": "3",
            "recover_threshold": "1",
            "tls_verify": "on",
        }
        | {f"rule-{index}-kind": "contains" for index in range(4)}
        | given
    )


def errors_in(page: str) -> list[str]:
    """Return the error summary above the form: `Label: reason`, in order."""
    found = re.search(r'<ul class="problems">(.*?)</ul>', page, re.DOTALL)
    items = re.findall(r"<li>(.*?)</li>", found[1], re.DOTALL) if found else []
    return [unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", item))).strip() for item in items]


def created(user: User) -> Monitor:
    return Monitor.objects.get(owner=user)


def test_a_person_who_is_not_signed_in_is_sent_to_sign_in(client: Client, db: None, settings: Settings) -> None:
    settings.LOGIN_URL = "/account/login/"
    answer = client.get("/monitors/new")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/account/login/?next=/monitors/new")


def test_a_new_monitor_is_led_to_and_has_the_defaults(web: Client, user: User) -> None:
    answer = web.post("/monitors/new", typed())
    monitor = created(user)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/monitors/{monitor.public_id}")
    assert (monitor.name, monitor.type, monitor.options["method"]) == ("127.0.0.1", "http", "HEAD")
    assert (monitor.interval_sec, monitor.timeout_ms, monitor.slow_ms) == (300, 10_000, 1_500)
    assert state_of(monitor).claimed_at is not None, "its first check is asked for"


@pytest.mark.parametrize(("text", "stored"), [("", None), ("0s", 0), ("1m", 60), ("1h", 3_600)])
def test_how_long_an_outage_is_confirmed(web: Client, user: User, text: str, stored: int | None) -> None:
    web.post("/monitors/new", typed(confirmation_sec=text))
    assert created(user).confirmation_sec == stored


@pytest.mark.parametrize("text", ["61m", "-1", "soon"])
def test_a_confirmation_that_is_refused_stores_nothing(web: Client, user: User, text: str) -> None:
    answer = web.post("/monitors/new", typed(confirmation_sec=text))
    assert [error.partition(":")[0] for error in errors_in(answer.content.decode())] == ["Confirm an outage for"]
    assert not Monitor.objects.filter(owner=user).exists()


def test_everything_that_is_typed_is_stored(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    given = typed(
        type="api",
        name="Orders",
        project_id=project.public_id,
        interval_sec="1h 30m",
        timeout_ms="60",
        slow_ms="800ms",
        method="POST",
        expect_status="201",
        follow_redirects="on",
        check_ssl="on",
        check_domain="on",
        request_body='{\r\n  "a": 1\r\n}',
        fail_threshold="5",
        recover_threshold="2",
    ) | {
        "rule-0-kind": "json_equals",
        "rule-0-path": "data.0.ok",
        "rule-0-value": "",
        "rule-2-kind": "json_exists",
        "rule-2-path": "version",
        "rule-3-kind": "absent",
        "rule-3-value": " error ",
        "header-0-name": "Authorization",
        "header-0-value": "Bearer s3cret",
        "header-0-type": "bearer",
        "header-3-name": "X-Team",
        "header-3-value": "shop",
    }
    assert web.post("/monitors/new", given).status_code == 302
    config = created(user).full_config
    assert created(user).project == project
    assert (config.type, config.name, config["method"], config["expect_status"]) == ("api", "Orders", "POST", 201)
    assert (config.interval_sec, config.timeout_ms, config.slow_ms) == (5_400, 60_000, 800)
    assert (config["follow_redirects"], config.check_ssl, config.check_domain) == (True, True, True)
    assert (config.fail_threshold, config.recover_threshold) == (5, 2)
    assert config["request_body"] == '{\n  "a": 1\n}', "line endings as entered, not CRLF as browsers submit them"
    assert [(rule.type.value, rule.path, rule.value, rule.equals) for rule in config["content_rules"]] == [
        ("json_field", "data.0.ok", None, ""),
        ("json_field", "version", None, None),
        ("text_absent", None, " error ", None),
    ]
    assert [(header.name, header.value, header.type) for header in config["request_headers"]] == [
        ("Authorization", "Bearer s3cret", "bearer"),
        ("X-Team", "shop", None),
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": ""}, "Address: Is required for a monitor of type http."),
        ({"url": "ftp://x"}, "Address: "),
        ({"url": "http://a:b@x.example/"}, "Address: "),
        ({"url": "http://10.0.0.1/"}, "Address: Is a private or reserved address"),
        ({"url": f"http://x.example/{SCRIPT}" + "x" * 2048}, "Address: "),
        ({"name": "n" * 201}, "Name: "),
        ({"name": "\x00"}, "Name: "),
        ({"type": "snmp"}, "Type: "),
        ({"interval_sec": "often"}, "Interval: Enter a duration such as 5m, 1h or 1h 30m"),
        ({"interval_sec": ""}, "Interval: This field is required."),
        ({"interval_sec": "0.5s"}, "Interval: Whole seconds only."),
        ({"timeout_ms": "10000"}, "Timeout: At most 1m."),
        ({"timeout_ms": "0.5s"}, "Timeout: At least 1s."),
        ({"slow_ms": "9999999999"}, "Slow from: "),
        ({"slow_ms": ""}, "Slow from: This field is required."),
        ({"fail_threshold": "0"}, "Failures before down: "),
        ({"fail_threshold": ""}, "Failures before down: This field is required."),
        ({"recover_threshold": "99999999999"}, "Passes before up again: "),
        ({"expect_status": "abc"}, "Expected status: "),
        ({"method": "BREW"}, "Method: "),
        ({"request_body": "x"}, "Body: Cannot be sent with HEAD."),
        ({"request_body": "x" * 8193, "method": "POST"}, "Body: "),
        ({"project_id": "prj_of_nobody"}, "Project: "),
        ({"type": "keyword"}, "Content rules: A keyword monitor needs at least one"),
        ({"type": "scheduler", "method": "HEAD"}, "Method: A scheduler cannot use HEAD."),
        (
            {"rule-0-value": "a", "rule-2-kind": "json_equals", "rule-2-value": "ok"},
            "Path in the JSON: Is required for json_field.",
        ),
        ({"rule-1-path": "a.b"}, "Text: Is required for text_contains."),
        ({"rule-1-value": "x" * 257}, "Text: "),
        ({"rule-1-value": "x", "rule-1-kind": "odd"}, "Rule: "),
        ({"header-2-name": "Bad name", "header-2-value": "x"}, "Name: Is not a valid header name."),
        ({"header-2-name": "Connection", "header-2-value": "x"}, "Name: Connection is set by Pulsekeeper."),
        ({"header-2-value": "x"}, "Name: Name the header that has this value."),
        ({"header-2-name": "X-Team"}, "Value: Stored values are hidden"),
    ],
)
def test_bad_input_is_reported_beside_its_field_and_kept(
    web: Client, user: User, settings: Settings, given: dict[str, str], problem: str
) -> None:
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    given = typed(url="http://shop.example/") | {"name": SCRIPT} | given
    answer = web.post("/monitors/new", given)
    page = answer.content.decode()
    assert answer.status_code == 200
    (told,) = errors_in(page)
    assert told.startswith(problem)
    assert page.count('class="errorlist"') == 1, "beside its field too"
    assert SCRIPT not in page
    if "name" not in given or given["name"] == SCRIPT:
        assert SHOWN in page
    assert not Monitor.objects.filter(owner=user).exists()


def test_an_error_of_a_row_stands_in_its_row(web: Client) -> None:
    """Empty rows are not sent, so the API counts rows differently from the page."""
    given = typed() | {"rule-1-value": "fine", "rule-3-kind": "json_exists", "rule-3-path": "", "rule-3-value": "x"}
    page = web.post("/monitors/new", given).content.decode()
    rows = page.split('<fieldset class="repeat rule">')[1:]
    assert [("Is required for json_field" in row) for row in rows] == [False, False, False, True]


def test_what_another_kind_does_not_ask_for_does_not_matter(web: Client, user: User) -> None:
    given = typed(type="heartbeat", url="nonsense", timeout_ms="nonsense", grace_sec="15m") | {
        "header-0-value": "x",
        "rule-0-kind": "odd",
    }
    assert web.post("/monitors/new", given).status_code == 302
    monitor = created(user)
    assert (monitor.type, monitor.url, monitor.options["grace_sec"], monitor.timeout_ms) == (
        "heartbeat",
        "",
        900,
        10_000,
    )
    assert state_of(monitor).claimed_at is None, "it waits for its first ping"


@pytest.mark.parametrize(
    ("given", "grace_sec"),
    [
        ({"interval_sec": "5m"}, 60),
        ({"interval_sec": "23h"}, 60),
        ({"interval_sec": "1d"}, 3_600),
        ({"timing": "schedule", "schedule": "0 3 * * *", "interval_sec": "5m"}, 3_600),
        ({"timing": "schedule", "schedule": "0 3 * * SUN", "timezone": "Europe/Berlin"}, 3_600),
        ({"timing": "schedule", "schedule": "0 3,15 * * *", "interval_sec": "1d"}, 60),
        ({"timing": "schedule", "schedule": "0 3 * * *", "grace_sec": "5m"}, 300),
    ],
)
def test_an_empty_grace_follows_the_schedule(web: Client, user: User, given: dict[str, str], grace_sec: int) -> None:
    shown = web.get("/monitors/new?type=heartbeat").content.decode()
    field = re.search(r'<input [^>]*name="grace_sec"[^>]*>', shown)
    assert field is not None
    assert "value=" not in field[0]
    answer = web.post("/monitors/new", typed(type="heartbeat", grace_sec="") | given)
    assert errors_in(answer.content.decode()) == []
    assert created(user).options["grace_sec"] == grace_sec


def test_a_bad_schedule_with_an_empty_grace_is_refused(web: Client) -> None:
    given = typed(type="heartbeat", grace_sec="", timing="schedule")
    for schedule, problem in (("", "Schedule: Enter a cron expression"), ("1 2 3", "Schedule: Has 3 fields")):
        page = web.post("/monitors/new", given | {"schedule": schedule}).content.decode()
        assert errors_in(page)[0].startswith(problem)
    assert not Monitor.objects.exists()


def test_a_stored_grace_is_not_emptied(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="heartbeat", grace_sec=90)
    page = web.post(f"/monitors/{monitor.public_id}/edit", typed(type="heartbeat", grace_sec="")).content.decode()
    assert errors_in(page) == ["Grace: This field is required."]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"url": "https://shop.example/", "check_ssl": "on"}, True),
        ({"url": "https://shop.example/"}, False),
        ({"url": "http://shop.example/", "check_ssl": "on"}, False),
        ({"url": "http://shop.example/", "check_ssl": "on", "follow_redirects": "on"}, True),
        ({"url": "https://shop.example/", "check_ssl": "on", "tls_verify": ""}, False),
        ({"type": "port", "url": "shop.example:443", "encryption": "tls", "check_ssl": "on"}, True),
        ({"type": "port", "url": "shop.example:80", "check_ssl": "on"}, False),
    ],
)
def test_expiring_certificates_are_warned_of_by_default(
    web: Client, user: User, given: dict[str, str], expected: bool
) -> None:
    """Settings that are on by default are off where they have no effect, and do not conflict with other settings."""
    shown = web.get("/monitors/new").content.decode()
    assert re.search(r'<input [^>]*name="check_ssl"[^>]* checked', shown)
    assert "Warn before the certificate expires" in shown
    assert '<details class="card foldable" id="advanced">' in shown, "the defaults of the form are nothing unusual"
    given = {name: value for name, value in (typed(request_body_encoding="text") | given).items() if value}
    answer = web.post("/monitors/new", given)
    assert errors_in(answer.content.decode()) == []
    assert created(user).check_ssl is expected


@pytest.mark.usefixtures("template_contexts")
def test_the_floor_of_the_plan_is_shown_and_enforced(web: Client, user: User) -> None:
    user.plan = PlanFactory(min_interval_sec=300)
    user.save(update_fields=["plan"])
    assert "at least 5 min" in web.get("/monitors/new").content.decode()
    answer = web.post("/monitors/new", typed(interval_sec="1m"), follow=False)
    assert answer.status_code == 302
    assert created(user).interval_sec == 300
    told = [str(message) for message in _messages(web)]
    assert told == ["127.0.0.1 is created.", "The interval is 5m, the shortest of the plan."]


def _messages(web: Client) -> list[object]:
    return list(web.get("/monitors/new").context["messages"])


def test_the_cap_of_the_plan_is_shown(web: Client, user: User) -> None:
    user.plan = PlanFactory(monitor_limit=0)
    user.save(update_fields=["plan"])
    page = web.post("/monitors/new", typed(name="Kept")).content.decode()
    assert errors_in(page) == ["The plan's limit of monitors is reached."]
    assert 'value="Kept"' in page


def test_a_form_makes_one_monitor_however_often_it_is_sent(web: Client, user: User) -> None:
    key = key_in(web.get("/monitors/new").content.decode())
    first, again = (web.post("/monitors/new", typed(form_key=key)) for _ in range(2))
    assert first.headers["Location"] == again.headers["Location"]
    assert Monitor.objects.count() == 1
    changed = web.post("/monitors/new", typed(form_key=key, name="Another"))
    page = changed.content.decode()
    assert errors_in(page)[0].startswith("This form was already sent")
    assert web.post("/monitors/new", typed(form_key=key_in(page), name="Another")).status_code == 302
    assert Monitor.objects.count() == 2


def test_a_form_that_was_refused_can_be_sent_again(web: Client, user: User) -> None:
    assert web.post("/monitors/new", typed(url="")).status_code == 200
    assert web.post("/monitors/new", typed()).status_code == 302
    assert Monitor.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_double_click_makes_one_monitor() -> None:
    user = UserFactory()

    def send() -> str:
        web = Client()
        web.force_login(user)
        answer = web.post("/monitors/new", typed())
        assert answer.status_code == 302
        return answer.headers["Location"]

    assert len(set(run_concurrently(send, send, send))) == 1
    assert Monitor.objects.count() == 1


def test_without_a_broker_the_first_check_is_left_to_the_scheduler(
    web: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    monkeypatch.setattr(replies, "current_app", away)
    before = utc_now()
    assert web.post("/monitors/new", typed()).status_code == 302
    due = state_of(created(user)).next_due_at
    assert due is not None
    assert before <= due <= utc_now(), "at once, and not when the lease of its claim has ended"


def test_forms_are_refused_without_their_token(user: User) -> None:
    web = Client(enforce_csrf_checks=True)
    web.force_login(user)
    monitor = MonitorFactory(owner=user)
    for path in ("/monitors/new", f"/monitors/{monitor.public_id}/edit"):
        assert web.post(path, typed()).status_code == 403
    assert Monitor.objects.count() == 1


# Editing


def edited(web: Client, monitor: Monitor, **given: str) -> Any:
    return web.post(f"/monitors/{monitor.public_id}/edit", typed(**_as_typed(monitor)) | given)


def _as_typed(monitor: Monitor) -> dict[str, str]:
    config = monitor.full_config
    return {
        "type": config.type,
        "name": config.name,
        "url": config.url,
        "method": config["method"],
        "interval_sec": str(config.interval_sec),
        "rule-0-kind": "json_equals",
        "rule-0-path": config["content_rules"][0].path or "" if config["content_rules"] else "",
        "rule-0-value": config["content_rules"][0].equals or "" if config["content_rules"] else "",
        "request_body": (config["request_body"] or "").replace("\n", "\r\n"),
    } | {f"header-{index}-name": header.name for index, header in enumerate(config["request_headers"])}


def test_the_page_shows_what_is_stored_but_no_header_value(web: Client, user: User) -> None:
    monitor = MonitorFactory(
        owner=user,
        name=SCRIPT,
        interval_sec=5400,
        slow_ms=500,
        request_headers=[{"name": "Authorization", "value": "s3cret"}],
        content_rules=[{"type": "json_field", "path": "a.b", "equals": SCRIPT}],
    )
    for path in (f"/monitors/{monitor.public_id}/edit", f"/monitors/new?from={monitor.public_id}"):
        page = web.get(path).content.decode()
        assert "s3cret" not in page
        assert SCRIPT not in page
        assert page.count(f'value="{SHOWN}') == 2
        assert 'value="1h 30m"' in page
        assert 'value="0.5s"' in page
        assert 'value="Authorization"' in page


def test_saving_what_is_there_changes_nothing(web: Client, user: User) -> None:
    monitor = MonitorFactory(
        owner=user,
        method="POST",
        request_body="a\nb",
        interval_sec=300,
        request_headers=[{"name": "X-Key", "value": "s3cret"}],
    )
    state = state_of(monitor).next_due_at
    assert edited(web, monitor).status_code == 302
    same = Monitor.objects.get()
    assert (same.full_config, same.config_version) == (monitor.full_config, 1)
    assert state_of(same).next_due_at == state


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({"header-0-value": "new"}, [("X-Key", "new"), ("X-Other", "old2")]),
        ({"header-0-name": ""}, [("X-Other", "old2")]),
        ({"header-0-name": "x-key"}, [("x-key", "old1"), ("X-Other", "old2")]),
        (
            {"header-2-name": "X-Third", "header-2-value": "v"},
            [("X-Key", "old1"), ("X-Other", "old2"), ("X-Third", "v")],
        ),
    ],
)
def test_header_values_are_kept_replaced_and_removed(
    web: Client, user: User, given: dict[str, str], headers: list[tuple[str, str]]
) -> None:
    monitor = MonitorFactory(
        owner=user, request_headers=[{"name": "X-Key", "value": "old1"}, {"name": "X-Other", "value": "old2"}]
    )
    assert edited(web, monitor, **given).status_code == 302
    assert [(header.name, header.value) for header in Monitor.objects.get().full_config["request_headers"]] == headers


def test_a_header_that_is_renamed_needs_a_value(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, request_headers=[{"name": "X-Key", "value": "old"}])
    page = edited(web, monitor, **{"header-0-name": "X-Renamed"}).content.decode()
    assert errors_in(page)[0].startswith("Value: Stored values are hidden")


def test_bad_input_of_an_edit_is_kept(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    page = edited(web, monitor, name=SCRIPT, url="ftp://nonsense").content.decode()
    assert errors_in(page)[0].startswith("Address: ")
    assert SHOWN in page
    assert SCRIPT not in page


def test_a_kind_changes_among_those_that_are_probed_alike(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    assert (
        edited(web, monitor, **{"type": "keyword", "rule-0-kind": "contains", "rule-0-value": "ok"}).status_code == 302
    )
    assert (Monitor.objects.get().type, Monitor.objects.get().options["method"]) == ("keyword", "GET")
    page = edited(web, monitor, type="heartbeat").content.decode()
    assert errors_in(page)[0].startswith("Type: ")


def test_a_monitor_moves_between_projects(web: Client, user: User) -> None:
    shop, monitor = ProjectFactory(owner=user), MonitorFactory(owner=user)
    assert edited(web, monitor, project_id=shop.public_id).status_code == 302
    assert Monitor.objects.get().project == shop
    assert edited(web, monitor, project_id="").status_code == 302
    assert Monitor.objects.get().project is None


def test_a_member_edits_and_others_find_nothing(web: Client, user: User) -> None:
    owner = UserFactory()
    ours = ProjectFactory(owner=owner, member=user)
    monitor = MonitorFactory(owner=owner, project=ours)
    alien = MonitorFactory(owner=owner)
    assert edited(web, monitor, name="Mended", project_id=ours.public_id).status_code == 302
    assert Monitor.objects.get(pk=monitor.pk).name == "Mended"
    for path in (
        f"/monitors/{alien.public_id}/edit",
        f"/monitors/new?from={alien.public_id}",
        "/monitors/new?from=%00",
    ):
        assert web.get(path).status_code == 404
        assert web.post(path, typed()).status_code == 404
    assert web.get("/monitors/mon_nothing/edit").status_code == 404


def test_a_copy_starts_from_everything(web: Client, user: User) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user, name="Blog")
    monitor = MonitorFactory(
        owner=user, name="Shop", project=project, request_headers=[{"name": "X-Key", "value": "s3cret"}]
    )
    path = f"/monitors/new?from={monitor.public_id}"
    page = web.get(path).content.decode()
    assert 'value="Shop (copy)"' in page
    assert f'<option value="{project.public_id}" selected>' in page
    assert "s3cret" not in page
    assert 'name="type" value="dns"' not in page, "a copy has the same settings"
    given = typed(name="Shop (copy)", project_id=project.public_id) | {"header-0-name": "X-Key"}
    for key, typed_value, value in (("a", "", "s3cret"), ("b", "again", "again")):
        answer = web.post(path, given | {"form_key": key, "header-0-value": typed_value}, follow=True)
        assert "were dropped" not in answer.content.decode()
        assert Monitor.objects.latest("pk").header_values == [value]
    for key, change in (("c", {"url": "http://127.0.0.1:10/"}), ("d", {"project_id": other.public_id})):
        page = web.post(path, given | {"form_key": key} | change, follow=True).content.decode()
        assert "were dropped: X-Key. They are not sent to another server or project" in page
        assert Monitor.objects.latest("pk").header_values == [""]
    new = given | {"form_key": "e", "header-1-name": "X-New"}
    assert errors_in(web.post(path, new).content.decode())[0].startswith("Value: Stored values are hidden")
    assert Monitor.objects.count() == 5


def test_a_choice_of_a_copy_is_not_that_of_its_type(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, method="POST", check_ssl=True)
    path = f"/monitors/new?from={monitor.public_id}"
    assert "By the type" not in web.get(path).content.decode()
    given = typed(name="Copy", method="PUT", check_ssl="on")
    assert web.post(path, given).status_code == 302
    made = Monitor.objects.get(name="Copy")
    assert (made.type, made.options["method"], made.check_ssl) == ("http", "PUT", True)


@pytest.mark.parametrize("target", [{"url": "https://nas.example/"}, {"type": "port", "url": "tls://nas.example:993"}])
def test_a_copy_keeps_the_verification_of_certificates(target: dict[str, str], web: Client, user: User) -> None:
    pem = trustme.CA().cert_pem.bytes().decode()
    monitor = MonitorFactory(owner=user, name="NAS", tls_verify=False, ca_certificate=pem, **target)
    path = f"/monitors/new?from={monitor.public_id}"
    page = web.get(path).content.decode()
    found = re.search(r'<textarea name="ca_certificate"[^>]*>\s*(.*?)</textarea>', page, re.DOTALL)
    assert found is not None
    assert unescape(found[1]).strip() == pem.strip()
    assert not re.search(r'name="tls_verify"[^>]* checked', page)
    given = typed(name="NAS (copy)", ca_certificate=pem.replace("\n", "\r\n"), **target)
    del given["tls_verify"]
    assert web.post(path, given).status_code == 302
    config = Monitor.objects.get(name="NAS (copy)").full_config
    assert (config["tls_verify"], config["ca_certificate"]) == (False, pem)


# The test run


@pytest.fixture
def worker(transactional_db: None) -> Iterator[None]:
    flush_broker()
    with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, queues=["interactive"]):
        yield
    drain(grace_sec=0)


def tried(web: Client, path: str, given: dict[str, Any], *, htmx: bool = True) -> Any:
    return web.post(path, given | {"test": "yes"}, headers={"HX-Request": "true"} if htmx else {})


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.mark.usefixtures("worker")
def test_a_test_run_shows_what_came_of_it_and_saves_nothing(client: Client, site: Site) -> None:
    client.force_login(UserFactory())
    passed = tried(client, "/monitors/new", typed(url=site.url("/ok")))
    assert "<form" not in passed.content.decode(), "the result only, so that further input in the form is kept"
    assert re.search(
        r"Up HTTP 200 Connected after \d+ ms First byte after \d+ ms Done after \d+ ms", _text(passed.content.decode())
    )
    failed = tried(client, "/monitors/new", typed(url=site.url("/ok"), expect_status="201"), htmx=False)
    page = failed.content.decode()
    assert "Down" in page
    assert 'value="201"' in page, "without scripts it is the whole page, with what was typed"
    assert not Monitor.objects.exists()


@pytest.mark.usefixtures("worker")
def test_a_test_run_shows_what_the_target_sent_although_it_passed(client: Client) -> None:
    user = UserFactory()
    client.force_login(user)
    with TargetServer() as targets:
        names = targets.serve_resolver(saying(A, (f"{NAME}.", "A", "192.0.2.2")))
        markup, echo = (targets.serve_datagrams(Datagrams([[answer]])) for answer in (f"{SCRIPT}".encode(), Reply()))
        draft = {"type": "udp", "url": f"udp://127.0.0.1:{echo.port}", "request_body": "AUTH s3cret-word"}
        for given, lines in (
            (
                {"type": "dns", "url": f"dns://{names.address}/{NAME}?type=A"},
                (f"{NAME}. 300 IN A 192.0.2.1\n", f"{NAME}. 300 IN A 192.0.2.2", "NOERROR"),
            ),
            ({"type": "udp", "url": f"udp://127.0.0.1:{markup.port}", "request_body": "hi"}, (SHOWN, "Datagrams sent")),
            (draft, ("<pre", "***")),
        ):
            tested = tried(client, "/monitors/new", typed(**given)).content.decode()
            assert re.search(r'data-status="up".*<details open>', tested, re.DOTALL), given
            assert not [line for line in lines if line not in tested], given
            assert "s3cret-word" not in tested
            assert SCRIPT not in tested
        answer = Api.signed_in(user).post("/v1/monitors/test", draft)
    assert answer.json.keys() == {"status", "latency_ms", "connect_ms", "ttfb_ms", "detail", "http_status"}


@pytest.mark.usefixtures("worker")
def test_a_test_run_of_a_ping_shows_its_round_trips(client: Client) -> None:
    if not may_ping():
        pytest.skip("this process may not send pings")
    client.force_login(UserFactory())
    given = typed(type="ping", url="icmp://127.0.0.1", packets="3", min_replies="1")
    tested = _text(tried(client, "/monitors/new", given).content.decode())
    assert re.search(r"Packets 3 sent, 3 returned, 0 % lost Round trips ([\d.]+ ms,? ){3}", tested)


@pytest.mark.usefixtures("worker")
def test_the_test_run_of_an_edit_sends_the_stored_header_values(client: Client, site: Site) -> None:
    user = UserFactory()
    client.force_login(user)
    monitor = MonitorFactory(
        owner=user,
        url=site.url("/echo"),
        request_headers=[{"name": "X-Key", "value": "s3cret"}],
        content_rules=[{"type": "json_field", "path": "headers.X-Key", "equals": "s3cret"}],
    )
    answer = tried(client, f"/monitors/{monitor.public_id}/edit", typed(**_as_typed(monitor)) | {"name": "Not saved"})
    assert _text(answer.content.decode()).strip().startswith("Up HTTP 200")
    assert Monitor.objects.get().name != "Not saved"


@pytest.mark.usefixtures("worker")
def test_the_form_says_that_stored_values_do_not_go_to_another_server(client: Client, site: Site) -> None:
    user = UserFactory()
    client.force_login(user)
    with Site() as other:
        monitor = MonitorFactory(
            owner=user, url=other.url("/ok"), request_headers=[{"name": "X-Key", "value": "s3cret"}]
        )
        path = f"/monitors/{monitor.public_id}"
        rule = {"rule-0-kind": "json_equals", "rule-0-path": "headers.X-Key", "rule-0-value": "s3cret"}
        given = typed(**_as_typed(monitor) | {"url": site.url("/echo")})
        tested = _text(tried(client, f"{path}/edit", given | rule).content.decode())
        assert tested.strip().startswith("Down"), "the value did not reach the other server"
        assert "Sent without the stored value of X-Key: enter it again for this server." in tested
        saved = _text(client.post(f"{path}/edit", given, follow=True).content.decode())
    assert "The stored values of these headers were dropped: X-Key." in saved
    assert "X-Key has lost its value: enter it again" in saved
    assert 'placeholder="enter it again"' in client.get(f"{path}/edit").content.decode()
    given |= {"header-0-value": "new"}
    assert "has lost its value" not in client.post(f"{path}/edit", given, follow=True).content.decode()
    assert Monitor.objects.get().full_config["request_headers"][0].value == "new"


@pytest.mark.usefixtures("worker")
def test_a_created_monitor_is_checked_without_a_waiting_caller(client: Client, site: Site) -> None:
    client.force_login(UserFactory())
    assert client.post("/monitors/new", typed(url=site.url("/ok"))).status_code == 302
    monitor = Monitor.objects.get()
    until(lambda: state_of(monitor).status == "up", 10, "the first check is recorded")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("no_worker")
def test_without_a_worker_a_test_run_says_so(client: Client) -> None:
    client.force_login(UserFactory())
    answer = tried(client, "/monitors/new", typed(timeout_ms="1s"))
    assert answer.status_code == 200
    assert "No worker ran the check in time; try again in a moment. This says nothing" in answer.content.decode()


@pytest.mark.parametrize(("detail", "advises"), [(BLOCKED.detail, True), (BLOCKED_BY_AGENT, False)])
def test_only_a_target_that_the_server_blocks_gets_advice_about_its_settings(detail: str, advises: bool) -> None:
    result = as_check_result(failed(Failure(ReasonCode.BLOCKED_TARGET, detail), now=utc_now()))
    shown = unescape(render_to_string("dashboard/monitors/test_run.html", {"run": editing.TestRun(result)}))
    assert detail in shown
    assert ("can allow private networks" in shown) is advises


def test_a_test_run_of_a_bad_form_shows_the_form_with_its_errors(web: Client) -> None:
    answer = tried(web, "/monitors/new", typed(url="ftp://nonsense", name="Kept"))
    page = answer.content.decode()
    assert (answer.headers["HX-Retarget"], answer.headers["HX-Reswap"]) == ("#monitor-form", "outerHTML")
    assert page.lstrip().startswith("<form")
    assert "Nothing was tested yet." in page
    assert 'value="Kept"' in page
    assert errors_in(page)[0].startswith("Address: ")
    heartbeat = tried(web, "/monitors/new", typed(type="heartbeat")).content.decode()
    assert errors_in(heartbeat) == ["Type: A heartbeat waits for pings, so there is nothing to test."]


def test_tests_and_creations_are_throttled_with_those_of_the_api(web: Client, settings: Settings) -> None:
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"create-and-test": (1, 60)}
    assert web.post("/monitors/new", typed()).status_code == 302
    for page in (web.post("/monitors/new", typed(form_key="b")), tried(web, "/monitors/new", typed())):
        assert errors_in(page.content.decode()) == ["Too many requests; try again later."]
    assert Monitor.objects.count() == 1


@pytest.mark.django_db
def test_changes_of_dns_records(client: Client) -> None:
    user = UserFactory()
    client.force_login(user)
    monitor = MonitorFactory(owner=user, type="dns", url="dns:example.com")
    page = client.get(f"/monitors/{monitor.public_id}").content.decode()
    assert re.search(r'<section [^>]*id="dns-changes"[^>]* hidden>', page)
    DnsChange.objects.create(
        monitor=monitor, at=utc_now(), added=["<b>192.0.2.1</b>"], removed=["192.0.2.2"], added_count=1, removed_count=9
    )
    page = client.get(f"/monitors/{monitor.public_id}").content.decode()
    assert "Added <code>&lt;b&gt;192.0.2.1&lt;/b&gt;</code>" in page
    assert "Removed <code>192.0.2.2</code>" in page
    assert "8 more removed" in page
    assert not re.search(r'<section [^>]*id="dns-changes"[^>]* hidden>', page)
