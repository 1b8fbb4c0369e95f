"""Pages do not mention plans while `local` is the only plan in use."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from tests.dashboard.test_monitor_pages import typed
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory


@pytest.fixture
def user(db: None) -> User:
    return UserFactory(plan__name="local")


def mentions(web: Client, user: User) -> list[str]:
    """Return the pages that mention plans, including the response to an interval that is too short."""
    monitor, project = MonitorFactory(owner=user), ProjectFactory(owner=user)
    pages = {
        "account": "/account/",
        "monitors": "/monitors",
        "new": "/monitors/new",
        "edit": f"/monitors/{monitor.public_id}/edit",
        "monitor": f"/monitors/{monitor.public_id}",
        "project": f"/projects/{project.public_id}",
    }
    found = {}
    for name, path in pages.items():
        answer = web.get(path)
        assert answer.status_code == 200, path
        found[name] = re.sub(r"<[^>]+>", " ", answer.content.decode())
    saved = web.post("/monitors/new", typed(type="heartbeat", interval_sec="1s", name="Quick"), follow=True)
    found["saved"] = re.sub(r"<[^>]+>", " ", saved.content.decode())
    assert "The interval is" in found["saved"]
    return [name for name, text in found.items() if re.search(r"\bplans?\b", text, re.IGNORECASE)]


def test_the_only_plan_is_not_mentioned(web: Client, user: User) -> None:
    UserFactory(plan__name="local")
    assert mentions(web, user) == []
    page = web.get("/monitors/new").content.decode()
    assert 'value="1m"' in page, "to begin with"
    assert all(f'data-fill="{span}" data-fills="id_interval_sec"' in page for span in ("10s", "30s", "1m"))


@pytest.mark.parametrize("second", ["made by staff", "of another account", "of this account"])
def test_a_second_plan_is_mentioned(web: Client, user: User, second: str) -> None:
    if second == "made by staff":
        PlanFactory()
    elif second == "of another account":
        UserFactory(plan__name="free")
    else:
        user.plan = UserFactory(plan__name="pro").plan
        user.save(update_fields=["plan"])
    assert mentions(web, user) == ["account", "new", "edit", "saved"]
