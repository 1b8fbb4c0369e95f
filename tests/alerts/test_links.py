"""Links in messages lead to existing pages, and reveal nothing to a stranger."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from alerts.events import EventType, Payload
from alerts.messages import render
from core.clock import utc_now
from core.ids import incident_id, monitor_id

LINK = re.compile(r"http://testserver(\S*)")
INCIDENT, MONITOR = incident_id(), monitor_id()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([Payload(EventType.DOWN, at=0, monitor="Shop", incident_id=INCIDENT)], f"/incidents/{INCIDENT}"),
        ([Payload(EventType.SLOW, at=0, monitor="Shop", monitor_id=MONITOR)], f"/monitors/{MONITOR}"),
        ([Payload(EventType.DOWN, at=0, incident_id=incident_id()) for _ in range(3)], "/incidents"),
    ],
    ids=["incident", "monitor", "group"],
)
def test_a_link_leads_to_sign_in_first(items: list[Payload], path: str) -> None:
    text = render(items, key="dlv_1", base_url="http://testserver", now=utc_now()).text
    found = LINK.findall(text)
    assert found
    answer = Client().get(found[-1])
    assert answer.status_code == 302
    assert answer.url == f"/account/login/?next={path}"  # type: ignore[attr-defined]
