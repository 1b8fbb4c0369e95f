"""Dependencies of many monitors, and of two at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product
from random import Random

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import utc_now
from core.errors import ApiError, NotFound, ValidationFailed
from monitors.configuration import build
from monitors.dependencies import (
    LONGEST_CHAIN,
    MAX_PARENTS,
    Choice,
    DependencyRefused,
    Preview,
    possible_parents,
    replace,
)
from monitors.models import Dependency, Monitor
from monitors.selectors import list_monitors
from monitors.services import Draft, create_monitor, create_monitors, delete_monitor, update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently

ROUNDS = 8


def many(user: User, count: int) -> list[Monitor]:
    config = build({"type": "heartbeat", "interval_sec": 3600})
    return create_monitors(Caller(user), [Draft(user, None, config)] * count, now=utc_now())


def store(edges: Sequence[tuple[Monitor, Monitor]]) -> None:
    Dependency.objects.bulk_create(Dependency(child=child, parent=parent, position=0) for child, parent in edges)


def depend(user: User, child: Monitor, *parents: Monitor) -> Monitor:
    given = {"depends_on": [parent.public_id for parent in parents]}
    return update_monitor(Caller(user), child.public_id, given, now=utc_now())


@pytest.mark.django_db
def test_diamonds_are_not_followed_path_by_path() -> None:
    """16 levels of 8 monitors, each on all of the level above, have 8^15 paths."""
    user = UserFactory()
    monitors = many(user, LONGEST_CHAIN * MAX_PARENTS + 1)
    levels = [monitors[start : start + MAX_PARENTS] for start in range(0, LONGEST_CHAIN * MAX_PARENTS, MAX_PARENTS)]
    store([edge for above, below in pairwise(levels) for edge in product(below, above)])
    extra, middle = monitors[-1], levels[8][0]
    with CaptureQueriesContext(
        connection,
    ) as queries:
        depend(user, middle, *levels[7])
    assert len(queries) < 40
    depend(user, extra, *levels[-2])
    with pytest.raises(ValidationFailed, match="a chain of 17 monitors"):
        depend(user, extra, levels[-1][0])
    with pytest.raises(ValidationFailed, match="depends on this monitor itself"):
        depend(user, levels[0][0], levels[-1][7])
    offered = possible_parents(list_monitors(Caller(user)), owners=[user.pk], children=[levels[8][0].pk])
    assert set(offered) == {one for level in levels[:8] for one in level}
    some = [levels[2][0].pk, levels[8][0].pk]
    assert set(possible_parents(list_monitors(Caller(user)), owners=[user.pk], children=some)) == {
        *levels[0],
        *levels[1],
    }


@pytest.mark.django_db
def test_a_thousand_monitors_may_depend_on_one() -> None:
    user = UserFactory()
    router, switch, *children = many(user, 1000)
    store([(child, router) for child in children])
    with CaptureQueriesContext(connection) as queries:
        depend(user, router, switch)
    assert len(queries) < 40
    with pytest.raises(ValidationFailed, match="depends on this monitor itself"):
        depend(user, switch, children[500])
    assert not Dependency.objects.filter(child=switch).exists()


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_a_preview_says_what_storing_does(seed: int) -> None:
    """For each monitor by itself, also with parents that the caller does not see."""
    user, member, chance = UserFactory(), UserFactory(), Random(seed)
    hidden, shared = ProjectFactory(owner=user), ProjectFactory(owner=user, member=member)
    monitors = many(user, 40)
    Monitor.objects.filter(pk__in=[one.pk for one in monitors[::7]]).update(project=hidden)
    Monitor.objects.exclude(project=hidden).update(project=shared)
    Dependency.objects.bulk_create(
        Dependency(child=child, parent=monitors[parent], position=place)
        for number, child in enumerate(monitors)
        for place, parent in enumerate(chance.sample(range(max(0, number - 5), number), min(number, 2)))
    )
    caller, children = Caller(member), [*Monitor.objects.select_related("project")]
    outcomes = []
    for count in (0, 1, 2, 4, 8):
        parents = chance.sample([one for one in children if one.project == shared], count)
        preview = Preview(caller, [one.pk for one in children], [one.pk for one in parents])
        for child in children:
            outcome: list[object] = []
            choice = Choice(child, user.pk, [parent.pk for parent in parents])
            for judge in (partial(preview.changes, adds=False), partial(_store, caller)):
                try:
                    outcome.append(judge(choice))
                except DependencyRefused as error:
                    outcome.append((str(error), error.child))
            assert outcome[0] == outcome[1], child
            outcomes.append(outcome[0])
    refusals = " ".join(str(one) for one in outcomes if isinstance(one, tuple))
    assert all(reason in refusals for reason in ("cannot depend on itself", "directly or through", "at most 8"))
    assert len(outcomes) > refusals.count("depends_on") > 0


def _store(caller: Caller, choice: Choice) -> object:
    with transaction.atomic():
        found = replace(caller, [choice])
        transaction.set_rollback(True)
    return found[choice.child.pk]


@pytest.mark.django_db(transaction=True)
def test_two_changes_at_once_make_no_cycle() -> None:
    user = UserFactory()
    for _ in range(ROUNDS):
        first, second = (MonitorFactory(owner=user, heartbeat=True) for _ in range(2))
        outcomes = run_concurrently(partial(depend, user, first, second), partial(depend, user, second, first))
        assert sorted(isinstance(outcome, ValidationFailed) for outcome in outcomes) == [False, True]


@pytest.mark.django_db(transaction=True)
def test_four_changes_at_once_make_no_cycle_of_four() -> None:
    """No two of them that follow each other lock the same monitors."""
    user = UserFactory()
    for _ in range(ROUNDS):
        a, b, c, d = (MonitorFactory(owner=user, heartbeat=True) for _ in range(4))
        depend(user, a, b)
        depend(user, c, d)
        outcomes = run_concurrently(partial(depend, user, b, c), partial(depend, user, d, a))
        assert sorted(isinstance(outcome, ValidationFailed) for outcome in outcomes) == [False, True]


@pytest.mark.django_db(transaction=True)
def test_a_parent_that_is_deleted_meanwhile_leaves_no_row() -> None:
    user = UserFactory()
    for _ in range(ROUNDS):
        parent, child, other = (MonitorFactory(owner=user, heartbeat=True) for _ in range(3))
        depend(user, child, parent)
        outcomes = run_concurrently(
            partial(delete_monitor, Caller(user), parent.public_id),
            partial(depend, user, child, other, parent),
            partial(
                create_monitor,
                Caller(user),
                {"type": "heartbeat", "depends_on": [parent.public_id]},
                now=NOON,
            ),
        )
        assert outcomes[0] is None
        assert all(isinstance(each, Monitor | ValidationFailed) for each in outcomes[1:])
        assert not Dependency.objects.filter(parent_id=parent.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_parent_that_moves_meanwhile_leaves_no_row() -> None:
    user, receiver = UserFactory(), UserFactory()
    project = ProjectFactory(owner=receiver, member=user)
    for _ in range(ROUNDS):
        parent, child = (MonitorFactory(owner=user, heartbeat=True) for _ in range(2))
        move = partial(update_monitor, Caller(user), parent.public_id, {"project_id": project.public_id}, now=NOON)
        outcomes = run_concurrently(move, partial(depend, user, child, parent))
        assert isinstance(outcomes[0], Monitor)
        assert isinstance(outcomes[1], Monitor | ApiError)
        assert not Dependency.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_deletion_of_both_ends_no_change_in_a_deadlock() -> None:
    user = UserFactory()
    for _ in range(ROUNDS):
        parents = [MonitorFactory(owner=user, heartbeat=True) for _ in range(3)]
        child = MonitorFactory(owner=user, heartbeat=True)
        depend(user, child, *parents)
        outcomes = run_concurrently(
            partial(depend, user, child, *reversed(parents)),
            *(partial(delete_monitor, Caller(user), each.public_id) for each in (child, *parents)),
        )
        assert all(each is None or isinstance(each, Monitor | NotFound | ValidationFailed) for each in outcomes)
        assert not Dependency.objects.exists()
