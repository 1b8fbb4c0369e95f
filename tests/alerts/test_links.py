"""The links of messages lead somewhere, and tell a stranger nothing."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from alerts.facts import Facts, News
from alerts.messages import render
from core.clock import utc_now
from core.ids import incident_id, monitor_id

LINK = re.compile(r"http://testserver(\S*)")
INCIDENT, MONITOR = incident_id(), monitor_id()


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        ([Facts(News.DOWN, at=0, monitor="Shop", incident_id=INCIDENT)], f"/v1/incidents/{INCIDENT}"),
        ([Facts(News.SLOW, at=0, monitor="Shop", monitor_id=MONITOR)], f"/v1/monitors/{MONITOR}"),
        ([Facts(News.DOWN, at=0, incident_id=incident_id()) for _ in range(3)], "/v1/incidents"),
    ],
)
def test_a_link_says_where_to_read_on(items: list[Facts], shown: str) -> None:
    text = render(items, key="dlv_1", base_url="http://testserver", now=utc_now()).text
    found = LINK.findall(text)
    assert found
    answer = Client().get(found[-1])
    assert answer.status_code == 200
    assert f"GET http://localhost:8000{shown}\n" in answer.content.decode()
