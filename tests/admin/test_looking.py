"""The admin's pages of incidents and alerts: whole, without a query per row, and without secrets."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import User
from accounts.services import create_account
from alerts.models import AlertChannel, Delivery
from connectors.models import Connector, Import
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from tests.makers import (
    NOON,
    PASSWORD,
    make_channel,
    make_connector,
    make_delivery,
    make_monitor,
    make_plan,
    make_project,
    make_user,
    minutes,
)

SECRET = "a secret that nobody sees"
PAGES = ("incidents_incident", "incidents_maintenancewindow", "alerts_alertchannel", "alerts_delivery")


@pytest.fixture
def staff(db: None) -> Client:
    client = Client()
    client.force_login(
        create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    )
    return client


def fill(count: int) -> None:
    for _ in range(count):
        owner = make_user()
        project = make_project(owner)
        monitor = make_monitor(owner, project_id=project.public_id)
        incident = Incident.objects.create(
            owner=owner, project=project, monitor=monitor, name="Shop", started_at=NOON
        )
        for type_ in ("first_failure", "confirmed"):
            IncidentEvent.objects.create(incident=incident, type=type_, at=NOON, text=f"It is {type_}.")
        window = MaintenanceWindow.objects.create(
            owner=owner,
            project=project,
            created_at=NOON,
            name="Update",
            starts_at=NOON,
            ends_at=NOON + minutes(5),
            all_monitors=False,
        )
        window.monitors.add(monitor)
        channel = make_channel(
            owner,
            kind="webhook",
            url=f"https://hooks.example.com/{SECRET.replace(' ', '-')}",
            secret=SECRET,
            project_id=project.public_id,
            monitors="chosen",
            monitor_ids=[monitor.public_id],
        )
        delivery = make_delivery(channel, state=Delivery.State.DEAD, items=2)
        delivery.items.update(incident=incident)


def shown(client: Client, page: str, *args: Any, query: str = "") -> tuple[str, int]:
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(reverse(f"admin:{page}", args=args) + query)
    assert answer.status_code == 200
    return answer.content.decode(), len(captured)


@pytest.mark.parametrize("page", PAGES)
def test_lists_take_as_many_queries_for_ten_rows_as_for_one(staff: Client, page: str) -> None:
    fill(1)
    shown(staff, f"{page}_changelist")  # what Django keeps from the first page on
    _, one = shown(staff, f"{page}_changelist")
    fill(9)
    html, ten = shown(staff, f"{page}_changelist")
    assert ten == one
    assert html.count("field-public_id") >= 10


@pytest.mark.parametrize("page", PAGES)
def test_rows_and_searches_and_no_secret(staff: Client, page: str) -> None:
    fill(2)
    model = page.rpartition("_")[2]
    model_class: Any = {
        "incident": Incident,
        "maintenancewindow": MaintenanceWindow,
        "alertchannel": AlertChannel,
        "delivery": Delivery,
    }[model]
    pages = [shown(staff, f"{page}_changelist")[0]]
    for row in model_class.objects.all():
        pages += [
            shown(staff, f"{page}_change", row.pk)[0],
            shown(staff, f"{page}_changelist", query=f"?q={row.public_id}")[0],
        ]
        assert row.public_id in pages[-1]
    sealed = AlertChannel.objects.values_list("sealed_config", flat=True)
    for html in pages:
        assert "hunter" not in html
        for secret in (SECRET, SECRET.replace(" ", "-"), *sealed):
            assert secret not in html
    assert staff.get(reverse(f"admin:{page}_add")).status_code == 403
    assert Client().get(reverse(f"admin:{page}_changelist")).status_code == 302


def test_an_incident_with_its_timeline_and_by_its_status(staff: Client) -> None:
    fill(2)
    first, second = Incident.objects.order_by("pk")
    Incident.objects.filter(pk=second.pk).update(resolved_at=NOON, resolution="recovered")
    html, _ = shown(staff, "incidents_incident_change", first.pk)
    assert "It is first_failure." in html
    for status, incident, other in (("open", first, second), ("resolved", second, first)):
        html, _ = shown(staff, "incidents_incident_changelist", query=f"?status={status}")
        assert (incident.public_id in html, other.public_id in html) == (True, False)


def test_items_of_a_delivery_take_no_query_each(staff: Client) -> None:
    fill(1)
    delivery = Delivery.objects.get()
    shown(staff, "alerts_delivery_change", delivery.pk)  # what Django keeps from the first page on
    _, two = shown(staff, "alerts_delivery_change", delivery.pk)
    make_delivery(delivery.channel, items=20).items.update(delivery=delivery, incident=Incident.objects.get())
    _, many = shown(staff, "alerts_delivery_change", delivery.pk)
    assert many == two


def replay(client: Client) -> None:
    body = {"action": "replay", "_selected_action": list(Delivery.objects.values_list("pk", flat=True))}
    client.post(reverse("admin:alerts_delivery_changelist"), body)


def test_dead_deliveries_are_replayed_by_whoever_may_change_them(staff: Client) -> None:
    fill(1)
    dead = Delivery.objects.get()
    sent = make_delivery(dead.channel, state=Delivery.State.SENT)
    looking = Client()
    watcher = create_account(email="watcher@example.com", password=PASSWORD, is_staff=True)
    from django.apps import apps
    from django.contrib.auth.management import create_permissions
    from django.contrib.auth.models import Permission

    create_permissions(apps.get_app_config("alerts"), verbosity=0)  # tests have none (tests/flushing.py)
    watcher.user_permissions.add(Permission.objects.get(codename="view_delivery"))
    looking.force_login(watcher)
    assert "Replay" not in shown(looking, "alerts_delivery_changelist")[0]
    replay(looking)
    dead.refresh_from_db()
    assert dead.state == Delivery.State.DEAD
    replay(staff)
    dead.refresh_from_db()
    sent.refresh_from_db()
    assert (dead.state, sent.state) == (Delivery.State.WAITING, Delivery.State.SENT)


def test_an_account_made_in_the_admin_has_its_channel_too(staff: Client) -> None:
    body = {
        "email": "new@example.com",
        "plan": make_plan().pk,
        "usable_password": "true",
        "password1": PASSWORD,
        "password2": PASSWORD,
    }
    assert staff.post(reverse("admin:accounts_user_add"), body).status_code == 302
    user = User.objects.get(email="new@example.com")
    assert AlertChannel.objects.get(owner=user).config == {"address": user.email}
    edited = {"email": user.email, "plan": user.plan_id, "is_active": "on"}
    assert staff.post(reverse("admin:accounts_user_change", args=[user.pk]), edited).status_code == 302
    assert AlertChannel.objects.filter(owner=user).count() == 1


@pytest.mark.parametrize("page", ["connectors_connector", "connectors_import"])
def test_connectors_without_their_tokens(staff: Client, page: str) -> None:
    def link() -> Connector:
        connector = make_connector(make_user())
        monitor = make_monitor(connector.user)
        Import.objects.create(user=connector.user, provider="vercel", external_ref="prj_1", monitor=monitor)
        return connector

    link()
    shown(staff, f"{page}_changelist")  # what Django keeps from the first page on
    _, one = shown(staff, f"{page}_changelist")
    connectors = [link() for _ in range(9)]
    html, ten = shown(staff, f"{page}_changelist")
    assert ten == one
    model = Connector if page == "connectors_connector" else Import
    pages = [html, *(shown(staff, f"{page}_change", row.pk)[0] for row in model._default_manager.all())]
    pages.append(shown(staff, f"{page}_changelist", query=f"?q={connectors[0].user.email}")[0])
    assert connectors[0].user.email in pages[-1]
    for connector in connectors:
        assert not any(connector.sealed_tokens in text for text in pages)
        assert not any(connector.tokens["access_token"] in text for text in pages)
    assert staff.get(reverse(f"admin:{page}_add")).status_code == 403
