"""A project is deleted, or a member removed, while monitors are moved into it."""

from __future__ import annotations

import pytest

from core.clock import utc_now
from core.errors import ApiError, NotFound, Unauthorized, ValidationFailed
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from projects.access import Caller
from projects.members import remove_member
from projects.services import delete_project
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_project_deleted_while_monitors_go_into_it() -> None:
    owner = UserFactory()
    caller = Caller(owner)

    def race() -> None:
        project = ProjectFactory(owner=owner)
        inside, outside = MonitorFactory(owner=owner, project=project), MonitorFactory(owner=owner)
        token = Caller(owner, project)
        url, here = "http://127.0.0.1:9/", {"project_id": project.public_id}
        outcomes = run_concurrently(
            lambda: delete_project(caller, project.public_id),
            lambda: create_monitor(caller, {"url": url} | here, now=utc_now()),
            lambda: create_monitor(token, {"url": url}, now=utc_now()),
            lambda: update_monitor(caller, inside.public_id, {"name": "renamed"}, now=utc_now()),
            lambda: update_monitor(caller, outside.public_id, here, now=utc_now()),
            lambda: update_monitor(token, inside.public_id, {"slow_ms": 5}, now=utc_now()),
        )
        assert outcomes[0] is None
        for outcome in outcomes[1:]:
            if isinstance(outcome, ApiError):
                assert isinstance(outcome, ValidationFailed | Unauthorized | NotFound), outcome
        assert not Monitor.objects.exclude(project=None).exists(), "all are detached"
        inside.refresh_from_db()
        assert inside.name == "renamed"

    for _ in range(12):
        race()


def test_a_member_removed_while_he_creates() -> None:
    owner, friend = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner)

    def race() -> None:
        place = MembershipFactory(project=project, user=friend, role="member")
        given = {"url": "http://127.0.0.1:9/", "project_id": project.public_id}
        made, removed = run_concurrently(
            lambda: create_monitor(Caller(friend), given, now=utc_now()),
            lambda: remove_member(Caller(owner), project.public_id, place.public_id, now=utc_now()),
        )
        assert removed is None
        assert isinstance(made, Monitor | ValidationFailed)
        if isinstance(made, Monitor):
            assert made.owner_id == owner.pk

    for _ in range(6):
        race()
