"""The escalation policy of a monitor in its form."""

from __future__ import annotations

import re
from html import unescape

from django.test import Client

from accounts.models import User
from monitors.models import Monitor
from oncall.models import EscalationPolicy
from oncall.services import create_policy
from projects.access import Caller
from projects.models import Project
from tests.dashboard.test_monitor_pages import typed
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON


def make_policy(owner: User, name: str, project: Project | None = None) -> EscalationPolicy:
    steps = [{"after_min": 0, "targets": [{"type": "user", "id": owner.public_id}]}]
    given = {"name": name, "steps": steps, "project_id": project and project.public_id}
    return create_policy(Caller(owner), given, now=NOON)


def offered(html: str) -> dict[str, bool]:
    """Return the labels of the field, and whether each is selected. Empty without the field."""
    _, found, after = html.partition('name="escalation_policy_id"')
    rows = re.findall(r"<option value=\"[^\"]*\"( selected)?>([^<]*)</option>", after.partition("</select>")[0])
    return {unescape(label): bool(selected) for selected, label in rows} if found else {}


def test_the_form_offers_policies_once_there_are_any(web: Client, user: User) -> None:
    assert offered(web.get("/monitors/new").content.decode()) == {}
    project = ProjectFactory(owner=user, name="Shop")
    make_policy(UserFactory(), "Foreign")
    own = make_policy(user, "Own")
    make_policy(user, "Team", project)
    none = "None: that of the project, if it has one"
    assert offered(web.get("/monitors/new").content.decode()) == {none: True, "Own": False, "Team · Shop": False}
    web.post("/monitors/new", typed(type="heartbeat", name="Job", escalation_policy_id=own.public_id))
    monitor = Monitor.objects.get()
    assert monitor.escalation_policy == own
    path = f"/monitors/{monitor.public_id}/edit"
    assert offered(web.get(path).content.decode())["Own"]
    web.post(path, typed(type="heartbeat", name="Cron"))
    monitor.refresh_from_db()
    assert (monitor.name, monitor.escalation_policy) == ("Cron", own), "a form without the field keeps it"
    web.post(path, typed(type="heartbeat", name="Cron", escalation_policy_id=""))
    monitor.refresh_from_db()
    assert monitor.escalation_policy is None


def test_a_move_says_that_the_policy_does_not_apply_there(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="Shop")
    policy = make_policy(user, "Team", project)
    monitor = MonitorFactory(owner=user, project=project, heartbeat=True, escalation_policy_id=policy.public_id)
    path = f"/monitors/{monitor.public_id}/edit"
    fields = typed(type="heartbeat", name="Job", project_id="", escalation_policy_id=policy.public_id)
    html = web.post(path, fields).content.decode()
    assert "oes not apply there; name another one, or null." in html
    web.post(path, fields | {"escalation_policy_id": ""})
    monitor.refresh_from_db()
    assert (monitor.project, monitor.escalation_policy) == (None, None)


def test_a_policy_that_is_not_visible_stays(web: Client, user: User) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner, member=user)
    policy = make_policy(owner, "Of the owner")
    monitor = MonitorFactory(owner=owner, project=project, heartbeat=True, escalation_policy_id=policy.public_id)
    path = f"/monitors/{monitor.public_id}/edit"
    assert offered(web.get(path).content.decode())["A policy of the owner"]
    here = {"project_id": project.public_id, "escalation_policy_id": policy.public_id}
    web.post(path, typed(type="heartbeat", name="Job", **here))
    monitor.refresh_from_db()
    assert (monitor.name, monitor.escalation_policy) == ("Job", policy)
