"""Two concurrent applies, an apply during other changes, and an interrupted one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from accounts.models import Plan, User
from alerts.models import AlertChannel
from alerts.services import delete_channel
from core.clock import utc_now
from core.db import separate_connection
from manifests import applying, planning, views
from monitors.models import Monitor, MonitorState
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from projects.models import Project
from pulsekeeper.manifest.changes import Report
from tests.api.client import Answer, Api
from tests.factories import UserFactory
from tests.helpers import run_concurrently
from tests.manifests.helpers import apply_text

pytestmark = pytest.mark.django_db(transaction=True)

FILE = """
version: 1
ungrouped: true
projects: [{name: Shop}]
monitors:
  - {name: A, project: Shop, url: "https://a.example.com/", check_domain: true}
  - {name: B, url: "https://b.example.org/", check_domain: true}
channels:
  - {name: C, kind: webhook, url: "https://hooks.example.com/", monitors: [B]}
"""


def there() -> tuple[int, int, int, int]:
    models = (Project, Monitor, MonitorState, AlertChannel)
    return tuple(model._default_manager.count() for model in models)  # type: ignore[return-value]


@pytest.fixture
def user() -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()
    return user


def test_of_two_at_once_the_second_finds_nothing_to_do(user: User) -> None:
    reports = run_concurrently(*[partial(apply_text, user, FILE, prune=True)] * 3)
    changes = sorted(len(report.changes) for report in reports if isinstance(report, Report))
    assert changes == [0, 0, 4]
    assert there() == (1, 2, 2, 1)


def test_beside_changes_and_deletions_of_the_same_monitors(user: User) -> None:
    """Neither deadlocks, and the result is what one of the two requested."""
    for number in range(3):
        apply_text(user, FILE, prune=True)
        a, b = (Monitor.objects.get(name=name).public_id for name in "AB")
        changed = FILE.replace("check_domain: true", f"slow_ms: {100 + number}")
        caller = Caller(user)
        channel = AlertChannel.objects.get().public_id
        others = (
            partial(update_monitor, caller, a, {"fail_threshold": 9}, now=utc_now()),
            partial(delete_monitor, caller, b),
            partial(delete_channel, caller, channel),
        )
        run_concurrently(
            partial(apply_or_refused, user, changed.replace("monitors: [B]", "monitors: all")), others[number % 3]
        )
        assert apply_or_refused(user, changed) is not None
        assert apply_text(user, changed, prune=True).changes == []
        assert set(Monitor.objects.values_list("slow_ms", flat=True)) == {100 + number}


def test_one_of_another_process_is_waited_for_a_bounded_time(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PATIENCE_SEC", 0.1)
    api = Api.signed_in(user)

    def send() -> list[Answer]:
        return [
            api.send("PUT", "/v1/manifest", {"manifest": {"version": 1}}),
            api.post("/v1/imports", {"monitors": []}),
        ]

    with separate_connection(patience_sec=60) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"manifest {user.pk}"])
        assert [(each.status, each.headers["Retry-After"]) for each in send()] == [(429, "5")] * 2
    assert [each.status for each in send()] == [200, 200]


def apply_or_refused(user: User, text: str) -> Report | None:
    from pulsekeeper.manifest.problems import InvalidManifest

    try:
        return apply_text(user, text, prune=True)
    except InvalidManifest:  # of a channel whose monitor has just gone
        return None


@pytest.fixture
def blocked(user: User) -> Iterator[int]:
    """Yield the backend's process id of an apply that has created monitors and waits. Release it at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            apply_text(user, FILE)
        except OperationalError as error:
            errors.append(error)
        finally:
            connection.close()

    with transaction.atomic():
        # A channel's creation counts under the lock of its owner; the monitors are made before that.
        AlertChannel.objects.select_for_update().count()
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE alerts_alertchannel IN SHARE MODE")
            thread = threading.Thread(target=run)
            thread.start()
            deadline = time.monotonic() + 30
            while True:
                cursor.execute(
                    "SELECT pid FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
                    " WHERE relname = 'alerts_alertchannel' AND NOT granted"
                )
                waiting = cursor.fetchone()
                if waiting is not None:
                    break
                assert time.monotonic() < deadline
        yield waiting[0]
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_one_that_dies_halfway_has_done_nothing(user: User, blocked: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [blocked])
    assert there() == (0, 0, 0, 0)


def test_afterwards_all_of_it_can_be_done(user: User) -> None:
    assert apply_text(user, FILE).created == 4


def test_a_raised_minimum_of_the_plan_applies(user: User) -> None:
    apply_text(user, FILE)
    Plan.objects.filter(pk=user.plan_id).update(min_interval_sec=120)
    user = User.objects.select_related("plan").get(pk=user.pk)
    apply_text(user, FILE.replace("url:", "interval_sec: 60, url:", 1))
    assert set(Monitor.objects.values_list("interval_sec", flat=True)) == {120}


@pytest.mark.parametrize("model", [Monitor, AlertChannel])
def test_what_is_deleted_after_planning_is_created_again(
    model: type[Monitor | AlertChannel], user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_text(user, FILE)
    (deleted,) = model._default_manager.filter(name__in=["B", "C"])
    delete = delete_monitor if model is Monitor else delete_channel
    tries = 0

    def plan_and_lose_one(*args: Any, **kwargs: Any) -> Any:
        nonlocal tries
        tries += 1
        found = planning.Plan(*args, **kwargs)
        if tries == 1:
            run_concurrently(partial(delete, Caller(user), deleted.public_id))
        return found

    monkeypatch.setattr(applying, "Plan", plan_and_lose_one)
    apply_text(user, FILE.replace("b.example.org", "b2.example.org").replace("hooks.", "other."))
    assert tries == 2
    assert there() == (1, 2, 2, 1)
    assert not model._default_manager.filter(pk=deleted.pk).exists()
