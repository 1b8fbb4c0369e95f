"""What one account costs does not depend on the monitors of others. `benchmarks/growth.py` measures it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus

import pytest
from django.db import connection
from django.test import Client

from accounts.services import delete_account
from incidents.models import IncidentEvent
from incidents.services import acknowledge
from incidents.windows import create_window, note_maintenance
from monitors.models import MaintenanceSpan, Monitor
from monitors.selectors import list_monitors
from projects.access import Caller
from tests.factories import IncidentFactory, MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON

OTHERS = 5_000

pytestmark = pytest.mark.django_db


def copied(row: object, table: str, columns: str, count: int = OTHERS) -> None:
    """Add copies of a row before it, with other ids, and learn the statistics of the table."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (id, public_id, {columns})"
            f" SELECT -number, 'copy_' || number, {columns} FROM {table}, generate_series(1, {count}) AS number"
            " WHERE id = %s",
            [row.pk],  # type: ignore[attr-defined]
        )
        cursor.execute(f"ANALYZE {table}")


def columns_of(model: type[Monitor | IncidentEvent]) -> str:
    return ", ".join(str(each.column) for each in model._meta.concrete_fields if each.name not in {"id", "public_id"})


def rows_read(table: str, action: Callable[[], object]) -> int:
    """Return how many rows of the table the action reads, in this transaction."""

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = %s",
                [table],
            )
            return int(cursor.fetchone()[0])

    before = count()
    action()
    return count() - before


@pytest.fixture
def _others() -> None:
    copied(MonitorFactory(name="Of others"), "monitors_monitor", columns_of(Monitor))


@pytest.mark.usefixtures("_others")
def test_a_list_reads_only_the_monitors_of_its_caller() -> None:
    ada = UserFactory()
    project = ProjectFactory(owner=ada)
    MonitorFactory(owner=ada), MonitorFactory(owner=ada, project=project)
    member = UserFactory()
    MembershipFactory(project=project, user=member)
    for user, count in ((ada, 2), (member, 1)):
        read = rows_read("monitors_monitor", lambda user=user: list(list_monitors(Caller(user))[:100]))  # type: ignore[misc]
        assert (list_monitors(Caller(user)).count(), read <= 10) == (count, True), read


@pytest.mark.usefixtures("_others")
def test_the_overview_reads_only_the_monitors_of_its_caller(client: Client) -> None:
    ada = UserFactory()
    MonitorFactory(owner=ada)
    client.force_login(ada, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/monitors").status_code == HTTPStatus.OK
    assert rows_read("monitors_monitor", lambda: client.get("/monitors")) <= 50


@pytest.mark.usefixtures("_others")
def test_maintenance_reads_only_the_monitors_near_active_windows() -> None:
    assert rows_read("monitors_monitor", lambda: note_maintenance(NOON)) == 0
    ada = UserFactory()
    covered = [MonitorFactory(owner=ada, tags=tags) for tags in ([], ["web"])]
    given = {"name": "Move", "starts_at": NOON, "ends_at": NOON + timedelta(hours=1)}
    for choice in (
        {"monitors": "chosen", "monitor_ids": [covered[0].public_id]},
        {"monitors": "chosen", "monitor_tags": ["web"]},
    ):
        create_window(Caller(ada), given | choice, now=NOON)
    later = NOON + timedelta(minutes=1)
    assert rows_read("monitors_monitor", lambda: note_maintenance(later)) <= 100
    assert set(MaintenanceSpan.objects.values_list("monitor", flat=True)) == {each.pk for each in covered}


def test_a_deletion_reads_only_the_timelines_that_name_the_person() -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    member = UserFactory()
    MembershipFactory(project=project, user=member)
    incident = IncidentFactory(monitor__owner=owner, monitor__project=project)
    event = IncidentEvent.objects.create(incident=incident, type="confirmed", text="It is down.", at=NOON, data={})
    copied(event, "incidents_incidentevent", columns_of(IncidentEvent))
    acknowledge(Caller(member), incident.public_id, now=NOON)
    assert rows_read("incidents_incidentevent", lambda: delete_account(member)) <= 20
    assert IncidentEvent.objects.get(type="acknowledged").text == "Acknowledged by a deleted account."
