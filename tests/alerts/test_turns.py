"""Accounts take turns: pending, hanging or failing messages of one do not delay those of another."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from alerts import notify, turns
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import FIRST, FURTHER, MAX_MAILS, OUTBOX, PROMPT, PROVEN, load
from checks.spec import Verdict
from incidents import consuming
from incidents.models import Incident
from tests.alerts.drivers import Drive, at, claim, finish, make_channel
from tests.factories import DeliveryFactory, UserFactory

MANY = 100_000
ROWS = 20_000
"""More than all accounts, channels and leases together, and a small part of the messages."""

pytestmark = pytest.mark.django_db


def account() -> User:
    user = UserFactory()
    AlertChannel.objects.filter(owner=user).delete()
    return user


def message(owner: User, moment: datetime, **channel: Any) -> Delivery:
    return DeliveryFactory(channel=make_channel(owner, **channel), created_at=moment)


def claimed(moment: datetime) -> Delivery:
    found = claim(moment)
    assert found is not None
    return found


def test_the_account_with_the_fewest_messages_in_flight_is_first() -> None:
    busy, quiet = account(), account()
    for _ in range(3):
        message(busy, at(-100))
    claimed(at(0))
    claimed(at(0))
    mine = message(quiet, at(10))
    assert claimed(at(10)) == mine


def test_then_the_one_that_was_served_least_recently() -> None:
    """The age of pending messages does not count, nor whether the last delivery succeeded."""
    busy, quiet = account(), account()
    for _ in range(2):
        message(busy, at(-100))
    finish(claimed(at(0)), delivered=False, detail="It hung.", now=at(10))
    mine = message(quiet, at(10))
    assert claimed(at(10)) == mine


def test_new_slow_and_failing_channels_leave_the_threads_of_prompt_ones() -> None:
    one, other, third = account(), account(), account()
    message(one, at(-1))
    slow = message(other, at(0), prompt=True)
    finish(claimed(at(0)), delivered=True, detail="200", now=at(1))
    finish(claimed(at(1)), delivered=True, detail="200", now=at(1) + PROMPT)
    assert AlertChannel.objects.get(pk=slow.channel_id).prompt is False
    message(other, at(10), prompt=False)
    DeliveryFactory(channel=slow.channel, created_at=at(10))
    assert claim(at(10), PROVEN) is None
    mine = message(third, at(11), prompt=True)
    assert claim(at(11), PROVEN) == mine


def test_an_account_with_a_message_in_flight_leaves_the_threads_of_those_without() -> None:
    owner = account()
    for _ in range(2):
        message(owner, at(0))
    assert claim(at(0), FIRST) is not None
    assert claim(at(0), FIRST) is None
    assert claim(at(0), FURTHER) is not None


def test_mails_leave_the_mail_server_connections_for_channels_that_were_prompt() -> None:
    for _ in range(MAX_MAILS):
        message(account(), at(0), kind="email")
    found = [claim(at(0)) for _ in range(MAX_MAILS)]
    assert sum(each is not None for each in found) == MAX_MAILS / 2
    mine = message(account(), at(1), kind="email", prompt=True)
    hook = message(account(), at(1))
    assert {claim(at(1)), claim(at(1))} == {mine, hook}


def series(channel: AlertChannel) -> list[Delivery]:
    """Five messages about one monitor: three outages, and two recoveries between them."""
    drive = Drive()
    monitor = drive.monitor(channel.owner)
    for number, verdict in enumerate((Verdict.DOWN, Verdict.UP, Verdict.DOWN, Verdict.UP, Verdict.DOWN)):
        moment = at(60 + 700 * number)
        drive.check(monitor, verdict, moment)
        consuming.consume(moment, slow=lambda _: None)
        notify.notify_incidents(moment)
    return list(channel.deliveries.order_by("pk"))


def test_a_message_that_is_given_up_and_replayed_is_not_overtaken() -> None:
    first, second, *others = series(make_channel(account()))
    finish(claimed(at(4000)), delivered=False, detail="410", retry=False, now=at(4001))
    finish(claimed(at(4001)), delivered=False, detail="500", now=at(4002))
    OUTBOX.replay([first.pk], now=at(4100))
    order = []
    for number in range(2 + len(others)):
        each = claimed(at(9000 + number))
        order.append(each.pk)
        assert claim(at(9000 + number)) is None
        finish(each, delivered=True, detail="200", now=at(9000 + number))
    assert order == [first.pk, second.pk, *(each.pk for each in others)]


def test_a_message_that_is_deleted_releases_the_next() -> None:
    channel = make_channel(account())
    first, second, *_ = series(channel)
    DeliveryItem.objects.filter(delivery=first).update(incident=None, payload={"monitor_id": "mon_of_another"})
    attempt = claimed(at(4000))
    assert attempt == first
    assert load(attempt) == (None, [])
    assert not Delivery.objects.filter(pk=first.pk).exists()
    assert claimed(at(4001)) == second


def test_a_claim_among_many_messages_reads_few_rows() -> None:
    """A few accounts own most messages, in channels that fail, hang, or send one message at a time."""
    owners = [account() for _ in range(20)]
    channels = [make_channel(owner) for owner in owners for _ in range(5)]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO alerts_delivery
                   (public_id, channel_id, account, created_at, next_try_at, give_up_at, state, attempts, behind)
            SELECT 'dlv_' || number, channel.id, channel.owner_id, %(at)s, %(at)s + CASE number %% 3 WHEN 0
                   THEN interval '1 hour' ELSE make_interval(secs => number %% 1000) END, %(at)s + interval '1 day',
                   'waiting', 0, CASE number %% 2 WHEN 0 THEN '{}' ELSE '{1}'::bigint[] END
              FROM generate_series(1, %(many)s) AS number
              JOIN (SELECT id, owner_id, row_number() OVER () - 1 AS place
                      FROM alerts_alertchannel WHERE id = ANY(%(channels)s)) AS channel
                ON channel.place = number %% %(places)s
            """,
            {"at": at(0), "many": MANY, "channels": [each.pk for each in channels], "places": len(channels)},
        )
    mine = message(account(), at(2000))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE alerts_delivery")
    assert visited(plan_of_claim(at(2000))) < ROWS
    found = [claim(at(2000), FIRST) for _ in range(len(owners) + 1)]
    assert mine in found
    assert {each.account for each in found if each} == {mine.account, *(owner.pk for owner in owners)}


