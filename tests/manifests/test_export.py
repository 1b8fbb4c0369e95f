"""Applying an export changes nothing in its account, creates the same elsewhere, and contains no secrets."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.services import delete_account
from alerts.models import AlertChannel
from core.clock import utc_now
from core.errors import ValidationFailed
from incidents.models import MaintenanceWindow
from incidents.windows import create_window
from locations.models import Location
from manifests.exporting import Export
from monitors.configuration import build, config_columns
from monitors.models import Monitor
from projects.access import Caller
from statuspages.models import PageGroup, PageMonitor
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.locations import shared
from tests.manifests.helpers import apply_text, exported, told
from tests.manifests.rich import SECRET, make_rich
from tests.statuspages.making import make_page

pytestmark = pytest.mark.django_db

VALUES = {
    "PK_MONITOR_CHECKOUT_AUTHORIZATION": f"Bearer {SECRET}",
    "PK_MONITOR_CHECKOUT_X_EMPTY": "",
    "PK_CHANNEL_ON_CALL_URL": "https://hooks.example.com/T0/secret-path",
    "PK_CHANNEL_ON_CALL_SECRET": "s" * 20,
    "PK_CHANNEL_TEAM_ADDRESS": "team@example.org",
    "PK_CHANNEL_CHAT_APPRISE_URL": "ntfys://ntfy.example.com/topic",
    "PK_STATUS_PAGE_SHOP_PASSWORD": "letters and 8",
}


@pytest.mark.parametrize("with_ids", [False, True])
def test_applying_an_export_changes_nothing(with_ids: bool) -> None:
    user = make_rich()
    text = exported(user, with_ids=with_ids)
    with CaptureQueriesContext(connection) as queries:
        report = apply_text(user, text, prune=True, environment=VALUES)
    assert (report.changes, report.unmentioned) == ([], 0)
    written = [query["sql"] for query in queries if not query["sql"].startswith(("SELECT", "SAVEPOINT", "RELEASE"))]
    assert written == []
    assert exported(user, with_ids=with_ids) == text


def test_locations_that_are_not_the_preselected_ones_are_in_it() -> None:
    user = UserFactory()
    shared()
    MonitorFactory(owner=user, name="Old", locations=["default"])
    MonitorFactory(owner=user, name="New", locations=["default", "fra"])
    text = exported(user)
    assert text.count("locations:") == 1
    assert apply_text(user, text).changes == []
    Location.objects.update(preselected=True)
    text = exported(user)
    assert text.count("locations:") == 1
    assert apply_text(user, text).changes == []


def test_an_export_makes_the_same_elsewhere() -> None:
    user = make_rich()
    text = exported(user)
    password = "PK_STATUS_PAGE_SHOP_PASSWORD"
    delete_account(user)
    other = UserFactory(email=user.email)
    report = apply_text(other, text, environment=VALUES)
    assert report.created == 2 + 7 + 3 + 2 + 2 + 1 + 2  # its own address is a channel already
    assert exported(other) == text
    assert apply_text(other, text, environment=VALUES).changes == []
    changed = apply_text(other, text, environment=VALUES | {password: "another password"}, dry_run=True)
    assert told(changed) == ["~ status page 'shop'", "    password: (secret), changed"]
    stored = Monitor.objects.get(name="Checkout", project__name="Shop")
    assert stored.full_config["request_headers"][0].value == f"Bearer {SECRET}"
    assert AlertChannel.objects.get(name="On call").config["url"] == VALUES["PK_CHANNEL_ON_CALL_URL"]


def test_no_secret_is_in_it() -> None:
    text = exported(make_rich())
    for value in filter(None, VALUES.values()):
        assert value not in text
    assert SECRET not in text
    assert "team@" not in text


def test_schedules_of_jobs_are_written_out() -> None:
    text = exported(make_rich())
    lines = [
        *("schedule: '*/30 3 1,15 * MON-FRI'", "timezone: Europe/Berlin", "min_duration_sec: 60"),
        *(
            "max_duration_sec: 3600",
            "max_pings_per_hour: 4",
            "schedule: 0 2 * * *",
            "timezone: America/New_York",
            "missed: once",
        ),
    ]
    assert [line for line in lines if f"    {line}\n" not in text] == []


def test_settings_that_are_no_secrets_are_written_out() -> None:
    user = UserFactory()
    ChannelFactory(owner=user, name="Phone", kind="ntfy", topic="shop-alerts", priority="high")
    ChannelFactory(owner=user, name="Pager", kind="pagerduty", integration_key="k" * 32)
    text = exported(user)
    assert "priority: high" in text
    assert "topic: ${keep:PK_CHANNEL_PHONE_TOPIC}" in text
    assert not {"server", "region", "access_token"} & set(text.replace(":", " ").split()), "defaults"
    assert apply_text(user, text).changes == []
    same = text.replace("priority: high", "priority: high\n    server: https://NTFY.sh/")
    assert apply_text(user, same).changes == []
    changed = text.replace("priority: high", "priority: max")
    assert told(apply_text(user, changed))[0] == "~ alert channel 'Phone'"
    assert AlertChannel.objects.get(name="Phone").config == {
        "topic": "shop-alerts",
        "server": "https://ntfy.sh",
        "priority": "max",
    }


def test_it_does_not_depend_on_the_order_of_creation() -> None:
    user = UserFactory()
    names = ["b", "A", "ä", "a"]
    for name in names:
        MonitorFactory(owner=user, name=name)
    assert [line for line in exported(user).splitlines() if "- name" in line][:4] == [
        f"  - name: {name}" for name in sorted(names)
    ]


def test_one_project() -> None:
    user = make_rich()
    shop = next(one for one in Monitor.objects.select_related("project") if one.name == "Paused").project
    assert shop is not None
    text = exported(user, project_id=shop.public_id)
    assert "ungrouped" not in text
    assert text.count("Checkout") == 2  # it, and the channel's choice of it
    assert "Backup" not in text
    report = apply_text(user, text, prune=True)
    assert (report.changes, report.unmentioned) == ([], 0)


def test_a_project_of_another_account_is_not_found() -> None:
    project = ProjectFactory()
    with pytest.raises(ValidationFailed):
        exported(UserFactory(), project_id=project.public_id)


def test_names_that_two_have_come_with_ids() -> None:
    user = UserFactory()
    projects = [ProjectFactory(owner=user, name="Same") for _ in range(2)]
    for project in projects:
        for _ in range(2):
            MonitorFactory(owner=user, name="Twin", project=project)
        twin = Monitor.objects.filter(project=project).latest("pk").public_id
        ChannelFactory(owner=user, name="C", project=project, monitors="chosen", monitor_ids=[twin])
    text = exported(user)
    assert text.count("id: mon_") == 4 + 2
    assert apply_text(user, text, prune=True).changes == []


def test_what_lost_what_it_was_for_is_kept_as_it_is() -> None:
    user = UserFactory()
    project, monitor = ProjectFactory(owner=user), MonitorFactory(owner=user)
    ChannelFactory(owner=user, name="P", monitors="project", scope_project_id=project.public_id)
    ChannelFactory(owner=user, name="M", monitors="chosen", monitor_ids=[monitor.public_id])
    project.delete()
    monitor.delete()
    assert apply_text(user, exported(user), prune=True).changes == []


def test_a_window_that_is_over_is_left_out_and_stays() -> None:
    user, now = UserFactory(), utc_now()
    given = {"name": "Once", "starts_at": now, "ends_at": now + timedelta(hours=1), "monitors": "all"}
    create_window(Caller(user), given, now=now)
    text = exported(user)
    assert "Once" in text
    MaintenanceWindow.objects.update(
        starts_at=now - timedelta(hours=2),
        ends_at=now - timedelta(hours=1),
        current_starts_at=None,
        current_ends_at=None,
    )
    text = exported(user)
    assert "Once" not in text
    assert apply_text(user, text, prune=True).changes == []
    assert MaintenanceWindow.objects.count() == 1


def test_few_objects_are_in_memory_at_a_time() -> None:
    user = UserFactory()
    url, body = "http://127.0.0.1:9/", "\U0001f600" + '"' * 8_000
    columns = config_columns(build({"url": url, "method": "POST", "interval_sec": 60, "request_body": body}))
    monitors = Monitor.objects.bulk_create(
        Monitor(owner=user, created_at=utc_now(), **columns | {"name": f"M {number}"}) for number in range(200)
    )
    for number in range(10):
        page = make_page(user, [], slug=f"page-{number}")
        group = PageGroup.objects.create(page=page, name="")
        PageMonitor.objects.bulk_create(
            PageMonitor(page=page, group=group, monitor=one, name="\U0001f600" * 200) for one in monitors
        )
    exported(user)  # imports and caches
    tracemalloc.start()
    try:
        found = Export(Caller(user), project_id=None, with_ids=False, now=utc_now())
        sizes = {name: sum(len(str(part)) for part in parts) for name, parts in found.sections()}
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert sizes["monitors"] > 200 * 8_000
    assert sizes["status_pages"] > 10 * 200 * 200


def test_as_many_queries_for_many() -> None:
    user = UserFactory()
    MonitorFactory(owner=user)
    with CaptureQueriesContext(connection) as few:
        exported(user)
    for number in range(5):
        MonitorFactory(owner=user, name=f"M {number}", request_headers=[{"name": "X-Key", "value": "v"}])
        ChannelFactory(owner=user, name=f"C {number}")
    with CaptureQueriesContext(connection) as many:
        exported(user)
    assert len(many) == len(few)
