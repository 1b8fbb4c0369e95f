"""The log of a channel's deliveries, and replaying a dead one."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine

from accounts.models import User
from alerts.models import Delivery
from alerts.services import replay
from core.clock import to_ms
from core.errors import NotDead
from projects.access import Caller
from tests.api.client import Api
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, UserFactory
from tests.helpers import NOON, minutes, run_concurrently

State = Delivery.State


def test_the_log_of_a_channel(api: Api, user: User) -> None:
    channel, other = ChannelFactory(owner=user), ChannelFactory(owner=user)
    monitor = MonitorFactory(owner=user)
    path = f"/v1/alert-channels/{channel.public_id}/deliveries"
    assert api.get(path).json == []
    made = [
        DeliveryFactory(channel=channel, state=state, created_at=NOON + minutes(n)) for n, state in enumerate(State)
    ]
    made.append(DeliveryFactory(channel=channel, created_at=NOON - minutes(1), monitor=monitor, items=3))
    DeliveryFactory(channel=other)
    ids = [d.public_id for d in [*reversed(made[:-1]), made[-1]]]
    listed = api.get(path).json
    assert [d["id"] for d in listed] == ids
    assert listed[1] == {
        "id": made[3].public_id,
        "state": "dead",
        "created_at": to_ms(NOON + minutes(3)),
        "next_try_at": to_ms(NOON + minutes(3)),
        "attempts": 3,
        "last_error": "The receiver answered with status 503.",
        "done_at": to_ms(NOON + minutes(3) + timedelta(hours=24)),
        "items": [
            {
                "news": "down",
                "incident_id": None,
                "monitor_id": None,
                "location_id": None,
                "at": to_ms(NOON + minutes(3)),
            }
        ],
    }
    assert [item["monitor_id"] for item in listed[-1]["items"]] == [monitor.public_id] * 3
    for state in State:
        assert {d["state"] for d in api.get(f"{path}?state={state}").json} == {state}
    assert api.get(f"{path}?state=lost").status == 422


def test_the_log_in_pages(api: Api, user: User) -> None:
    channel = ChannelFactory(owner=user)
    # Several at the same time, as in a storm.
    made = [DeliveryFactory(channel=channel, created_at=NOON + minutes(n // 3)) for n in range(8)]
    path = f"/v1/alert-channels/{channel.public_id}/deliveries?limit=3"
    seen = []
    while path:
        page = api.get(path)
        seen += [d["id"] for d in page.json]
        link = page.headers.get("Link", "")
        path = link[1 : link.index(">")].removeprefix("http://testserver") if link else ""
    assert seen == [d.public_id for d in reversed(made)]
    for cursor in ("MQ==", "nonsense", "OTk5OTk5OTk5OTk5OTk5OTk5OS4x"):
        assert api.get(f"/v1/alert-channels/{channel.public_id}/deliveries?cursor={cursor}").status == 422


def test_a_dead_one_is_tried_for_another_day(api: Api, user: User) -> None:
    channel = ChannelFactory(owner=user)
    dead = DeliveryFactory(channel=channel, dead=True)
    path = f"/v1/alert-channels/{channel.public_id}/deliveries/{dead.public_id}/replay"
    later = NOON + timedelta(days=3)
    with time_machine.travel(later, tick=False):
        answer = Api.signed_in(user).post(path)
    assert answer.status == 200
    assert (answer.json["state"], answer.json["next_try_at"], answer.json["done_at"]) == ("waiting", to_ms(later), None)
    dead.refresh_from_db()
    assert (dead.state, dead.attempts, dead.give_up_at) == (State.WAITING, 3, later + timedelta(hours=24))
    assert dead.last_error
    again = api.post(path)
    assert (again.status, again.json["error"]) == (409, "not_dead")


@pytest.mark.parametrize("state", [State.GATHERING, State.WAITING, State.SENT])
def test_no_other_is_replayed(api: Api, user: User, state: Delivery.State) -> None:
    channel = ChannelFactory(owner=user)
    delivery = DeliveryFactory(channel=channel, state=state)
    before = Delivery.objects.values().get()
    answer = api.post(f"/v1/alert-channels/{channel.public_id}/deliveries/{delivery.public_id}/replay")
    assert (answer.status, answer.json["error"]) == (409, "not_dead")
    assert Delivery.objects.values().get() == before


def test_a_delivery_of_another_channel_is_not_found(api: Api, user: User) -> None:
    channel, other = ChannelFactory(owner=user), ChannelFactory(owner=user)
    foreign = ChannelFactory()
    for there in (other, foreign):
        dead = DeliveryFactory(channel=there, dead=True)
        for here in (channel, foreign):
            path = f"/v1/alert-channels/{here.public_id}/deliveries/{dead.public_id}/replay"
            assert api.post(path).status == 404
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DEAD}


@pytest.mark.django_db(transaction=True)
def test_replayed_by_many_at_once_it_is_replayed_once() -> None:
    user = UserFactory()
    channel = ChannelFactory(owner=user)
    dead = DeliveryFactory(channel=channel, dead=True)
    outcomes = run_concurrently(
        *[lambda: replay(Caller(user), channel.public_id, dead.public_id, now=NOON) for _ in range(5)]
    )
    assert sum(isinstance(outcome, NotDead) for outcome in outcomes) == 4
