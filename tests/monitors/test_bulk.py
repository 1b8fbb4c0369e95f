"""Bulk actions have the same result as `monitors.services` for each monitor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.forms.models import model_to_dict

from accounts.models import User
from checks.spec import Verdict
from core.errors import MonitorLimit
from monitors import operations, services
from monitors.configuration import build, merge
from monitors.models import DomainRegistration, Monitor, MonitorState, StatusChange
from monitors.services import Draft, update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db

LATER = NOON + timedelta(hours=1)
CONFIG = build(
    {
        "interval_sec": 300,
        "name": 'It\'s "a" \\ name, {x} NULL',
        "url": "https://www.example.com/",
        "method": "POST",
        "check_domain": True,
        "content_rules": [{"type": "text_contains", "value": '{"a": "\\"}\n'}],
        "request_headers": [{"name": "X-Key", "value": "sécret", "type": "custom"}],
        "request_body": "",
        "expect_status": 204,
    }
)


def columns(monitor: Monitor) -> dict[str, Any]:
    found = model_to_dict(monitor)
    return {name: value for name, value in found.items() if name != "id"}


def state(monitor: Monitor) -> dict[str, Any]:
    found = model_to_dict(MonitorState.objects.get(pk=monitor.pk))
    return {name: value for name, value in found.items() if name != "monitor"}


CHANGES: list[dict[str, Any]] = [
    {"name": "Another"},
    {"url": "https://www.example.org/", "check_domain": True},
    {"interval_sec": 60},
    {"slow_ms": 1},
    {"enabled": False},
    {"enabled": False, "url": "https://www.example.org/"},
    {"request_headers": [{"name": "X-Key", "value": "new"}]},
    {"content_rules": [{"type": "text_absent", "value": "\\N"}]},
    {"type": "keyword", "content_rules": [{"type": "text_absent", "value": "x"}]},
]


@pytest.mark.parametrize("given", CHANGES, ids=lambda given: ",".join(given))
@pytest.mark.parametrize("kind", ["http", "heartbeat", "scheduler"])
def test_a_change_is_the_same_as_one_by_one(kind: str, given: dict[str, Any]) -> None:
    user = UserFactory()
    if kind != "http" and "type" in given:
        given = {"name": "Another"}
    url = "" if kind == "heartbeat" else "https://www.example.com/"
    one, many = (
        MonitorFactory(
            owner=user, type=kind, url=url, interval_sec=300, first=None if kind == "heartbeat" else Verdict.UP
        )
        for _ in range(2)
    )
    update_monitor(Caller(user), one.public_id, given, now=LATER)
    one.refresh_from_db()
    services.update_monitors(Caller(user), {many.pk: Draft(user, None, one.full_config, one.enabled)}, now=LATER)
    many.refresh_from_db()
    assert columns(many) == columns(one)
    assert many.full_config == one.full_config
    assert state(many) == state(one)
    turns = [
        list(StatusChange.objects.filter(monitor=monitor).values_list("kind", "at", "before", "after").order_by("pk"))
        for monitor in (one, many)
    ]
    assert turns[0] == turns[1]


def test_what_is_made_is_stored_to_the_letter() -> None:
    user = UserFactory()
    project = ProjectFactory(owner=user)
    heartbeat = build({"interval_sec": 60, "type": "heartbeat"})
    made = services.create_monitors(
        Caller(user),
        [Draft(user, project, CONFIG), Draft(user, None, heartbeat), Draft(user, None, CONFIG, enabled=False)],
        now=NOON,
    )
    stored = [Monitor.objects.get(pk=monitor.pk) for monitor in made]
    assert [monitor.full_config for monitor in stored] == [CONFIG, heartbeat, CONFIG]
    assert [(monitor.project, monitor.enabled) for monitor in stored] == [(project, True), (None, True), (None, False)]
    assert [monitor.state.next_due_at for monitor in stored] == [NOON, None, None]
    assert {monitor.registration for monitor in stored} == {None, DomainRegistration.objects.get()}
    services.update_monitors(Caller(user), {one.pk: Draft(user, None, one.full_config) for one in stored}, now=LATER)
    assert [Monitor.objects.get(pk=monitor.pk).full_config for monitor in made] == [CONFIG, heartbeat, CONFIG]
    assert not Monitor.objects.exclude(project=None).exists()


def test_one_too_many_makes_none() -> None:
    user = user_with_room(for_monitors=2)
    with pytest.raises(MonitorLimit) as refused:
        services.create_monitors(Caller(user), [Draft(user, None, CONFIG)] * 3, now=NOON)
    assert refused.value.limit == 2
    assert not Monitor.objects.exists()
    assert len(services.create_monitors(Caller(user), [Draft(user, None, CONFIG)] * 2, now=NOON)) == 2


def test_moving_to_another_owner_takes_room_there() -> None:
    user, other = UserFactory(), user_with_room(for_monitors=1)
    project = ProjectFactory(owner=other)
    monitors = [MonitorFactory(owner=user) for _ in range(2)]
    drafts = {one.pk: Draft(other, project, one.full_config) for one in monitors}
    with pytest.raises(MonitorLimit):
        services.update_monitors(Caller(user), drafts, now=NOON)
    services.update_monitors(Caller(user), dict(list(drafts.items())[:1]), now=NOON)
    assert Monitor.objects.get(owner=other).project == project


def test_the_plan_under_the_lock_has_the_last_word() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user)
    quick = merge(CONFIG, {"interval_sec": 1})
    services.update_monitors(Caller(user), {monitor.pk: Draft(user, None, quick)}, now=NOON)
    services.create_monitors(Caller(user), [Draft(user, None, quick)], now=NOON)
    assert set(Monitor.objects.values_list("interval_sec", flat=True)) == {60}


def test_what_is_gone_is_left_out() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user)
    services.update_monitors(
        Caller(user), {key: Draft(user, None, CONFIG) for key in (monitor.pk, monitor.pk + 1)}, now=NOON
    )
    operations.delete([monitor.pk, monitor.pk + 1])
    assert not Monitor.objects.exists()


def user_with_room(*, for_monitors: int) -> User:
    user = UserFactory()
    user.plan = PlanFactory(monitor_limit=for_monitors)
    user.save(update_fields=["plan"])
    return user
