"""Alerts of monitors that depend on others: one announcement for a parent and its children, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime

import pytest

from accounts.models import User
from alerts.models import AlertChannel
from checks.spec import Verdict
from incidents.models import Incident, IncidentEvent
from monitors.models import Dependency, Monitor, MonitorState
from monitors.operations import mute_for
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.alerts.drivers import Drive, at, events, make_channel, timeline
from tests.factories import UserFactory

Capture = Callable[..., AbstractContextManager[object]]
DOWN, UP = Verdict.DOWN, Verdict.UP
CHILDREN = 30


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    return user


@pytest.fixture(autouse=True)
def channel(owner: User) -> AlertChannel:
    return make_channel(owner)


@pytest.fixture
def drive() -> Drive:
    return Drive()


@pytest.fixture
def router(owner: User, drive: Drive) -> Monitor:
    return drive.monitor(owner, "Router", fail_threshold=3)


@pytest.fixture
def shop(owner: User, drive: Drive, router: Monitor) -> Monitor:
    return depends(drive.monitor(owner), router)


def depends(child: Monitor, *parents: Monitor) -> Monitor:
    Dependency.objects.bulk_create(
        Dependency(child=child, parent=parent, position=position) for position, parent in enumerate(parents)
    )
    return child


def is_checked(monitor: Monitor) -> bool:
    return MonitorState.objects.get(pk=monitor.pk).claimed_at is not None


def outage(monitor: Monitor) -> Incident:
    return Incident.objects.filter(monitor=monitor).latest("pk")


def fail(drive: Drive, monitor: Monitor, *seconds: float) -> None:
    for each in seconds:
        drive.check(monitor, DOWN, at(each))


def sent(drive: Drive) -> list[tuple[str, str]]:
    return [item for message in drive.sent for item in message.items]


def test_alerts_are_held_while_the_parent_is_down(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, router, 60, 70, 80)
    drive.tick(at(81))
    fail(drive, shop, 90)
    drive.ticks(at(90), at(700), every=10)
    incident = outage(shop)
    assert (incident.quiet, incident.caused_by) == ("held", outage(router))
    held = incident.events.get(type=IncidentEvent.Type.SUPPRESSED)
    assert held.text == "Alerts are held: Router is down."
    assert held.data == {"reason": "held", "cause": outage(router).public_id}
    drive.check(shop, UP, at(710))
    drive.ticks(at(710), at(760), every=10)
    drive.check(router, UP, at(760))
    drive.ticks(at(760), at(1200), every=10)
    assert sent(drive) == [("down", "Router"), ("recovered", "Router")]
    assert timeline(outage(shop)) == ["first_failure", "confirmed", "suppressed", "resolved"]


def test_a_parent_is_checked_at_once_and_its_checks_follow(
    drive: Drive, router: Monitor, shop: Monitor, django_capture_on_commit_callbacks: Capture
) -> None:
    fail(drive, shop, 60)
    with django_capture_on_commit_callbacks(execute=True):
        drive.tick(at(61))
    assert is_checked(router)
    fail(drive, router, 62)
    MonitorState.objects.filter(pk=router.pk).update(claimed_at=None)
    with django_capture_on_commit_callbacks(execute=True):
        drive.ticks(at(63), at(71), every=1)
    assert not is_checked(router), "10 s apart"
    with django_capture_on_commit_callbacks(execute=True):
        drive.ticks(at(72), at(74), every=1)
    assert is_checked(router)
    fail(drive, router, 72, 82)
    drive.ticks(at(83), at(120), every=1)
    assert sent(drive) == [("down", "Router")]
    assert outage(shop).caused_by == outage(router)


def test_the_alert_follows_when_the_parent_is_up(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, shop, 60)
    assert drive.tick(at(61)) == []
    drive.check(router, UP, at(62))
    assert events(drive.tick(at(63))) == ["down"]
    assert timeline(outage(shop)) == ["first_failure", "confirmed", "announced", "alert_sent"]


def test_a_parent_that_was_checked_lately_is_not_checked_again(
    drive: Drive, owner: User, router: Monitor, django_capture_on_commit_callbacks: Capture
) -> None:
    shop = depends(drive.monitor(owner, fail_threshold=2), router)
    fail(drive, shop, 45)
    drive.check(router, UP, at(46))
    MonitorState.objects.filter(pk=router.pk).update(claimed_at=None)
    fail(drive, shop, 60)
    with django_capture_on_commit_callbacks(execute=True):
        assert events(drive.tick(at(61))) == ["down"]
    assert not is_checked(router)


def test_a_check_before_the_first_failure_proves_nothing(drive: Drive, router: Monitor, shop: Monitor) -> None:
    drive.check(router, UP, at(58))
    fail(drive, shop, 60)
    assert drive.tick(at(61)) == []
    fail(drive, router, 62, 72, 82)
    drive.ticks(at(83), at(120), every=1)
    assert sent(drive) == [("down", "Router")]


def test_a_check_of_the_parent_that_never_comes_holds_nothing_for_long(
    drive: Drive, router: Monitor, shop: Monitor
) -> None:
    fail(drive, shop, 60)
    assert drive.ticks(at(61), at(360), every=3) == []
    assert events(drive.ticks(at(361), at(364), every=1)) == ["down"]


def test_doubt_ends_after_five_minutes(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, shop, 60)
    fail(drive, router, 61)
    assert drive.ticks(at(62), at(360), every=2) == []
    assert events(drive.ticks(at(361), at(366), every=1)) == ["down"]


@pytest.mark.parametrize("threshold", [1, 3])
def test_after_the_recovery_further_checks_decide(drive: Drive, owner: User, router: Monitor, threshold: int) -> None:
    shop = depends(drive.monitor(owner, fail_threshold=threshold), router)
    fail(drive, router, 60, 70, 80)
    fail(drive, shop, *(90 + 10 * number for number in range(threshold)))
    drive.ticks(at(130), at(140), every=1)
    drive.check(router, UP, at(150))
    for number in range(threshold):
        assert events(drive.ticks(at(151 + 60 * number), at(209 + 60 * number), every=2)) in (["recovered"], [])
        fail(drive, shop, 210 + 60 * number)
    last = 151 + 60 * threshold
    assert events(drive.ticks(at(last), at(last + 6), every=1)) == ["down"]
    assert outage(shop).caused_by is None
    drive.check(shop, UP, at(last + 60))
    drive.tick(at(last + 61))
    assert sent(drive) == [("down", "Router"), ("recovered", "Router"), ("down", "Shop"), ("recovered", "Shop")]


def test_it_is_held_for_further_checks_if_no_worker_ran_meanwhile(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, router, 60, 70, 80)
    fail(drive, shop, 90)
    drive.check(router, UP, at(150))
    assert events(drive.ticks(at(160), at(200), every=5)) == ["down", "recovered"]
    fail(drive, shop, 210)
    drive.ticks(at(211), at(260), every=5)
    assert sent(drive)[2:] == [("down", "Shop")]


def test_an_outage_that_no_worker_saw_is_not_announced_either(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, shop, 50)
    fail(drive, router, 60, 70, 80)
    drive.check(shop, UP, at(140))
    drive.check(router, UP, at(150))
    drive.ticks(at(200), at(300), every=5)
    assert sent(drive) == [("down", "Router"), ("recovered", "Router")]
    assert outage(shop).quiet == "held"


def test_a_parent_that_is_down_again_held_the_outage_too(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, router, 60, 70, 80)
    fail(drive, shop, 90)
    drive.check(shop, UP, at(140))
    drive.check(router, UP, at(150))
    fail(drive, router, 160, 170, 180)
    drive.ticks(at(200), at(260), every=5)
    assert {name for _, name in sent(drive)} == {"Router"}


def test_an_outage_before_that_of_the_parent_is_announced_late(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, shop, 20)
    drive.check(shop, UP, at(50))
    fail(drive, router, 60, 70, 80)
    drive.ticks(at(200), at(300), every=5)
    assert sorted(sent(drive)) == [("down", "Router"), ("down", "Shop"), ("recovered", "Shop")]


def test_one_that_is_over_waits_while_the_parent_is_in_doubt(drive: Drive, router: Monitor, shop: Monitor) -> None:
    fail(drive, shop, 60)
    fail(drive, router, 61)
    drive.check(shop, UP, at(65))
    assert drive.ticks(at(66), at(80), every=1) == []
    drive.check(router, UP, at(81))
    drive.ticks(at(82), at(90), every=1)
    assert sent(drive) == [("down", "Shop"), ("recovered", "Shop")]


def _pause(owner: User, router: Monitor, now: datetime) -> None:
    update_monitor(Caller(owner), router.public_id, {"enabled": False}, now=now)


def _mute(owner: User, router: Monitor, now: datetime) -> None:
    mute_for([router.pk], minutes=60, now=now)


def _delete(owner: User, router: Monitor, now: datetime) -> None:
    delete_monitor(Caller(owner), router.public_id)


@pytest.mark.parametrize("end", [_pause, _mute, _delete])
def test_a_parent_that_is_paused_muted_or_deleted_holds_nothing(
    drive: Drive, owner: User, router: Monitor, shop: Monitor, end: Callable[[User, Monitor, datetime], None]
) -> None:
    fail(drive, router, 60, 70, 80)
    fail(drive, shop, 90)
    drive.ticks(at(91), at(100), every=1)
    assert sent(drive) == [("down", "Router")]
    end(owner, router, at(101))
    drive.ticks(at(101), at(120), every=1)
    assert ("down", "Shop") in sent(drive)


def test_a_monitor_of_another_account_holds_nothing(drive: Drive, router: Monitor, shop: Monitor) -> None:
    Monitor.objects.filter(pk=router.pk).update(owner=UserFactory())
    fail(drive, router, 60, 70, 80)
    fail(drive, shop, 90)
    assert ("down", "Shop") in [item for message in drive.tick(at(91)) for item in message.items]


def test_one_of_several_parents_is_enough(drive: Drive, owner: User, router: Monitor) -> None:
    power = drive.monitor(owner, "Power")
    shop = depends(drive.monitor(owner), router, power)
    drive.check(router, UP, at(60))
    fail(drive, power, 60)
    fail(drive, shop, 61)
    drive.ticks(at(62), at(200), every=2)
    assert sent(drive) == [("down", "Power")]
    assert outage(shop).caused_by == outage(power)


def test_reminders_are_held_and_recoveries_are_not(drive: Drive, owner: User, router: Monitor) -> None:
    AlertChannel.objects.update(remind_every_hours=1)
    shop = depends(drive.monitor(owner), router)
    fail(drive, shop, 61)
    drive.check(router, UP, at(62))
    drive.tick(at(62))
    fail(drive, router, 100, 110, 120)
    drive.tick(at(121))
    reminded = drive.remind(at(4000))
    assert [item for message in reminded for item in message.items] == [("reminder", "Router")]
    drive.check(shop, UP, at(4010))
    assert events(drive.tick(at(4011))) == ["recovered"]


def test_a_heartbeat_has_until_its_next_deadline(drive: Drive, owner: User, router: Monitor) -> None:
    backup = depends(drive.monitor(owner, "Backup", type="heartbeat", url="", interval_sec=600, grace_sec=60), router)
    fail(drive, router, 60, 70, 80)
    fail(drive, backup, 90)
    drive.ticks(at(91), at(120), every=5)
    drive.check(router, UP, at(130))
    drive.ticks(at(131), at(130 + 660), every=5)
    assert ("down", "Backup") not in sent(drive)
    drive.ticks(at(130 + 661), at(130 + 670), every=1)
    assert sent(drive)[2:] == [("down", "Backup")]


def test_a_heartbeat_holds_as_a_parent(drive: Drive, owner: User) -> None:
    power = drive.monitor(owner, "Power", type="heartbeat", url="", interval_sec=600, grace_sec=60)
    shop = depends(drive.monitor(owner), power)
    fail(drive, power, 60)
    fail(drive, shop, 61)
    drive.ticks(at(62), at(100), every=2)
    assert sent(drive) == [("down", "Power")]


@pytest.mark.parametrize("seed", range(12))
def test_one_announcement_in_any_order(drive: Drive, owner: User, router: Monitor, seed: int) -> None:
    """The parent fails its checks whenever it is checked, and ticks come at any time, also none for long."""
    chance = random.Random(seed)
    names = [f"Shop {number}" for number in range(CHILDREN)]
    children = drive.monitors(owner, names, fail_threshold=1)
    for child in children:
        depends(child, router)
    failures: list[tuple[float, Monitor]] = [(60 + chance.uniform(0, 50), child) for child in children]
    failures += [(61 + moment, router) for moment in (chance.uniform(0, 10), 20, 30)]
    recoveries = [(400 + chance.uniform(0, 20), monitor) for monitor in (*children, router)]
    ticks = [chance.uniform(60, 500) for _ in range(chance.choice((0, 3, 60)))]
    happens: list[tuple[float, Monitor | None, Verdict]] = [
        *((moment, monitor, DOWN) for moment, monitor in failures),
        *((moment, monitor, UP) for moment, monitor in recoveries),
        *((moment, None, UP) for moment in ticks),
    ]
    for moment, monitor, verdict in sorted(happens, key=lambda each: each[0]):
        if monitor is None:
            drive.tick(at(moment))
        else:
            drive.check(monitor, verdict, at(moment))
    drive.ticks(at(500), at(560), every=1)
    assert sorted(sent(drive)) == [("down", "Router"), ("recovered", "Router")]