def test_a_claim_in_a_storm_that_statistics_do_not_know_reads_few_rows() -> None:
    """Most messages are sent, and many accounts have one that gathers since the last ANALYZE."""
    channel, accounts = make_channel(account()), 500
    insert = """
        INSERT INTO alerts_delivery
               (public_id, channel_id, account, created_at, next_try_at, give_up_at, state, attempts, behind)
        SELECT %(state)s || number, %(channel)s, 1000000 + number, %(at)s, %(at)s, %(at)s, %(state)s, 0, '{}'
          FROM generate_series(1, %(many)s) AS number
    """
    with connection.cursor() as cursor:
        cursor.execute(insert, {"state": "sent", "channel": channel.pk, "at": at(0), "many": MANY})
        cursor.execute("ANALYZE alerts_delivery")
        cursor.execute(insert, {"state": "gathering", "channel": channel.pk, "at": at(4000), "many": accounts})
    assert visited(plan_of_claim(at(2000))) < 10 * accounts


def plan_of_claim(now: datetime) -> dict[str, Any]:
    limits: dict[str, Any] = {"now": now, "start": 0.5, **FIRST.limits}
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) WITH RECURSIVE {turns.CHOSEN} SELECT * FROM chosen", limits)
        ((plan,),) = cursor.fetchall()
    found: dict[str, Any] = (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]
    return found


def visited(node: dict[str, Any]) -> int:
    """Return how many rows the plan read from tables."""
    own = 0
    if "Relation Name" in node:
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(own) + sum(visited(child) for child in node.get("Plans", ()))


def test_many_items_of_one_account_leave_room_for_another() -> None:
    """A transaction announces as many items of each account, not as many incidents."""
    many, other, drive = account(), account(), Drive()
    for _ in range(50):
        make_channel(many)
    make_channel(other)
    down = [*drive.monitors(many, [f"Shop {number}" for number in range(45)]), *drive.monitors(other, ["Blog"] * 30)]
    drive.checks(down, Verdict.DOWN, at(60))
    consuming.consume(at(61), slow=lambda _: None)
    assert notify.notify_incidents(at(61)), "more than MOST_ITEMS wait"
    announced = Incident.objects.filter(announced_at=at(61))
    assert announced.filter(owner=other).count() == 30
    assert 0 < announced.filter(owner=many).count() < 45
    assert not notify.notify_incidents(at(62))
    assert not Incident.objects.filter(announced_at=None).exists()
