"""The pages of on-call schedules, escalation policies, shifts and contacts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.models import AlertChannel
from core.clock import to_ms
from incidents.models import Escalation
from monitors.services import create_monitor
from oncall import services
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from projects.access import Caller
from projects.models import Project
from tests.dashboard.test_monitor_pages import typed
from tests.factories import (
    ChannelFactory,
    IncidentFactory,
    MembershipFactory,
    MonitorFactory,
    ProjectFactory,
    UserFactory,
)

NOW = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)  # a Friday, nine days before clocks are put forward in Europe
MONDAY = datetime(2026, 3, 16, 8, 0, tzinfo=UTC)  # 9:00 in Berlin
HOSTILE = '<script>alert(1)</script> & "quoted"'
pytestmark = pytest.mark.usefixtures("template_contexts")


@pytest.fixture(autouse=True)
def _now() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def user(user: User) -> User:
    """Without the e-mail channel that accounts begin with."""
    AlertChannel.objects.filter(owner=user).delete()
    return user


@pytest.fixture
def project(user: User) -> Project:
    return ProjectFactory(owner=user, name="Shop")


@pytest.fixture
def ben(project: Project) -> User:
    """A member whom an e-mail reaches."""
    ben = UserFactory(email="ben@shop.example")
    MembershipFactory(project=project, user=ben, role="member")
    return ben


def layer(*people: User, starts: datetime = MONDAY, **given: Any) -> dict[str, Any]:
    return {
        "user_ids": [one.public_id for one in people],
        "every": {"unit": "week", "count": 1},
        "starts_at": to_ms(starts),
        "hours": [],
        **given,
    }


def make(user: User, *layers: dict[str, Any], now: datetime = NOW, **given: Any) -> OnCallSchedule:
    body = {"name": "Backend", "timezone": "Europe/Berlin", "layers": list(layers)}
    return services.create_schedule(Caller(user), body | given, now=now)


def text_of(web: Client, path: str, **query: str) -> str:
    answer = web.get(path, query)
    assert answer.status_code == 200, (path, answer.status_code)
    return re.sub(r"\s+", " ", answer.content.decode())


def form_of(page: Any) -> dict[str, Any]:
    """Return what a browser would send of the form of a page."""
    form = page.context["form"]
    fields: dict[str, Any] = {}
    for field in form:
        value = field.value()
        value = field.field.prepare_value(value)
        shown = field.field.widget.format_value(value)
        if isinstance(shown, list | tuple) and "-days-" not in field.name:
            shown = shown[0] if shown else ""
        fields[field.name] = shown if shown is not None else ""
    return fields


def path_of(row: OnCallSchedule | EscalationPolicy) -> str:
    return f"/on-call/{'schedules' if isinstance(row, OnCallSchedule) else 'policies'}/{row.public_id}"


@pytest.mark.parametrize("path", ["/on-call", "/on-call/policies", "/on-call/shifts", "/account/contact/"])
def test_empty_pages_explain(web: Client, path: str) -> None:
    assert 'class="card empty"' in text_of(web, path)


def test_the_list_says_who_is_on_call_and_where_gaps_are(web: Client, user: User, project: Project, ben: User) -> None:
    make(user, layer(user, ben), project_id=project.public_id)
    make(
        user, layer(ben, hours=[{"days": [1], "from": "09:00", "to": "17:00"}]), project_id=project.public_id, name="N"
    )
    text = text_of(web, "/on-call")
    assert (
        f'{user.email}</span> <span class="muted small">you</span> <span class="badge" data-status="waiting">no' in text
    )
    assert "23 Mar 2026, 08:00 UTC" in text
    assert "ben@shop.example" in text
    assert "5 gaps" in text
    assert ">No one</span>" in text


def test_a_schedule_is_created_and_edited_without_scripts(web: Client, user: User, project: Project, ben: User) -> None:
    page = web.get("/on-call/schedules/new")
    sent = form_of(page) | {"name": HOSTILE, "timezone": "Europe/Berlin", "project_id": project.public_id}
    more = web.post("/on-call/schedules/new", sent | {"more": "project"})
    assert not OnCallSchedule.objects.exists()
    assert "ben@shop.example" in more.content.decode()
    assert f"{user.email} (no confirmed contact)" in more.content.decode()
    assert not more.context["form"].errors
    sent |= {
        "layer-0-person-0": ben.public_id,
        "layer-0-person-1": user.public_id,
        "layer-0-unit": "day",
        "layer-0-count": "2",
        "layer-0-starts": "2026-03-16T09:00",
        "layer-0-days-0": ["1", "2"],
        "layer-0-from-0": "22:00",
        "layer-0-to-0": "06:00",
    }
    done = web.post("/on-call/schedules/new", sent, follow=True)
    schedule = OnCallSchedule.objects.get()
    assert done.redirect_chain == [(path_of(schedule), 302)], done.context["form"].errors
    assert "<script>alert(1)" not in done.content.decode()
    assert schedule.project == project
    assert schedule.layers == [
        layer(
            ben,
            user,
            every={"unit": "day", "count": 2},
            hours=[{"days": [1, 2], "from": "22:00", "to": "06:00"}],
        )
    ]
    edit = web.get(f"{path_of(schedule)}/edit")
    sent = form_of(edit)
    web.post(f"{path_of(schedule)}/edit", sent)
    assert OnCallSchedule.objects.get().layers == schedule.layers, "an unchanged form changes nothing"
    sent |= {"layer-1-person-0": user.public_id, "layer-1-person-1": user.public_id, "layer-1-place": "1"}
    sent |= {"layer-0-place": "2"}
    web.post(f"{path_of(schedule)}/edit", sent)
    changed = OnCallSchedule.objects.get()
    assert [one["user_ids"] for one in changed.layers] == [
        [user.public_id] * 2,
        [ben.public_id, user.public_id],
    ]
    assert changed.layers[1] == schedule.layers[0]


@pytest.mark.parametrize(
    ("fields", "place", "reason"),
    [
        ({"name": ""}, "name", "This field is required."),
        ({"layer-0-person-0": ""}, "layer-0-person-0", "Choose at least one person."),
        ({"layer-0-person-0": "usr_x"}, "layer-0-person-0", "Select a valid choice."),
        ({"layer-0-count": "91", "layer-0-unit": "day"}, "layer-0-count", "At most 90 with the unit day."),
        ({"layer-0-starts": "soon"}, "layer-0-starts", "Enter a valid date/time."),
        ({"layer-0-starts": "9999-12-31T23:00"}, "layer-0-starts", "Enter a date"),
        ({"layer-0-from-0": "09:00"}, "layer-0-days-0", "Select the days."),
        ({"layer-0-days-0": ["1"], "layer-0-from-0": "09:00"}, "layer-0-to-0", "Enter a time."),
        ({"timezone": "../../etc/passwd"}, "timezone", "Select a valid choice."),
        ({"project_id": "prj_x"}, "project_id", "Select a valid choice."),
    ],
)
def test_errors_of_a_schedule_are_beside_their_fields(
    web: Client, user: User, fields: dict[str, Any], place: str, reason: str
) -> None:
    sent = form_of(web.get("/on-call/schedules/new")) | {"name": "A", "layer-0-person-0": user.public_id}
    page = web.post("/on-call/schedules/new", sent | fields)
    errors = page.context["form"].errors
    assert any(reason in error for error in errors.get(place, ())), errors
    assert not OnCallSchedule.objects.exists()


def test_rows_are_added_without_scripts(web: Client, user: User) -> None:
    sent = form_of(web.get("/on-call/schedules/new"))
    count = sum("layer-0-person" in name for name in sent)
    for more, name in (
        ("people-0", f"layer-0-person-{count + 2}"),
        ("hours-0", "layer-0-from-1"),
        ("layers", "layer-2-unit"),
    ):
        page = web.post("/on-call/schedules/new", sent | {"more": more})
        assert name in page.context["form"].fields
    assert not OnCallSchedule.objects.exists()


def test_an_outdated_form_shows_both_values(web: Client, user: User) -> None:
    schedule = make(user, layer(user))
    sent = form_of(web.get(f"{path_of(schedule)}/edit"))
    services.update_schedule(Caller(user), schedule.public_id, {"layers": [layer(user), layer(user)]})
    page = web.post(f"{path_of(schedule)}/edit", sent | {"layer-0-count": "2"})
    assert "The settings were changed" in page.content.decode()
    assert len(OnCallSchedule.objects.get().layers) == 2


def test_days_of_23_hours_are_as_wide_as_others(web: Client, user: User) -> None:
    schedule = make(user, layer(user, every={"unit": "day", "count": 1}))
    text = text_of(web, path_of(schedule), at="2026-03-29")
    assert "23 Mar to 29 Mar 2026" in text
    services.update_schedule(
        Caller(user),
        schedule.public_id,
        {"layers": [layer(user, hours=[{"days": [7], "from": "00:00", "to": "12:00"}])]},
    )
    text = text_of(web, path_of(schedule), at="2026-03-29")
    assert "Sun 29 Mar 2026, 00:00 to Sun 29 Mar 2026, 12:00" in text
    # 11 of 23 hours of the seventh day.
    assert 'x="85.7143%" width="6.8323%"' in text


def test_the_zone_of_the_url_and_what_is_no_zone(web: Client, user: User) -> None:
    schedule = make(user, layer(user, starts=NOW))
    assert "Fri 20 Mar 2026, 13:00" in text_of(web, path_of(schedule))
    assert "Fri 20 Mar 2026, 17:45" in text_of(web, path_of(schedule), zone="Asia/Kathmandu", view="month")
    for query in ({"zone": "/etc/passwd"}, {"at": "soon"}, {"view": "year"}, {"from": "1e9", "to": "-3"}):
        assert "Fri 20 Mar 2026, 13:00" in text_of(web, path_of(schedule), **query)
    for at in ("0001-01-01", "9999-12-31", "2026-02-30"):
        for view in ("week", "month"):
            text_of(web, path_of(schedule), at=at, view=view)
    text_of(web, path_of(schedule), **{"from": "9" * 300, "to": "253402300799999"})


def test_an_override_is_added_and_removed_in_the_shown_zone(
    web: Client, user: User, project: Project, ben: User
) -> None:
    schedule = make(user, layer(user), project_id=project.public_id)
    path, query = path_of(schedule), "?zone=Asia/Kathmandu&view=month"
    span = to_ms(NOW), to_ms(NOW + timedelta(hours=2))
    page = web.get(f"{path}{query}&from={span[0]}&to={span[1]}")
    assert 'value="2026-03-20T17:45"' in page.content.decode()
    sent = {"user_id": ben.public_id, "starts_at": "2026-03-20T17:45", "ends_at": "2026-03-20T19:45"}
    added = web.post(f"{path}/overrides{query}", sent)
    assert added["Location"] == f"{path}?view=month&zone=Asia%2FKathmandu"
    expected = {"user_id": ben.public_id, "starts_at": span[0], "ends_at": span[1]}
    assert OnCallSchedule.objects.get().overrides == [expected]
    assert "Override removed." in web.post(f"{path}/overrides/remove", expected, follow=True).content.decode()
    assert OnCallSchedule.objects.get().overrides == []
    wrong = web.post(f"{path}/overrides", sent | {"ends_at": "2026-03-20T17:45"})
    assert wrong.context["override_form"].errors == {"ends_at": ["Must be after the start."]}
    wrong = web.post(f"{path}/overrides", sent | {"user_id": UserFactory().public_id})
    assert "user_id" in wrong.context["override_form"].errors
    web.post(f"{path}/overrides/remove", {"starts_at": "x"})


def test_two_shifts_are_swapped_unless_they_changed(web: Client, user: User, project: Project, ben: User) -> None:
    schedule = make(user, layer(user, ben), project_id=project.public_id)
    path = path_of(schedule)
    choices = web.get(path).context["swap_form"].choices
    first, second = (value for value, _ in choices[:2])
    assert web.post(f"{path}/swap", {"first": first, "second": second}).status_code == 302
    schedule.refresh_from_db()
    assert [one["user_id"] for one in schedule.overrides] == [ben.public_id, user.public_id]
    again = web.post(f"{path}/swap", {"first": first, "second": second})
    assert again.context["swap_form"].errors == {"first": ["This shift has changed. Choose again."]}
    for bad in ("", "1-2", "9" * 15 + "-1-usr_x", "1-1-usr_x"):
        assert web.post(f"{path}/swap", {"first": bad, "second": second}).status_code == 200
    same = [value for value, _ in web.get(path).context["swap_form"].choices]
    answer = web.post(f"{path}/swap", {"first": same[0], "second": same[0]})
    assert answer.context["swap_form"].errors == {"second": ["The two shifts are of one person."]}


def test_the_calendar_link_is_shown_once(web: Client, user: User) -> None:
    schedule = make(user, layer(user))
    page = web.post(f"{path_of(schedule)}/calendar").content.decode()
    assert "/calendar/" in page
    assert "Renew the link" in text_of(web, path_of(schedule))
    assert "/calendar/" not in text_of(web, path_of(schedule)).replace(f"{path_of(schedule)}/calendar", "")


def test_my_shifts_are_mine_alone(web: Client, user: User, project: Project, ben: User) -> None:
    make(user, layer(user, ben), project_id=project.public_id)
    page = web.get("/on-call/shifts")
    assert [own.shift.starts_at for own in page.context["shifts"]][:2] == [NOW, MONDAY + timedelta(days=14, hours=-1)]
    assert "You have no confirmed contact" in page.content.decode()


def test_a_policy_reads_as_sentences(web: Client, user: User, project: Project, ben: User) -> None:
    schedule = make(user, layer(ben), project_id=project.public_id)
    channel = ChannelFactory(owner=user, project=project, name="Ops")
    page = web.get(f"/on-call/policies/new?project={project.public_id}")
    sent = form_of(page) | {
        "name": "Shop",
        "project_id": project.public_id,
        "step-0-target-0": f"user:{user.public_id}",
        "step-0-target-1": f"channel:{channel.public_id}",
        "step-1-target-0": f"schedule:{schedule.public_id}",
        "repeat": "2",
        "acknowledge_timeout_min": "30",
    }
    done = web.post("/on-call/policies/new", sent, follow=True)
    policy = EscalationPolicy.objects.get()
    assert done.redirect_chain == [(path_of(policy), 302)]
    for text in (text_of(web, path_of(policy)), text_of(web, "/on-call/policies")):
        plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
        assert f"At once: {user.email} no confirmed contact, the channel Ops" in plain
        assert "After 10 minutes: whoever is on call in Backend" in plain
        assert "Repeated twice. Starts again if it is not resolved 30 minutes after it was acknowledged." in plain
    stored = policy.steps
    web.post(f"{path_of(policy)}/edit", form_of(web.get(f"{path_of(policy)}/edit")))
    policy.refresh_from_db()
    assert policy.steps == stored
    schedule.delete()
    channel.delete()
    plain = re.sub(r"<[^>]+>", "", text_of(web, path_of(policy)))
    assert "everyone whom it named has left or was deleted" in plain
    assert "This policy reaches no one" in plain


def test_pages_say_what_uses_a_schedule_and_a_policy(client: Client, user: User, project: Project, ben: User) -> None:
    schedule = make(user, layer(ben), project_id=project.public_id)
    client.force_login(user)
    assert "No escalation policy uses this schedule yet" in text_of(client, path_of(schedule))
    assert f"/on-call/policies/new?project={project.public_id}" in text_of(client, path_of(schedule))
    policy = make_policy(user, {"type": "schedule", "id": schedule.public_id}, project_id=project.public_id)
    assert path_of(policy) in text_of(client, path_of(schedule))
    text = text_of(client, path_of(policy))
    assert "No project or monitor uses this policy yet" in text
    assert f"/projects/{project.public_id}#policy-title" in text
    client.force_login(ben)
    assert "#policy-title" not in text_of(client, path_of(policy)), "members do not choose the policy of a project"
    assert "No escalation policy: alert channels are notified" in text_of(client, f"/projects/{project.public_id}")
    Project.objects.filter(pk=project.pk).update(escalation_policy=policy)
    MonitorFactory(owner=user, name="Checkout", project=project, escalation_policy_id=policy.public_id)
    text = re.sub(r"(<[^>]+>|\s)+", " ", text_of(client, path_of(policy)))
    assert "Used by Project Shop all its monitors without another policy Monitor Checkout · Shop" in text


def test_the_list_marks_shifts_that_the_range_cuts(web: Client, user: User, project: Project, ben: User) -> None:
    schedule = make(user, layer(user, ben), project_id=project.public_id)
    text = re.sub(r"<[^>]+>", "", text_of(web, path_of(schedule)))
    # The week of the page begins at midnight, and the first turn at 9:00.
    assert "before Mon 16 Mar 2026, 00:00 Mon 16 Mar 2026, 09:00 No one" in text
    assert "Mon 16 Mar 2026, 09:00 after Mon 23 Mar 2026, 00:00" in text
    assert "until Mon 23 Mar 2026, 09:00." in text
    assert "Times are in Europe/Berlin." in text
    assert "Fill" not in text, "the gap is over"


def test_a_form_below_focuses_its_first_error(web: Client, user: User) -> None:
    schedule = make(user, layer(user))
    page = web.post(f"{path_of(schedule)}/overrides", {"user_id": user.public_id, "starts_at": "", "ends_at": ""})
    fields = re.findall(r"<input[^>]* autofocus[^>]*>", page.content.decode())
    assert len(fields) == 1
    assert 'name="starts_at"' in fields[0]


def test_a_member_sees_no_names_of_the_owners_own(client: Client, user: User, project: Project, ben: User) -> None:
    own = make(user, layer(user), name="Private schedule")
    channel = ChannelFactory(owner=user, name="Private channel")
    targets = [{"type": "schedule", "id": own.public_id}, {"type": "channel", "id": channel.public_id}]
    body = {"name": "P", "project_id": project.public_id, "steps": [{"after_min": 0, "targets": targets}]}
    policy = services.create_policy(Caller(user), body, now=NOW)
    client.force_login(ben)
    for path in (path_of(policy), "/on-call/policies", f"{path_of(policy)}/edit"):
        assert "Private" not in text_of(client, path)
    sent = form_of(client.get(f"{path_of(policy)}/edit")) | {"repeat": "1"}
    assert client.post(f"{path_of(policy)}/edit", sent).status_code == 302
    policy.refresh_from_db()
    assert (policy.repeat, policy.steps[0]["targets"]) == (1, targets)


@pytest.mark.parametrize(
    ("fields", "place", "reason"),
    [
        ({"step-0-target-0": ""}, "step-0-target-0", "Choose at least one"),
        ({"step-0-target-0": "user:usr_x"}, "step-0-target-0", "Select a valid choice."),
        ({"step-0-after": "1441"}, "step-0-after", "less than or equal to 1440"),
        ({"repeat": "10"}, "repeat", "less than or equal to 9"),
        ({"name": " "}, "name", "This field is required."),
    ],
)
def test_errors_of_a_policy_are_beside_their_fields(
    web: Client, user: User, fields: dict[str, Any], place: str, reason: str
) -> None:
    sent = form_of(web.get("/on-call/policies/new")) | {"name": "A", "step-0-target-0": f"user:{user.public_id}"}
    page = web.post("/on-call/policies/new", sent | fields)
    errors = page.context["form"].errors
    assert any(reason in error for error in errors.get(place, ())), errors
    assert not EscalationPolicy.objects.exists()
    more = web.post("/on-call/policies/new", sent | {"more": "steps"})
    assert "step-2-after" in more.context["form"].fields


def test_contacts_are_the_own_channels(web: Client, user: User, project: Project) -> None:
    own, other = ChannelFactory(owner=user, name="Phone"), ChannelFactory(owner=user, project=project, name="Of all")
    page = web.get("/account/contact/")
    assert "You are not reachable" in page.content.decode()
    assert "Of all" not in page.content.decode()
    sent = form_of(page) | {"channel-0": own.public_id, "after-0": "5"}
    assert web.post("/account/contact/", sent | {"channel-1": other.public_id}).status_code == 200
    assert not Contact.objects.exists()
    assert web.post("/account/contact/", sent).status_code == 302
    assert Contact.objects.get().rules == [{"after_min": 5, "channel_id": own.public_id}]
    assert "You are not reachable" not in text_of(web, "/account/contact/")
    AlertChannel.objects.filter(pk=own.pk).update(
        hours=[{"days": [1, 2, 3], "from": "09:00", "to": "17:00"}], time_zone="Asia/Tokyo", delay_min=1
    )
    assert "Phone (only Mon-Wed 09:00-17:00 Asia/Tokyo, after another 1 minute)" in text_of(web, "/account/contact/")
    late = web.post("/account/contact/", sent | {"form_etag": "x", "after-0": "61"})
    assert "after-0" in late.context["form"].errors


def test_other_tenants_find_nothing(client: Client, user: User, project: Project) -> None:
    schedule = make(user, layer(user))
    body = {"name": "P", "steps": [{"after_min": 0, "targets": [{"type": "user", "id": user.public_id}]}]}
    policy = services.create_policy(Caller(user), body, now=NOW)
    client.force_login(UserFactory())
    for row, pages in ((schedule, ("", "/edit")), (policy, ("", "/edit"))):
        for page in pages:
            assert client.get(f"{path_of(row)}{page}").status_code == 404
        assert client.post(f"{path_of(row)}/delete").status_code == 404
    for action in ("overrides", "overrides/remove", "swap", "calendar"):
        assert client.post(f"{path_of(schedule)}/{action}").status_code == 404
    assert user.email not in text_of(client, "/on-call")


def test_viewers_read(client: Client, user: User, project: Project) -> None:
    viewer = UserFactory()
    MembershipFactory(project=project, user=viewer, role="viewer")
    schedule = make(user, layer(user), project_id=project.public_id)
    targets = [{"type": "schedule", "id": schedule.public_id}]
    body = {"name": "P", "project_id": project.public_id, "steps": [{"after_min": 0, "targets": targets}]}
    policy = services.create_policy(Caller(user), body, now=NOW)
    client.force_login(viewer)
    for row in (schedule, policy):
        assert "/edit" not in text_of(client, path_of(row))
        assert client.get(f"{path_of(row)}/edit").status_code == 403
    for action in ("overrides", "overrides/remove", "swap", "calendar"):
        assert client.post(f"{path_of(schedule)}/{action}").status_code == 403
        assert f"/{action}" not in text_of(client, path_of(schedule))


def test_queries_do_not_grow(web: Client, user: User, project: Project, ben: User) -> None:
    def add(count: int) -> None:
        for _ in range(count):
            schedule = make(user, layer(user, ben), project_id=project.public_id)
            channel = ChannelFactory(owner=user, project=project)
            targets = [
                {"type": "user", "id": ben.public_id},
                {"type": "schedule", "id": schedule.public_id},
                {"type": "channel", "id": channel.public_id},
            ]
            steps = [{"after_min": 1, "targets": targets}] * 3
            body = {"name": "P", "project_id": project.public_id, "steps": steps}
            services.create_policy(Caller(user), body, now=NOW)

    def counts() -> dict[str, int]:
        found = {}
        schedule, policy = OnCallSchedule.objects.order_by("pk")[0], EscalationPolicy.objects.order_by("pk")[0]
        for path in ("/on-call", "/on-call/policies", "/on-call/shifts", path_of(schedule), path_of(policy)):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                web.get(path)
            found[path] = len(captured)
        with CaptureQueriesContext(connection) as captured:
            web.get(f"{path_of(policy)}/edit")
        found["edit"] = len(captured)
        return found

    add(1)
    web.get("/on-call")
    before = counts()
    add(5)
    assert counts() == before
    assert max(before.values()) <= 20, before


def make_policy(user: User, *targets: dict[str, str], after: int = 0, **given: Any) -> EscalationPolicy:
    """Create a policy with a step for each target."""
    steps = [{"after_min": number * 10 + after, "targets": [target]} for number, target in enumerate(targets)]
    return services.create_policy(Caller(user), {"name": "Outages", "steps": steps} | given, now=NOW)


def test_the_simulator_says_who_would_be_notified(web: Client, user: User, project: Project, ben: User) -> None:
    schedule = make(user, layer(ben, user), project_id=project.public_id)
    target = {"type": "schedule", "id": schedule.public_id}
    policy = make_policy(user, {"type": "user", "id": user.public_id}, target, project_id=project.public_id)
    assert not web.get(path_of(policy)).context["lines"]
    page = web.get(path_of(policy), {"at": "2026-03-22T03:00", "zone": "Europe/Berlin"})
    lines = [(line.at, line.who, line.how, line.problem) for line in page.context["lines"]]
    assert lines == [
        ("Sun 22 Mar 2026, 03:00", "no one", "", f"{user.email} has no confirmed channel"),
        # The step before reached no one.
        ("Sun 22 Mar 2026, 03:00", ben.email, "E-mail", ""),
    ]
    for query in ({"at": "soon", "zone": "UTC"}, {"at": "2026-03-22T03:00"}, {"at": "9999-12-31T23:59", "zone": "UTC"}):
        assert web.get(path_of(policy), query).context["form"].errors
    for at in ("1971-01-01T00:00", "9998-12-31T23:59"):
        assert web.get(path_of(policy), {"at": at, "zone": "UTC"}).status_code == 200


def test_a_project_and_a_monitor_choose_a_policy(client: Client, user: User, project: Project, ben: User) -> None:
    policy = make_policy(user, {"type": "user", "id": ben.public_id}, project_id=project.public_id)
    own = make_policy(user, {"type": "user", "id": user.public_id}, name="Own of the owner")
    client.force_login(user)
    path = f"/projects/{project.public_id}"
    form = client.get(path).context["policy_form"]
    sent = {"escalation_policy_id": policy.public_id, "form_etag": form["form_etag"].value()}
    assert client.post(f"{path}/policy", sent).status_code == 302
    project.refresh_from_db()
    assert project.escalation_policy == policy
    outdated = client.post(f"{path}/policy", sent | {"escalation_policy_id": own.public_id})
    assert "The settings were changed" in outdated.content.decode()
    assert (
        "escalation_policy_id"
        in client.post(f"{path}/policy", {"escalation_policy_id": "esc_x"}).context["policy_form"].errors
    )
    given = {"type": "heartbeat", "name": "Job", "project_id": project.public_id}
    monitor = create_monitor(Caller(user), given | {"escalation_policy_id": own.public_id}, now=NOW)
    edit = f"/monitors/{monitor.public_id}/edit"
    client.force_login(ben)
    assert "Own of the owner" not in text_of(client, edit)
    assert client.get(edit).context["form"]["escalation_policy_id"].value() == own.public_id
    assert client.post(edit, typed(**given | {"name": "Backup"})).status_code == 302
    monitor.refresh_from_db()
    assert (monitor.name, monitor.escalation_policy) == ("Backup", own)
    client.post(edit, typed(**given, escalation_policy_id=policy.public_id))
    monitor.refresh_from_db()
    assert monitor.escalation_policy == policy
    assert client.post(f"{path}/policy", {"escalation_policy_id": ""}).status_code == 403


def test_an_incident_says_where_its_escalation_stands(web: Client, user: User, project: Project, ben: User) -> None:
    target = {"type": "user", "id": ben.public_id}
    policy = make_policy(user, target, target, after=5, project_id=project.public_id, acknowledge_timeout_min=30)
    monitor = MonitorFactory(owner=user, project=project)
    incident = IncidentFactory(monitor=monitor, started_at=NOW)
    row = Escalation.objects.create(incident=incident, policy=policy, step=0, next_at=NOW + timedelta(minutes=5))
    path = f"/incidents/{incident.public_id}"
    seen = web.get(path).context["shown"].seen
    text = re.sub(r"<[^>]+>", "", text_of(web, path))
    assert "Next: step 1 at 20 Mar 2026, 12:05 UTC, ben@shop.example" in text
    assert "The next step ran." in web.post(f"{path}/escalate", follow=True).content.decode()
    row.refresh_from_db()
    assert (row.step, row.next_at) == (1, NOW + timedelta(minutes=15))
    live = web.get(f"{path}/live", {"seen": seen}, headers={"HX-Request": "true"})
    assert "Next: step 2" in live.content.decode()
    assert "Step 1 of “Outages”" in live.content.decode()
    web.post(f"{path}/acknowledge")
    text = re.sub(r"<[^>]+>", "", text_of(web, path))
    assert "Begins again at 20 Mar 2026, 12:30 UTC if it is not resolved by then" in text
    assert f"by {user.email}" in text
    assert "Escalate now" not in text
    assert "left" in web.post(f"{path}/escalate", follow=True).content.decode()
    assert "Acknowledgement taken back." in web.post(f"{path}/unacknowledge", follow=True).content.decode()
    incident.refresh_from_db()
    assert incident.acknowledged_at is None
    Escalation.objects.filter(pk=row.pk).update(state="finished", next_at=None)
    assert "All steps have run, and no one has acknowledged it" in text_of(web, path)
    with CaptureQueriesContext(connection) as captured:
        web.get(path)
    assert len(captured) <= 20


def test_an_incident_names_who_is_on_call_for_the_next_step(
    web: Client, user: User, project: Project, ben: User
) -> None:
    schedule = make(user, layer(user, ben), project_id=project.public_id)
    policy = make_policy(user, {"type": "schedule", "id": schedule.public_id}, project_id=project.public_id)
    incident = IncidentFactory(monitor=MonitorFactory(owner=user, project=project), started_at=NOW)
    row = Escalation.objects.create(incident=incident, policy=policy, step=0, next_at=NOW + timedelta(minutes=5))
    path = f"/incidents/{incident.public_id}"
    assert f"Not reached: {user.email} has no confirmed channel" in text_of(web, path)
    Escalation.objects.filter(pk=row.pk).update(next_at=MONDAY + timedelta(days=8))
    with CaptureQueriesContext(connection) as captured:
        assert f"On call then: {ben.email}" in text_of(web, path)
    assert len(captured) <= 27


def test_the_page_of_a_monitor_names_its_policy(client: Client, user: User, project: Project, ben: User) -> None:
    ChannelFactory(owner=user, project=project, name="Slack", topics=["down", "slow"])
    monitor = MonitorFactory(owner=user, project=project)
    path = f"/monitors/{monitor.public_id}"

    def notifications() -> str:
        return re.sub(r"<[^>]+>", "", text_of(client, path)).partition("Notifications ")[2]

    client.force_login(ben)
    with CaptureQueriesContext(connection) as before:
        assert "down, slow" in notifications()
    own = make_policy(user, {"type": "user", "id": user.public_id}, name="Secret")
    Project.objects.filter(pk=project.pk).update(escalation_policy=own)
    assert notifications().startswith("Outages and recoveries go to an escalation policy of the owner, as ")
    policy = make_policy(user, {"type": "user", "id": ben.public_id}, project_id=project.public_id)
    type(monitor).objects.filter(pk=monitor.pk).update(escalation_policy=policy)
    with CaptureQueriesContext(connection) as captured:
        shown = notifications()
    assert shown.startswith("Outages and recoveries go to the escalation policy Outages. Other alerts")
    assert len(captured) <= len(before)
    assert "down, slow" not in shown


def test_an_incident_hides_a_policy_of_the_owner(client: Client, user: User, project: Project, ben: User) -> None:
    policy = make_policy(user, {"type": "user", "id": user.public_id}, name="Secret")
    monitor = MonitorFactory(owner=user, project=project)
    incident = IncidentFactory(monitor=monitor, started_at=NOW)
    Escalation.objects.create(incident=incident, policy=policy, step=0, next_at=NOW + timedelta(minutes=5))
    client.force_login(ben)
    text = re.sub(r"<[^>]+>", "", text_of(client, f"/incidents/{incident.public_id}"))
    assert "Next: step 1 at 20 Mar 2026, 12:05 UTC" in text
    assert "Secret" not in text
