"""Concurrent processes turn changes into messages: they share the work and keep the order per monitor."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, QuerySet
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts import notify, tasks
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import STORM_SIZE, OutboxItem, put
from checks.spec import Verdict
from core.clock import utc_now
from core.db import Turns, lock_in_turn
from incidents import consuming, flapping
from incidents.models import FlappingSpell, Incident, IncidentEvent, MaintenanceWindow
from monitors.models import LocationFailure, Monitor, PingExcess, StatusChange
from monitors.services import delete_monitor
from projects.access import Caller
from projects.models import Project
from projects.services import delete_project
from tests.alerts.drivers import Drive, at, make_channel, notify_all, timeline
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import is_awaited, run_concurrently
from tests.processes.waiting import until

DOWN, UP = Verdict.DOWN, Verdict.UP
pytestmark = pytest.mark.django_db(transaction=True)


def account() -> User:
    """Create an account with a single channel."""
    user = UserFactory()
    AlertChannel.objects.filter(owner=user).delete()
    make_channel(user)
    return user


@pytest.fixture
def drive() -> Drive:
    return Drive()


@contextmanager
def small_batches(monkeypatch: pytest.MonkeyPatch, size: int) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(consuming, "BATCH", size)
        patch.setattr(notify, "BATCH", size)
        yield


def consume() -> bool:
    now = utc_now()
    return consuming.consume(now, slow=partial(notify.notify_slow, now=now))


def step() -> None:
    """Process a batch, as each process does."""
    consume()
    notify.notify_incidents(utc_now())


def elsewhere(action: Callable[[], object]) -> None:
    """Run it over another connection."""
    run_concurrently(action)


def pending() -> list[tuple[int, str | None]]:
    return list(StatusChange.objects.filter(processed_at=None).order_by("pk").values_list("monitor", "after"))


def window(owner: User, start: float, end: float) -> MaintenanceWindow:
    """Create a window for all monitors."""
    return MaintenanceWindow.objects.create(
        owner=owner,
        created_at=at(0),
        name="Upgrade",
        starts_at=at(start),
        ends_at=at(end),
        current_starts_at=at(start),
        current_ends_at=at(end),
        all_monitors=True,
    )


def named(owner: User) -> list[tuple[str, str]]:
    """The event type and monitor of each item, in the order in which they were written."""
    items = DeliveryItem.objects.filter(channel__owner=owner).order_by("pk")
    return [(item.payload["event_type"], item.payload["monitor"]) for item in items]


def test_changes_that_one_has_locked_do_not_stop_the_others(drive: Drive) -> None:
    one, other = account(), account()
    held, free = drive.monitor(one, "held"), drive.monitor(other, "free")
    consume()
    drive.check(held, DOWN, at(60))
    with transaction.atomic():
        assert lock_in_turn(StatusChange.objects.filter(processed_at=None), account="monitor__owner", most=1)[0]
        elsewhere(partial(drive.check, free, DOWN, at(61)))
        elsewhere(partial(drive.check, held, UP, at(120)))
        elsewhere(step)
        assert named(other) == [("down", "free")]
        assert pending() == [(held.pk, "down"), (held.pk, "up")], "its later change waits for the locked one"
    elsewhere(step)
    assert named(one) == [("down", "held"), ("recovered", "held")]


def test_an_incident_that_one_has_locked_is_notified_before_the_next_of_its_monitor(drive: Drive) -> None:
    one, other = account(), account()
    held, free = drive.monitor(one, "held"), drive.monitor(other, "free")
    for second, verdict in ((60, DOWN), (120, UP), (180, DOWN)):
        drive.checks([held, free], verdict, at(second))
    consume()
    with transaction.atomic():
        Incident.objects.select_for_update().filter(monitor=held).order_by("pk").first()
        elsewhere(partial(notify.notify_incidents, utc_now()))
        assert (named(one), len(named(other))) == ([], 3)
    elsewhere(partial(notify.notify_incidents, utc_now()))
    assert [event_type for event_type, _ in named(one)] == ["down", "recovered", "down"]


def test_incidents_behind_a_locked_one_do_not_end_the_run(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = account()
    held, *free = drive.monitors(owner, ["held", "one", "two"])
    for second, verdict in ((60, DOWN), (120, UP), (180, DOWN)):
        drive.check(held, verdict, at(second))
    drive.checks(free, DOWN, at(200))
    consume()
    with transaction.atomic(), small_batches(monkeypatch, 2):
        Incident.objects.select_for_update().filter(monitor=held).order_by("pk").first()
        elsewhere(partial(notify_all, utc_now()))
        assert named(owner) == [("down", "one"), ("down", "two")]


def test_small_batches_end_and_keep_the_order_after_a_silence(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """All monitors have a pending recovery and a pending new outage, more of each than fit into a batch."""
    settings.FLAPPING_CHANGES = 1000
    owner = account()
    monitors = drive.monitors(owner, [f"m{number}" for number in range(5)])
    drive.checks(monitors, DOWN, at(60))
    drive.tick(at(61))
    window(owner, 100, 1000)
    drive.checks(monitors, UP, at(912))
    drive.tick(at(912))
    drive.checks(monitors, DOWN, at(926))
    with small_batches(monkeypatch, 2):
        for second in range(926, 1020):
            drive.tick(at(second))
    for monitor in monitors:
        sent = [event_type for event_type, name in named(owner) if name == monitor.name]
        assert sent == ["down", "recovered", "still_down"]


def test_a_storm_of_one_account_does_not_hold_up_another(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    stormy, other = account(), account()
    monitors = drive.monitors(stormy, [f"m{number}" for number in range(30)])
    lone = drive.monitor(other, "lone")
    consume()
    drive.checks(monitors, DOWN, at(60))
    drive.check(lone, DOWN, at(61))
    with small_batches(monkeypatch, 4):
        step()
    assert named(other) == [("down", "lone")]
    assert len(named(stormy)) == 3


def test_processes_keep_the_order_and_notify_of_each_thing_once(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.FLAPPING_CHANGES = 1000
    owners = [account(), account()]
    monitors = [
        monitor
        for number, owner in enumerate(owners)
        for monitor in drive.monitors(owner, [f"{number}-{n}" for n in range(4)])
    ]
    verdicts = [DOWN, UP, DOWN, UP, DOWN]

    def record() -> None:
        for second, verdict in enumerate(verdicts):
            drive.checks(monitors, verdict, at(60 * second + 60))

    def work() -> None:
        for _ in range(12):
            step()

    with small_batches(monkeypatch, 3):
        run_concurrently(record, work, work, work)
        while Incident.objects.filter(announced_at=None).exists() or pending():
            step()
    step()
    expected = {"down": 3, "recovered": 2}
    for owner in owners:
        by_monitor: dict[str, list[str]] = defaultdict(list)
        for event_type, name in named(owner):
            by_monitor[name].append(event_type)
        assert len(by_monitor) == 4
        for found in by_monitor.values():
            assert found == ["down", "recovered", "down", "recovered", "down"], found
            assert Counter(found) == expected
    assert Incident.objects.count() == len(monitors) * 3
    for incident in Incident.objects.all():
        assert timeline(incident)[:2] == ["first_failure", "confirmed"]


def test_processes_gather_the_items_of_a_channel_into_one_message() -> None:
    channel = AlertChannel.objects.get(owner=account())

    def write(name: str) -> None:
        payload = Payload(EventType.SLOW, at=0)
        with transaction.atomic():
            put([OutboxItem(f"{name}:{n}", payload, [channel.pk]) for n in range(STORM_SIZE + 1)], now=at(60))

    other = threading.Thread(target=elsewhere, args=[partial(write, "other")])
    with transaction.atomic():
        write("one")
        other.start()
        until(lambda: not other.is_alive() or is_awaited(), 30, "the other process waits for this one")
    other.join()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.items.count()) == ("gathering", 2 * (STORM_SIZE + 1))


def lock_during(action: Callable[[], object], *steps: QuerySet[Any]) -> None:
    """Lock the rows step by step, as workers do, while `action` waits for the first. Neither ends by a deadlock."""
    errors: list[DatabaseError] = []

    def run() -> None:
        try:
            elsewhere(action)
        except DatabaseError as error:
            errors.append(error)

    other = threading.Thread(target=run)
    first, *later = (step.select_for_update(no_key=True).order_by("pk") for step in steps)
    with transaction.atomic():
        assert list(first)
        other.start()
        until(lambda: not other.is_alive() or is_awaited(), 30, "the other process waits for this one")
        assert all(list(step) for step in later)
    other.join()
    assert errors == []


def test_a_monitor_is_deleted_while_workers_process_its_changes(drive: Drive) -> None:
    owner = account()
    monitor = drive.monitor(owner, "Shop")
    consume()
    drive.check(monitor, DOWN, at(60))
    consume()
    flapping.begin(monitor.pk, changed_at=at(60), now=at(60))
    drive.check(monitor, UP, at(120))
    changes, spells = StatusChange.objects.filter(processed_at=None), FlappingSpell.objects.all()
    delete = partial(delete_monitor, Caller(owner), monitor.public_id)
    lock_during(delete, changes, Incident.objects.all(), spells)
    assert Incident.objects.get().monitor is None


def test_a_monitor_is_deleted_while_a_worker_ends_its_spell(drive: Drive) -> None:
    owner = account()
    monitor = drive.monitor(owner, "Shop")
    drive.check(monitor, DOWN, at(60))
    consume()
    flapping.begin(monitor.pk, changed_at=at(60), now=at(60))
    delete = partial(delete_monitor, Caller(owner), monitor.public_id)
    lock_during(delete, Incident.objects.all(), FlappingSpell.objects.all())
    assert not FlappingSpell.objects.exists()


@pytest.mark.parametrize("rows", [LocationFailure, PingExcess], ids=["partial-outage", "too-often"])
def test_a_monitor_is_deleted_while_something_else_of_it_is_notified(
    drive: Drive, rows: type[LocationFailure | PingExcess]
) -> None:
    """Alerts lock channels afterwards, which a sender has locked that notes an earlier alert of an incident."""
    owner = account()
    monitor = drive.monitor(owner, "Shop")
    drive.check(monitor, DOWN, at(60))
    consume()
    LocationFailure.objects.create(monitor=monitor, config_version=1, failures=1, since=at(60))
    PingExcess.objects.create(monitor=monitor, at=at(60), allowed=1)
    delete = partial(delete_monitor, Caller(owner), monitor.public_id)
    lock_during(delete, rows._default_manager.all(), Incident.objects.all())
    assert not rows._default_manager.exists()


def test_a_project_is_deleted_while_its_window_ends(drive: Drive) -> None:
    owner, project, _ = project_with_outage(drive)
    made = window(owner, 100, 200)
    MaintenanceWindow.objects.filter(pk=made.pk).update(project=project)
    lock_during(
        partial(delete_project, Caller(owner), project.public_id),
        MaintenanceWindow.objects.all(),
        Incident.objects.all(),
    )
    assert not MaintenanceWindow.objects.exists()


def test_a_project_is_deleted_while_its_changes_become_incidents(drive: Drive) -> None:
    owner, project, monitor = project_with_outage(drive)
    other = drive.monitor(owner, "other", project=project)
    consume()
    drive.check(monitor, UP, at(120))
    drive.check(other, DOWN, at(120))
    deletion = threading.Thread(target=elsewhere, args=[partial(delete_project, Caller(owner), project.public_id)])

    def delete(_: object) -> None:
        deletion.start()
        until(lambda: not deletion.is_alive() or is_awaited(), 30, "the deletion waits for this transaction")

    consuming.consume(at(121), slow=delete)
    deletion.join()
    assert not Project.objects.filter(pk=project.pk).exists()
    assert [incident.is_open for incident in Incident.objects.order_by("pk")] == [False, True]


def test_changes_in_a_project_that_is_being_deleted_wait(drive: Drive) -> None:
    _, project, monitor = project_with_outage(drive)
    drive.check(monitor, UP, at(120))
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=project.pk)
        elsewhere(consume)
        assert pending() == [(monitor.pk, "up")]
    consume()
    assert pending() == []


def project_with_outage(drive: Drive) -> tuple[User, Project, Monitor]:
    owner = account()
    project = ProjectFactory(owner=owner)
    monitor = drive.monitor(owner, "Shop", project=project)
    drive.check(monitor, DOWN, at(60))
    consume()
    return owner, project, monitor


def test_an_incident_follows_a_monitor_that_moves_while_its_changes_wait(drive: Drive) -> None:
    """Its earlier change belongs to the new account, which is notified."""
    before, after = account(), account()
    monitor = drive.monitor(before, "moved")
    drive.check(monitor, DOWN, at(60))
    Monitor.objects.filter(pk=monitor.pk).update(owner=after)
    step()
    assert (Incident.objects.get().owner, named(before), named(after)) == (after, [], [("down", "moved")])


def test_processes_end_a_window_and_remind_once(drive: Drive) -> None:
    owner = account()
    monitor = drive.monitor(owner, "Shop")
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    window(owner, 100, 200)
    run_concurrently(*[partial(notify.notify_incidents, at(201))] * 3)
    assert [event_type for event_type, _ in named(owner)] == ["down", "still_down"]
    run_concurrently(*[partial(notify.remind, at(30 * 3600))] * 3)
    assert [event_type for event_type, _ in named(owner)][2:] == ["reminder"]
    assert IncidentEvent.objects.filter(type="announced").count() == 3


def test_a_mute_during_the_wait_for_an_incident_is_seen(drive: Drive) -> None:
    owner = account()
    monitor = drive.monitor(owner, "Shop")
    drive.check(monitor, DOWN, at(60))
    drive.tick(at(61))
    other = threading.Thread(target=elsewhere, args=[partial(notify.remind, at(30 * 3600))])
    with transaction.atomic():
        Incident.objects.select_for_update().get()
        Monitor.objects.filter(pk=monitor.pk).update(muted_until=at(40 * 3600))
        other.start()
        until(lambda: not other.is_alive() or is_awaited(), 30, "the other process waits for this one")
    other.join()
    assert [event_type for event_type, _ in named(owner)] == ["down"]


def test_a_process_makes_one_tick_at_a_time(drive: Drive) -> None:
    """The other threads of `interactive` are for first checks."""
    drive.check(drive.monitor(account(), "Shop"), DOWN, at(60))
    with tasks._ticking:
        tasks.tick()
    assert not Incident.objects.exists()


def test_a_tick_with_nothing_to_do_is_cheap() -> None:
    tasks.tick()
    with CaptureQueriesContext(connection) as queries:
        tasks.tick()
    assert len(queries) <= 18, [query["sql"] for query in queries]


def test_an_account_is_notified_of_all_that_is_down_in_one_message(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a change of each account in turn, each would get a message for each batch."""
    monitors = [drive.monitors(account(), [f"monitor {number}" for number in range(5)]) for _ in range(4)]
    consume()
    drive.checks([each for own in monitors for each in own], DOWN, at(60))
    with small_batches(monkeypatch, 5):
        for _ in monitors:
            step()
            # A batch has the changes of one account.
            assert set(Counter(Incident.objects.values_list("owner", flat=True)).values()) == {5}
    assert not pending()
    assert [message.count for message in Delivery.objects.annotate(count=Count("items"))] == [5, 5, 5, 5]


def test_accounts_with_few_changes_do_not_wait_for_those_with_many(drive: Drive) -> None:
    few = [drive.monitor(account(), "few") for _ in range(3)]
    many = [drive.monitors(account(), [f"many {number}" for number in range(20)]) for _ in range(3)]
    consume()
    drive.checks([*(each for own in many for each in own), *few], DOWN, at(60))
    waiting = StatusChange.objects.filter(processed_at=None)
    last = {change.pk for change in waiting if change.monitor_id in {monitor.pk for monitor in few}}
    places: Counter[int] = Counter()
    for _ in range(30):
        with transaction.atomic():
            locked, _ = lock_in_turn(waiting, account="monitor__owner", most=23, turns=Turns(together=20))
            places.update(last.intersection(locked))
    assert sum(places.values()) > 75, "nearly always, as chance decides"
