"""Steps, acknowledgements, recoveries and deletions at the same instant, in processes that may die."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from accounts.models import User
from accounts.services import delete_account
from alerts import notify
from alerts.models import AlertChannel, DeliveryItem
from checks.spec import Verdict
from core.errors import NotEscalating
from incidents import consuming
from incidents.models import Escalation, Incident
from incidents.services import acknowledge
from monitors.models import Monitor
from oncall import escalating
from oncall.escalating import escalate, run_due, unacknowledge
from oncall.models import EscalationPolicy
from oncall.services import delete_policy
from projects.access import Caller
from projects.models import Project
from tests.alerts.drivers import Drive, at, events
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.helpers import is_awaited, run_concurrently
from tests.oncall.making import make_policy, texts
from tests.processes.waiting import until

DOWN, UP = Verdict.DOWN, Verdict.UP
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def project() -> Project:
    return ProjectFactory()


@pytest.fixture
def anna(project: Project) -> User:
    user = UserFactory()
    MembershipFactory(project=project, user=user)
    return user


def owner_of(project: Project) -> User:
    owner = project.memberships.get(role="owner").user
    assert owner is not None
    return owner


def break_down(drive: Drive, project: Project, names: list[str], *steps: Any) -> list[Monitor]:
    """Let monitors of a project with this policy fail, and begin their escalations. Nothing is sent."""
    Project.objects.update(escalation_policy=make_policy(project, *steps))
    monitors = drive.monitors(owner_of(project), names, project_id=project.public_id)
    drive.checks(monitors, DOWN, at(60))
    consume()
    notify.notify_incidents(at(61))
    return monitors


def consume() -> None:
    consuming.consume(at(61), slow=lambda _: None)


def steps() -> Counter[str]:
    """Return how often each step was written."""
    sources = DeliveryItem.objects.filter(source__startswith="esc:").values_list("source", flat=True)
    return Counter(source.rpartition(":")[0] for source in sources)


def test_several_processes_run_each_step_once(drive: Drive, project: Project, anna: User) -> None:
    break_down(drive, project, [f"Shop {n}" for n in range(20)], (0, [anna]), (1, [anna]))
    for now in (at(61), at(130)):
        run_concurrently(*[partial(run_due, now)] * 4)
        while run_due(now):
            pass
        run_due(now)
    assert len(steps()) == 40
    assert set(steps().values()) == {1}


def test_acknowledged_and_escalated_at_the_same_instant(drive: Drive, project: Project, anna: User) -> None:
    break_down(drive, project, ["Shop"], (0, [anna]), *[(60, [anna])] * 9)
    run_due(at(61))
    incident = Incident.objects.get()
    for number in range(3):
        outcomes = run_concurrently(
            partial(acknowledge, Caller(anna), incident.public_id, now=at(70)),
            partial(escalate, Caller(anna), incident.public_id, now=at(70)),
            partial(run_due, at(70)),
        )
        assert isinstance(outcomes[0], Incident), outcomes
        assert isinstance(outcomes[1], Incident | NotEscalating), outcomes
        row = Escalation.objects.get()
        assert (row.state, row.next_at, row.run) == ("acknowledged", None, number)
        before = sum(steps().values())
        run_due(at(9999))
        assert sum(steps().values()) == before
        unacknowledge(Caller(anna), incident.public_id, now=at(71))
        run_due(at(71))
    assert set(steps().values()) == {1}
    drive.deliver(at(90))
    assert events(drive.sent) == ["down"], "the step of the last run alone"


def test_recovered_and_due_at_the_same_instant(drive: Drive, project: Project, anna: User) -> None:
    (monitor,) = break_down(drive, project, ["Shop"], (0, [anna]), (1, [anna]))
    run_due(at(61))
    drive.deliver(at(61))
    drive.check(monitor, UP, at(120))
    run_concurrently(consume, partial(run_due, at(121)), partial(notify.notify_incidents, at(121)))
    for _ in range(2):
        consume()
        run_due(at(200))
        notify.notify_incidents(at(200))
        drive.deliver(at(200))
    assert events(drive.sent)[0] == "down"
    assert events(drive.sent)[-1].endswith("recovered")
    assert Escalation.objects.get().state == "finished"


def test_a_process_that_dies_while_it_runs_a_step(
    drive: Drive, project: Project, anna: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down(drive, project, ["Shop"], (0, [anna]))

    def die(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(escalating, "write_columns", die)
        with pytest.raises(SystemExit):
            run_due(at(61))
    assert not DeliveryItem.objects.exists()
    with monkeypatch.context() as patch:
        patch.setattr("alerts.batch.put", die)
        with pytest.raises(SystemExit):
            run_due(at(62))
    assert Escalation.objects.get().step == 0
    run_due(at(63))
    drive.deliver(at(63))
    assert events(drive.sent) == ["down"]


def test_a_policy_that_is_deleted_while_outages_begin(drive: Drive, project: Project, anna: User) -> None:
    policy = make_policy(project, (0, [anna]))
    Project.objects.update(escalation_policy=policy)
    monitors = drive.monitors(owner_of(project), [f"Shop {n}" for n in range(10)], project_id=project.public_id)
    drive.checks(monitors, DOWN, at(60))
    consume()
    outcomes = run_concurrently(
        partial(notify.notify_incidents, at(61)),
        partial(delete_policy, Caller(owner_of(project)), policy.public_id),
        partial(run_due, at(61)),
    )
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    for second in (62, 63):
        notify.notify_incidents(at(second))
        run_due(at(second))
    assert not Incident.objects.filter(announced_at=None).exists()
    assert DeliveryItem.objects.values("incident").distinct().count() == 10, "a channel is notified of each"


def test_a_policy_that_another_transaction_deletes_is_waited_for(drive: Drive, project: Project, anna: User) -> None:
    policy = make_policy(project, (0, [anna]))
    Project.objects.update(escalation_policy=policy)
    drive.check(drive.monitor(owner_of(project), "Shop", project_id=project.public_id), DOWN, at(60))
    consume()
    with transaction.atomic():
        delete_policy(Caller(owner_of(project)), policy.public_id)
        (outcome,) = run_concurrently(partial(notify.notify_incidents, at(61)))
        assert outcome is False
        assert Incident.objects.get().announced_at is None
    notify.notify_incidents(at(62))
    drive.deliver(at(62))
    assert {one.channel_id for one in drive.sent} == {AlertChannel.objects.get(owner=owner_of(project)).pk}


def test_the_owners_channel_is_created_once(
    drive: Drive, project: Project, anna: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    AlertChannel.objects.all().delete()
    break_down(drive, project, [f"Shop {n}" for n in range(6)], (0, [anna]))
    # Not in the threads: the last one to undo it would leave it to all later tests.
    monkeypatch.setattr(escalating, "BATCH", 1)

    def one_by_one() -> None:
        while run_due(at(61)):
            pass

    outcomes = run_concurrently(*[one_by_one] * 3)
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    one_by_one()
    channel = AlertChannel.objects.get()
    assert (channel.owner, channel.topics) == (owner_of(project), [])
    assert DeliveryItem.objects.count() == 6


def test_a_person_who_is_deleted_while_they_are_notified(drive: Drive, project: Project, anna: User) -> None:
    ben = UserFactory()
    MembershipFactory(project=project, user=ben)
    break_down(drive, project, [f"Shop {n}" for n in range(10)], (0, [anna, ben]))
    outcomes = run_concurrently(partial(run_due, at(61)), partial(delete_account, anna))
    assert [one for one in outcomes if isinstance(one, Exception)] == []
    run_due(at(62))
    drive.deliver(at(80))
    assert {one.channel_id for one in drive.sent} >= {AlertChannel.objects.get(owner=ben).pk}
    assert {(row.state, row.step, row.reached) for row in Escalation.objects.all()} == {("finished", 0, True)}


def test_acknowledged_while_the_account_is_deleted(drive: Drive, project: Project, anna: User) -> None:
    break_down(drive, project, ["Shop"], (0, [anna]))
    incident = Incident.objects.get()
    run_concurrently(partial(delete_account, anna), partial(acknowledge, Caller(anna), incident.public_id, now=at(70)))
    incident.refresh_from_db()
    assert incident.acknowledged_by is None
    assert not User.objects.filter(pk=anna.pk).exists()


def test_a_step_waits_for_the_deletion_of_an_account(drive: Drive, project: Project, anna: User) -> None:
    """Else it would note an address after the deletion has removed it from all timelines."""
    ben = UserFactory()
    MembershipFactory(project=project, user=ben)
    break_down(drive, project, ["Shop"], (0, [anna, ben]), (5, [ben]))
    with transaction.atomic():
        delete_account(anna)
        run_concurrently(partial(run_due, at(61)))
        assert not DeliveryItem.objects.exists()
    run_due(at(62))
    step = f"Step 1 of “Backend”: a person who has left; {ben.email} by e-mail at once."
    assert texts(Incident.objects.get())[-1] == step
    with transaction.atomic():
        User.objects.select_for_update().get(pk=ben.pk)
        run_concurrently(partial(run_due, at(362)))
    assert Escalation.objects.get().state == "running"
    with transaction.atomic():
        User.objects.select_for_update().get(pk=ben.pk)
        run_concurrently(partial(run_due, at(372)))
    assert Escalation.objects.get().state == "finished", "a page is more urgent"


def test_taken_back_while_the_policy_is_deleted(drive: Drive, project: Project, anna: User) -> None:
    break_down(drive, project, ["Shop"], (5, [anna]))
    incident, policy = Incident.objects.get(), EscalationPolicy.objects.get()
    acknowledge(Caller(anna), incident.public_id, now=at(70))
    back = partial(unacknowledge, Caller(anna), incident.public_id, now=at(80))
    other = threading.Thread(target=run_concurrently, args=[back])
    with transaction.atomic():
        delete_policy(Caller(owner_of(project)), policy.public_id)
        other.start()
        until(is_awaited, 30, "it waits for the deletion")
    other.join()
    assert Escalation.objects.get().state == "finished"
    assert [item.channel.owner for item in DeliveryItem.objects.all()] == [owner_of(project)]
