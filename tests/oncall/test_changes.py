"""Schedules and policies are changed and deleted while others use them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from accounts.models import User
from core.clock import utc_now
from core.errors import ApiError, LimitReached, NotFound, ValidationFailed
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from oncall import services
from oncall.models import EscalationPolicy, OnCallSchedule
from projects.access import Caller
from projects.models import Project
from projects.services import delete_project, update_project
from pulsekeeper.manifest.problems import InvalidManifest
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently
from tests.manifests.helpers import apply_text

pytestmark = pytest.mark.django_db(transaction=True)

FIELD = "escalation_policy_id"


def make_policy(owner: User, project: Project | None) -> EscalationPolicy:
    steps = [{"after_min": 0, "targets": [{"type": "user", "id": owner.public_id}]}]
    given = {"name": "Backend", "steps": steps, "project_id": project and project.public_id}
    return services.create_policy(Caller(owner), given, now=NOON)


def make_schedule(owner: User) -> OnCallSchedule:
    layer = {"user_ids": [owner.public_id], "every": {"unit": "day", "count": 1}, "starts_at": 0}
    return services.create_schedule(Caller(owner), {"name": "Backend", "layers": [layer]}, now=NOON)


def apply_file(owner: User, text: str) -> None:
    with suppress(InvalidManifest):  # the policy or project is gone
        apply_text(owner, text)


@pytest.mark.parametrize("delete", [services.delete_policy, delete_project])
def test_a_policy_is_deleted_while_it_is_chosen(delete: Callable[..., Any]) -> None:
    owner = UserFactory()
    caller = Caller(owner)

    def race() -> None:
        project = ProjectFactory(owner=owner, name="Shop")
        here = {"project_id": project.public_id}
        policy = make_policy(owner, project)
        chosen = {FIELD: policy.public_id}
        before, after, moved = (
            MonitorFactory(owner=owner, project=project, heartbeat=True, name=f"m{n}") for n in "012"
        )
        for one in (before, moved):
            update_monitor(caller, one.public_id, chosen, now=utc_now())
        gone = policy.public_id if delete is services.delete_policy else project.public_id
        file = f"""
            version: 1
            projects: [{{id: {project.public_id}, name: Shop}}]
            monitors: [{{name: m0, type: heartbeat, project: Shop, escalation_policy: Backend, slow_ms: 5}}]
        """
        outcomes = run_concurrently(
            lambda: delete(caller, gone),
            lambda: update_monitor(caller, before.public_id, {"name": "renamed"}, now=utc_now()),
            lambda: update_monitor(caller, after.public_id, chosen, now=utc_now()),
            lambda: update_monitor(caller, moved.public_id, {"project_id": None, FIELD: None}, now=utc_now()),
            lambda: create_monitor(caller, {"type": "heartbeat"} | here | chosen, now=utc_now()),
            lambda: update_project(caller, project.public_id, chosen),
            lambda: apply_file(owner, file),
        )
        assert outcomes[0] is None
        for outcome in outcomes[1:]:
            if isinstance(outcome, ApiError):
                assert isinstance(outcome, ValidationFailed | NotFound), outcome
        assert not Monitor.objects.exclude(escalation_policy=None).exists()
        Monitor.objects.all().delete()
        Project.objects.all().delete()

    for _ in range(8):
        race()


def test_two_create_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = UserFactory()
    monkeypatch.setattr(services, "MAX_POLICIES", 1)
    monkeypatch.setattr(services, "MAX_SCHEDULES", 1)
    for make in (lambda: make_policy(owner, None), lambda: make_schedule(owner)):
        outcomes = run_concurrently(make, make, make)
        assert sum(isinstance(outcome, LimitReached) for outcome in outcomes) == 2


def test_overrides_of_two_people_both_stay() -> None:
    owner = UserFactory()
    schedule, caller = make_schedule(owner), Caller(owner)

    def add(start: int) -> Callable[[], Any]:
        override = {"user_id": owner.public_id, "starts_at": start, "ends_at": start + 1}
        return lambda: services.add_override(caller, schedule.public_id, override)

    run_concurrently(*map(add, range(6)))
    schedule.refresh_from_db()
    assert sorted(one["starts_at"] for one in schedule.overrides) == [*range(6)]
