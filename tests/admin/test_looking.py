"""Contents of the pages of incidents, deliveries, new accounts and monitors."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import User
from alerts.models import AlertChannel, Delivery, DeliveryItem
from incidents.models import Incident, IncidentEvent
from tests.factories import (
    ChannelFactory,
    DeliveryFactory,
    IncidentFactory,
    MonitorFactory,
    PlanFactory,
    ProjectFactory,
    UserFactory,
)
from tests.helpers import NOON, PASSWORD


def fill(count: int) -> None:
    for _ in range(count):
        owner = UserFactory()
        project = ProjectFactory(owner=owner)
        monitor = MonitorFactory(owner=owner, project=project)
        incident = IncidentFactory(monitor=monitor, name="Shop")
        for type_ in ("first_failure", "confirmed"):
            IncidentEvent.objects.create(incident=incident, type=type_, at=NOON, text=f"It is {type_}.")
        delivery = DeliveryFactory(channel=ChannelFactory(owner=owner), dead=True, items=2)
        delivery.items.update(incident=incident)


def shown(client: Client, page: str, *args: Any, query: str = "") -> tuple[str, int]:
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(reverse(f"admin:{page}", args=args) + query)
    assert answer.status_code == 200
    return answer.content.decode(), len(captured)


def test_an_incident_with_its_timeline_and_by_its_status(staff: Client) -> None:
    fill(2)
    first, second = Incident.objects.order_by("pk")
    Incident.objects.filter(pk=second.pk).update(resolved_at=NOON, resolution="recovered")
    html, _ = shown(staff, "incidents_incident_change", first.pk)
    assert "It is first_failure." in html
    for status, incident, other in (("open", first, second), ("resolved", second, first)):
        html, _ = shown(staff, "incidents_incident_changelist", query=f"?status={status}")
        assert (incident.public_id in html, other.public_id in html) == (True, False)


def test_a_filter_without_matches_lists_nothing(staff: Client) -> None:
    fill(1)
    incident, stranger = Incident.objects.get(), UserFactory()
    for owner, listed in ((incident.owner, True), (stranger, False)):
        html, _ = shown(staff, "incidents_incident_changelist", query=f"?owner__id__exact={owner.pk}")
        assert (incident.public_id in html) == listed


def test_items_of_a_delivery_take_no_query_each(staff: Client) -> None:
    fill(1)
    delivery = Delivery.objects.get()
    shown(staff, "alerts_delivery_change", delivery.pk)  # Django caches these from the first page on
    _, two = shown(staff, "alerts_delivery_change", delivery.pk)
    DeliveryFactory(channel=delivery.channel, items=20).items.update(delivery=delivery, incident=Incident.objects.get())
    _, many = shown(staff, "alerts_delivery_change", delivery.pk)
    assert many == two


def test_a_channel_with_what_is_planned(staff: Client) -> None:
    fill(2)
    planned, other = (delivery.channel for delivery in Delivery.objects.order_by("pk"))
    html, before = shown(staff, "alerts_alertchannel_change", planned.pk)
    assert "Planned" not in html
    items = DeliveryItem.objects.filter(channel=planned)
    items.update(delivery=None, due_at=NOON)
    html, queries = shown(staff, "alerts_alertchannel_change", planned.pk)
    assert "Planned" in html
    assert html.count(Incident.objects.order_by("pk")[0].public_id) == items.count() == 2
    assert queries <= before
    html, _ = shown(staff, "alerts_alertchannel_change", other.pk)
    assert "Planned" not in html


def test_an_account_made_in_the_admin_has_its_channel_too(staff: Client) -> None:
    body = {
        "email": "new@example.com",
        "plan": PlanFactory().pk,
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


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"type": "port", "url": "tls://mail.example:25?starttls=smtp"}, "request_body_encoding: text"),
        ({"type": "udp", "url": "udp://sip.example:5060", "request_body": "a secret"}, "request_body_encoding: text"),
        ({"type": "ping", "url": "icmp://router.example", "packets": 7}, "packets: 7"),
        (
            {"type": "dns", "url": "dns:shop.example?type=MX", "records": ["10 mail.shop.example"]},
            "10 mail.shop.example",
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)
def test_monitors_of_each_type(staff: Client, given: dict[str, Any], shown: str) -> None:
    monitor = MonitorFactory(**given)
    page = staff.get(f"/admin/monitors/monitor/{monitor.pk}/change/").content.decode()
    assert shown in page
    assert monitor.url in page
    assert f'href="{monitor.url}"' not in page
    assert "a secret" not in page
    listed = staff.get(f"/admin/monitors/monitor/?type__exact={monitor.type}").content.decode()
    assert monitor.url in listed
