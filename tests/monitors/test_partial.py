"""Monitors that fail from some of their locations: when turns count, and who is notified."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection, transaction

from accounts.models import User
from alerts.events import DEFAULT_TOPICS, EventType, Topic
from alerts.models import AlertChannel
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, ReasonCode, Verdict
from locations.models import Location
from monitors import partial, scheduling
from monitors.models import LocationFailure, Monitor, MonitorState, Verification
from monitors.operations import mute_for, pause, resume
from monitors.recording import record, verifying
from monitors.recording.batch import CheckRecord
from monitors.services import update_monitor
from projects.access import Caller
from tests.alerts.drivers import Drive, at, make_channel
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, is_awaited, state_of
from tests.locations import add_agent, shared
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

SPACING = settings.FLAPPING_MINUTES * 60
PLACES = ("fra", "ams", "lon")


@pytest.fixture
def owner() -> User:
    flush_broker()
    user = UserFactory()
    AlertChannel.objects.all().delete()
    return user


class Turns:
    """Makes checks of one monitor with three locations, each in its turn, every minute from NOON on."""

    def __init__(self, owner: User, *, name: str = "Shop", **given: object) -> None:
        self.agents = {}
        for place in PLACES:
            location = Location.objects.filter(public_id=place).first() or shared(place, name=place.title())
            self.agents[place] = location.agents.first() or add_agent(location)
        self.keys = {place: agent.location_id for place, agent in self.agents.items()}
        given = {"locations": list(PLACES), "fail_threshold": 2, "interval_sec": 60} | given
        self.monitor = MonitorFactory(owner=owner, name=name, up=True, **given)
        self.minute = 0

    @property
    def now(self) -> datetime:
        return at(60 * self.minute)

    def check(self, *failing: str, turns: int = 1, online: tuple[str, ...] = PLACES) -> None:
        """Make checks that fail from these locations and pass from the others, which answer at once."""
        for _ in range(turns):
            self.minute += 1
            self._check(failing, online)

    def _check(self, failing: tuple[str, ...], online: tuple[str, ...]) -> None:
        for agent in self.agents.values():
            agent.last_seen_at = self.now if agent.location.public_id in online else None
            agent.save()
        agents = {place: [self.agents[place].pk] for place in online}
        claims = scheduling.claim_due(self.now, limit=1_000, agents=agents)
        (claim,) = [one for one in claims if one.monitor_id == self.monitor.pk]
        (place,) = [place for place, agent in self.agents.items() if agent.pk == claim.agent_id]
        record([self._record(claim, place, failing)], now=self.now)
        others = [other for other in online if other != place]
        if Verification.objects.filter(monitor=self.monitor).exists():
            verifying.vote([self._record(claim, other, failing) for other in others], now=self.now)

    def _record(self, claim: scheduling.Claim, place: str, failing: tuple[str, ...]) -> CheckRecord:
        outcome = CheckOutcome(Verdict.UP, self.now, latency_ms=5)
        if place in failing:
            outcome = CheckOutcome(Verdict.DOWN, self.now, reason_code=ReasonCode.TIMEOUT, detail=f"No way to {place}.")
        agent = self.agents[place]
        key = (claim.monitor_id, claim.number, claim.config_version)
        return CheckRecord(*key, outcome, agent_id=agent.pk, location_id=agent.location_id)

    @property
    def failing_from(self) -> dict[str, int]:
        """Return the turns by location of those that make a partial outage."""
        places = {key: place for place, key in self.keys.items()}
        found = partial.failing_from([self.monitor])[self.monitor.pk]
        return {places[one.location_id]: one.failures for one in found if one.location_id is not None}


def details(drive: Drive) -> list[str | None]:
    return [payload.detail for payload in drive.payload if payload.event_type is EventType.PARTIAL_OUTAGE]


def test_a_location_that_fails_in_its_own_turns(owner: User) -> None:
    walk = Turns(owner)
    walk.check("fra", turns=3)
    assert walk.failing_from == {}
    walk.check("fra", turns=3)
    assert walk.failing_from == {"fra": 2}
    assert state_of(walk.monitor).status == Verdict.UP
    assert state_of(walk.monitor).failures == 0
    results = CheckResult.objects.filter(monitor_id=walk.monitor.pk, verdict="down")
    assert [(one.location_id, one.confirmed) for one in results] == [(walk.keys["fra"], False)] * 2
    walk.check(turns=3)
    assert walk.failing_from == {}
    assert not LocationFailure.objects.exists()


def test_counted_failures_of_a_location_count_too(owner: User) -> None:
    """Two of three see each failure, and the third resets the count: it is never down."""
    walk = Turns(owner, fail_threshold=3)
    walk.check("fra", "ams", turns=9)
    assert walk.failing_from == {"fra": 3, "ams": 3}
    assert state_of(walk.monitor).status == Verdict.UP


def test_an_outage_is_no_partial_one(owner: User) -> None:
    walk = Turns(owner)
    walk.check("fra", turns=6)
    walk.check(*PLACES, turns=4)
    assert state_of(walk.monitor).status == Verdict.DOWN
    assert walk.failing_from == {}
    walk.check(turns=1)
    assert state_of(walk.monitor).status == Verdict.UP
    assert walk.failing_from == {}
    walk.check("fra", turns=6)
    assert walk.failing_from == {"fra": 2}


def test_nothing_counts_during_a_mute(owner: User) -> None:
    walk = Turns(owner)
    mute_for([walk.monitor.pk], minutes=60, now=walk.now)
    walk.check(*PLACES, turns=9)
    assert walk.failing_from == {}


def test_a_paused_monitor_fails_from_nowhere(owner: User) -> None:
    walk = Turns(owner)
    walk.check("fra", turns=6)
    pause([walk.monitor.pk], now=walk.now)
    assert walk.failing_from == {}
    resume([walk.monitor.pk], now=walk.now)
    assert walk.failing_from == {}
    walk.check("fra", turns=3)
    assert walk.failing_from == {}
    walk.check("fra", turns=3)
    assert walk.failing_from == {"fra": 2}


def test_a_location_that_is_left_out(owner: User) -> None:
    walk = Turns(owner)
    walk.check("fra", turns=6)
    update_monitor(Caller(owner), walk.monitor.public_id, {"locations": ["ams", "lon"]}, now=walk.now)
    assert walk.failing_from == {}
    walk.check("fra", turns=6, online=("ams", "lon"))
    assert walk.failing_from == {}
    partial.forget_offline([*PLACES, "default"])
    assert not LocationFailure.objects.exists(), "it would make recording each check slow"


def test_nothing_is_known_of_a_location_that_is_offline(owner: User) -> None:
    walk = Turns(owner, fail_threshold=3)
    walk.check("fra", "ams", turns=9)
    assert walk.failing_from.keys() == {"fra", "ams"}
    partial.forget_offline(["ams", "lon", "default"])
    assert walk.failing_from.keys() == {"ams"}


def test_the_workers_are_a_location_too(owner: User) -> None:
    monitor = MonitorFactory(owner=owner, up=True, locations=["default", "fra"]) if shared("fra") else None
    assert monitor is not None
    LocationFailure.objects.create(monitor=monitor, location_id=None, config_version=1, failures=3, since=at(0))
    (failure,) = partial.failing_from([monitor])[monitor.pk]
    assert failure.title == settings.LOCATION_NAME
    partial.forget_offline(["default", "fra"])
    assert LocationFailure.objects.exists()
    partial.forget_offline(["fra"])
    assert not LocationFailure.objects.exists()


def test_votes_about_a_locked_monitor_wait(owner: User) -> None:
    """They delay no other result of the same worker or agent."""
    free, held = Turns(owner), Turns(owner, name="Held", locations=list(PLACES))
    asked = {}
    for walk in (free, held):
        for agent in walk.agents.values():
            agent.last_seen_at = at(60)
            agent.save()
    for claim in scheduling.claim_due(at(60), limit=9, agents={place: [free.agents[place].pk] for place in PLACES}):
        (place,) = [place for place, agent in free.agents.items() if agent.pk == claim.agent_id]
        outcome = CheckOutcome(Verdict.DOWN, at(60), reason_code=ReasonCode.TIMEOUT, detail="No answer.")
        key = (claim.monitor_id, claim.number, claim.config_version)
        record([CheckRecord(*key, outcome, agent_id=claim.agent_id, location_id=free.keys[place])], now=at(60))
        other = next(one for one in PLACES if one != place)
        asked[claim.monitor_id] = CheckRecord(*key, outcome, location_id=free.keys[other])

    def votes() -> dict[int, int]:
        return {one.pk: len(one.votes) for one in Verification.objects.all()}

    hold, release = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic():
            MonitorState.objects.select_for_update().get(pk=held.monitor.pk)
            hold.set()
            release.wait(30)
        connection.close()

    with ThreadPoolExecutor() as pool:
        locking = pool.submit(lock)
        assert hold.wait(30)
        assert verifying.vote([*asked.values()], now=at(61)) == {held.monitor.pk}
        release.set()
        locking.result()
    assert held.monitor.pk in votes()
    assert votes()[held.monitor.pk] == 0
    assert free.monitor.pk not in votes(), "two of three: it is decided"
    assert verifying.vote([asked[held.monitor.pk]], now=at(62)) == set()
    assert votes() == {}


def test_no_channel_gets_them_by_default() -> None:
    assert Topic.PARTIAL_OUTAGE not in DEFAULT_TOPICS


def test_a_channel_with_the_topic_gets_one(owner: User) -> None:
    walk, drive, channel = Turns(owner), Drive(), make_channel(owner, topics=["partial_outage"])
    make_channel(owner, topics=DEFAULT_TOPICS)
    walk.check("fra", turns=3)
    assert drive.tick(walk.now) == []
    walk.check("fra", turns=3)
    sent = drive.tick(walk.now)
    assert [(message.channel_id, message.items) for message in sent] == [(channel.pk, (("partial_outage", "Shop"),))]
    assert details(drive) == ['from "Fra": No way to fra.']
    walk.check("fra", turns=3)
    assert drive.tick(walk.now) == []


def test_further_locations_follow_later(owner: User) -> None:
    walk, drive = Turns(owner, fail_threshold=3), Drive()
    make_channel(owner)
    walk.check("fra", turns=9)
    drive.tick(walk.now)
    first_at = walk.now
    walk.check("fra", "ams", turns=9)
    assert drive.tick(walk.now) == []
    drive.tick(first_at + timedelta(seconds=SPACING + 1))
    assert details(drive)[1:] == ['from "Ams": No way to ams.']


def test_one_that_comes_and_goes_is_sent_once_in_a_while(owner: User) -> None:
    walk, drive = Turns(owner, interval_sec=10), Drive()
    make_channel(owner)
    for _ in range(2):
        walk.check("fra", turns=6)
        drive.tick(walk.now)
        walk.check(turns=3)
        drive.tick(walk.now)
    assert len(details(drive)) == 1
    drive.tick(walk.now + timedelta(seconds=SPACING))
    assert len(details(drive)) == 1
    assert not LocationFailure.objects.exists()


def test_what_fails_again_soon_after_an_alert_is_sent_later(owner: User) -> None:
    walk, drive = Turns(owner), Drive()
    make_channel(owner)
    walk.check("fra", turns=6)
    drive.tick(walk.now)
    first_at = walk.now
    walk.check(turns=3)
    drive.tick(walk.now)
    walk.check("fra", turns=6)
    drive.tick(walk.now)
    assert len(details(drive)) == 1
    for number in (1, 2):
        drive.tick(first_at + timedelta(seconds=number * (SPACING + 1)))
        assert len(details(drive)) == 2


def test_what_began_during_the_run_is_sent_once(owner: User) -> None:
    walk, drive = Turns(owner, fail_threshold=1), Drive()
    make_channel(owner)
    walk.check("fra", turns=3)
    since = LocationFailure.objects.get().since
    drive.tick(since - timedelta(seconds=1))
    drive.tick(since + timedelta(seconds=SPACING))
    assert len(details(drive)) == 1


def test_a_location_that_goes_offline_and_back_is_sent_once_in_a_while(owner: User) -> None:
    walk, drive = Turns(owner), Drive()
    make_channel(owner)
    for _ in range(2):
        walk.check("fra", turns=6)
        drive.tick(walk.now)
        partial.forget_offline(["ams", "lon", "default"])
        assert walk.failing_from == {}
    assert len(details(drive)) == 1
    drive.tick(walk.now + timedelta(seconds=SPACING))
    assert not LocationFailure.objects.exists()


def test_an_alert_during_a_check_is_remembered(owner: User) -> None:
    walk = Turns(owner)
    walk.check("fra", turns=6)

    def count() -> None:
        passed = CheckOutcome(Verdict.UP, walk.now, latency_ms=5)
        with transaction.atomic():
            partial.note_turns([partial.Turn(walk.monitor.pk, walk.keys["fra"], 1, passed)])
        connection.close()

    with ThreadPoolExecutor() as pool:
        with transaction.atomic():
            LocationFailure.objects.update(notified_at=walk.now)
            counting = pool.submit(count)
            until(is_awaited, 30, "the count waits for the alert")
        counting.result()
    row = LocationFailure.objects.get()
    assert (row.failures, row.notified_at) == (0, walk.now)


def test_a_mute_holds_it_back(owner: User) -> None:
    walk, drive = Turns(owner), Drive()
    make_channel(owner)
    walk.check("fra", turns=6)
    mute_for([walk.monitor.pk], minutes=5, now=walk.now)
    assert drive.tick(walk.now) == []
    drive.tick(walk.now + timedelta(minutes=6))
    assert len(details(drive)) == 1


def test_many_locations_are_counted(owner: User) -> None:
    monitor = MonitorFactory(
        owner=owner, up=True, locations=["default", *(shared(f"loc-{n}").public_id for n in range(4))]
    )
    keys = [None, *Location.objects.exclude(public_id="default").values_list("pk", flat=True)]
    for key in keys:
        given = {"config_version": 1, "failures": 3, "since": at(0), "detail": "x" * 300}
        LocationFailure.objects.create(monitor=monitor, location_id=key, **given)
    drive = Drive()
    make_channel(owner)
    drive.tick(at(60))
    (detail,) = details(drive)
    assert detail is not None
    assert detail.endswith("…; and from 2 more")
    assert Monitor.objects.filter(partial.is_partial()).get() == monitor
