"""The number of queries of a list is the same for one row and for many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.models import AlertChannel
from checks.results.models import CheckResult
from core.clock import utc_now
from incidents.models import Incident
from incidents.windows import create_window
from locations.models import Location
from monitors.models import Dependency, DnsChange, Monitor, MonitorState
from oncall.models import OnCallSchedule
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.models import Project
from projects.services import update_project
from statuspages.models import StatusPage
from statuspages.services import create_note
from tests.api.client import Api
from tests.api.test_openapi import OPERATIONS
from tests.factories import (
    ChannelFactory,
    CheckResultFactory,
    ConnectorFactory,
    DeliveryFactory,
    MembershipFactory,
    MonitorFactory,
    ProjectFactory,
    SchedulerGapFactory,
    StatusChangeFactory,
    UserFactory,
)
from tests.helpers import record_ping
from tests.locations import add_agent
from tests.statuspages.making import make_page, make_subscriber

Fill = Callable[[User, Project, int], None]


def add_monitors(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        monitor = MonitorFactory(owner=user, up=True, project=project, tags=["web"], tag_keys=["web"])
        StatusChangeFactory(monitor=monitor, at=utc_now(), before="up", after="down")
        parent = Monitor.objects.filter(project=project).earliest("pk")
        Dependency.objects.create(child=monitor, parent=parent, position=0)


def add_checks(user: User, project: Project, count: int) -> None:
    monitor = Monitor.objects.filter(name="first").first() or MonitorFactory(owner=user, name="first")
    there = CheckResult.objects.count()
    for claim in range(there + 1, there + count + 1):
        CheckResultFactory(monitor=monitor, claim=claim, checked_at=utc_now(), verdict="up")
        StatusChangeFactory(monitor=monitor, at=utc_now(), before="up", after="down")
        SchedulerGapFactory(started_at=utc_now() - timedelta(seconds=1), ended_at=utc_now())


def add_dns_changes(user: User, project: Project, count: int) -> None:
    monitor = Monitor.objects.filter(name="first").first() or MonitorFactory(owner=user, name="first")
    counts = {"added_count": 1, "removed_count": 0}
    for _ in range(count):
        DnsChange.objects.create(monitor=monitor, at=utc_now(), added=["192.0.2.1"], removed=[], **counts)


def add_pings(user: User, project: Project, count: int) -> None:
    found = Monitor.objects.filter(name="first").first()
    monitor = found or MonitorFactory(owner=user, name="first", heartbeat=True)
    for _ in range(count):
        assert record_ping(monitor.public_id, now=utc_now())


def add_projects(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        add_monitors(user, ProjectFactory(owner=user), 1)


def add_tokens(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        Api.with_token(user, project)
        Api.with_token(user, ProjectFactory(owner=user))


def add_members(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        MembershipFactory(project=project, user=UserFactory(), role="member", created_at=utc_now())


def add_log(user: User, project: Project, count: int) -> None:
    for number in range(count):
        update_project(Caller(user), project.public_id, {"name": f"Shop {number}"})


def add_channels(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        monitor = MonitorFactory(owner=user, project=project)
        ids = [monitor.public_id]
        ChannelFactory(owner=user, project=project, monitors="chosen", monitor_ids=ids)
        ChannelFactory(owner=user, monitors="project", scope_project_id=ProjectFactory(owner=user).public_id)


def add_deliveries(user: User, project: Project, count: int) -> None:
    channel = AlertChannel.objects.filter(name="first").first() or ChannelFactory(owner=user, name="first")
    for _ in range(count):
        DeliveryFactory(channel=channel, items=3)


def add_incidents(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        monitor = MonitorFactory(owner=user, project=project)
        of_a_monitor = Incident(monitor=monitor, monitor_public_id=monitor.public_id)
        for incident in (of_a_monitor, Incident(project=project)):
            incident.owner, incident.name, incident.started_at = user, "Late", utc_now()
            incident.save()


def add_pages(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        make_page(user, [MonitorFactory(owner=user), MonitorFactory(owner=user)])


def add_notes(user: User, project: Project, count: int) -> None:
    page = StatusPage.objects.first() or make_page(user, [])
    for _ in range(count):
        note = {"title": "Late", "status": "investigating", "text": "Orders are late."}
        create_note(Caller(user), page.public_id, note, now=utc_now())


def add_subscribers(user: User, project: Project, count: int) -> None:
    page = StatusPage.objects.first() or make_page(user, [])
    for _ in range(count):
        make_subscriber(page)


def add_windows(user: User, project: Project, count: int) -> None:
    caller, now = Caller(user), utc_now()
    for _ in range(count):
        given = {"name": "Update", "starts_at": now, "ends_at": now + timedelta(hours=1)}
        create_window(caller, given | {"monitors": "all", "project_id": project.public_id}, now=now)
        chosen = {"monitors": "chosen", "monitor_ids": [MonitorFactory(owner=user).public_id]}
        create_window(caller, given | chosen, now=now)


def add_schedules(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        layer = {"user_ids": [user.public_id], "every": {"unit": "day", "count": 1}, "starts_at": 0}
        given = {"name": "Backend", "project_id": project.public_id, "layers": [layer]}
        schedule = create_schedule(Caller(user), given, now=utc_now())
        channel, friend = ChannelFactory(owner=user, project=project), UserFactory()
        MembershipFactory(project=project, user=friend, role="member", created_at=utc_now())
        targets = [("schedule", schedule.public_id), ("user", friend.public_id), ("channel", channel.public_id)]
        step = {"after_min": 0, "targets": [{"type": kind, "id": public_id} for kind, public_id in targets]}
        create_policy(Caller(user), given | {"steps": [step]}, now=utc_now())


def add_locations(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        for place in (None, project):
            location = Location.objects.create(owner=user, project=place, name="Office", created_at=utc_now())
            add_agent(location)
            add_agent(location)


def add_agents(user: User, project: Project, count: int) -> None:
    location = Location.objects.filter(owner=user).first()
    if location is None:
        location = Location.objects.create(owner=user, name="Office", created_at=utc_now())
    for _ in range(count):
        add_agent(location)


def add_connectors(user: User, project: Project, count: int) -> None:
    """There is no more than one of each provider."""
    if count == 1:
        ConnectorFactory(user=user)
    else:
        ConnectorFactory(user=user, provider="netlify")


def add_sessions(user: User, project: Project, count: int) -> None:
    for _ in range(count):
        Api.signed_in(user)


# Operation: (path, maximum of queries, function that creates rows). One query is for the credential.
LISTS: dict[str, tuple[str, int, Fill]] = {
    "list_monitors": ("/v1/monitors", 7, add_monitors),
    "list_tags": ("/v1/tags", 2, add_monitors),
    "list_monitor_checks": ("/v1/monitors/{monitor}/checks", 5, add_checks),
    "list_monitor_dns_changes": ("/v1/monitors/{monitor}/dns-changes", 5, add_dns_changes),
    "list_monitor_pings": ("/v1/monitors/{monitor}/pings", 3, add_pings),
    "list_monitor_uptime": ("/v1/monitors/{monitor}/uptime?days=90", 7, add_checks),
    "list_alert_channels": ("/v1/alert-channels", 3, add_channels),
    "list_alert_channel_deliveries": ("/v1/alert-channels/{channel}/deliveries", 5, add_deliveries),
    "list_incidents": ("/v1/incidents", 2, add_incidents),
    "list_maintenance_windows": ("/v1/maintenance-windows", 3, add_windows),
    "list_on_call_schedules": ("/v1/on-call-schedules", 2, add_schedules),
    "list_shifts": ("/v1/on-call-schedules/{schedule}/shifts", 3, add_schedules),
    "list_escalation_policies": ("/v1/escalation-policies", 8, add_schedules),
    "list_status_pages": ("/v1/status-pages", 5, add_pages),
    "list_status_page_notes": ("/v1/status-pages/{page}/notes", 6, add_notes),
    "list_status_page_subscribers": ("/v1/status-pages/{page}/subscribers", 5, add_subscribers),
    "list_connectors": ("/v1/connectors", 2, add_connectors),
    "list_locations": ("/v1/locations", 3, add_locations),
    "list_agents": ("/v1/locations/{location}/agents", 3, add_agents),
    "list_projects": ("/v1/projects", 2, add_projects),
    "list_account_audit_log": ("/v1/account/audit-log", 2, add_log),
    "list_project_audit_log": ("/v1/projects/{project}/audit-log", 3, add_log),
    "list_members": ("/v1/projects/{project}/members", 4, add_members),
    "list_sessions": ("/v1/sessions", 2, add_sessions),
    "list_tokens": ("/v1/tokens", 2, add_tokens),
}


def test_every_list_is_counted() -> None:
    lists = {
        name
        for name, operation in OPERATIONS.items()
        if operation["method"] == "get"
        and operation["operationId"] != "get_metrics"
        and operation["responses"]["200"]["content"]["application/json"]["schema"].get("type") == "array"
    }
    assert lists == set(LISTS)


@pytest.mark.parametrize("name", LISTS)
def test_as_many_queries_for_thirty_rows_as_for_one(
    api: Api, user: User, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.services.MAX_CHANNELS", 100)
    monkeypatch.setattr("statuspages.services.MAX_PAGES", 100)
    template, most, fill = LISTS[name]
    project = ProjectFactory(owner=user)

    def queries() -> int:
        monitor = Monitor.objects.filter(name="first").first()
        channel = AlertChannel.objects.filter(name="first").first()
        page, schedule = StatusPage.objects.first(), OnCallSchedule.objects.first()
        location = Location.objects.filter(owner=user).first()
        path = template.format(
            page=page.public_id if page else "",
            location=location.public_id if location else "",
            project=project.public_id,
            monitor=monitor.public_id if monitor else "",
            channel=channel.public_id if channel else "",
            schedule=schedule.public_id if schedule else "",
        )
        with CaptureQueriesContext(connection) as captured:
            answer = api.get(path)
        assert answer.status == 200
        assert answer.json
        return len(captured)

    fill(user, project, 1)
    queries()  # notes the session's use
    one = queries()
    fill(user, project, 29)
    assert queries() == one <= most


def test_a_thousand_monitors_take_ten_queries_at_most(api: Api, user: User) -> None:
    model = MonitorFactory(owner=user, up=True)
    fields = {
        f.name: getattr(model, f.name) for f in Monitor._meta.concrete_fields if f.name not in ("id", "public_id")
    }
    monitors = Monitor.objects.bulk_create(Monitor(**fields) for _ in range(999))
    MonitorState.objects.bulk_create(MonitorState(monitor=monitor, status="up") for monitor in monitors)
    api.get("/v1/account")  # notes the session's use
    with CaptureQueriesContext(connection) as captured:
        answer = api.get("/v1/monitors")
    assert len(answer.json) == 1000
    assert len(captured) <= 10
