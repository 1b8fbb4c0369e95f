"""The account of alerts finds what it is there to find: each kind of fault is planted in a run that was without any."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from alerts import announcing, messages, sending
from alerts.models import Delivery
from checks.spec import Verdict
from incidents import consuming
from incidents.models import Incident
from monitors.models import Monitor, StatusChange
from tests.alerts.driving import Drive, at
from tests.alerts.receiver import Call
from tests.faults.accounts import KINDS, Account
from tests.faults.news import account_for_alerts, unfinished
from tests.faults.script import Flip, Part
from tests.faults.taking import Try
from tests.faults.tenant import Watched, make_channels, make_monitors
from tests.makers import NOON

PARTS = tuple(Part(number, "http", (Flip(0.0, up=True),)) for number in (3, 4))


@dataclass
class Run:
    """Two outages, one of which is over: three pieces of news, each to two channels, some of it in a group."""

    fleet: list[Watched]
    tries: list[Try]

    def account(self) -> dict[str, int]:
        account = Account(NOON.timestamp(), 600.0, [], [])
        account_for_alerts(account, self.fleet, self.tries)
        return account.counts()


def deliver(seconds: float) -> list[Try]:
    """What is due by then is sent, and taken."""
    taken = []
    while (claimed := sending.claim(at(seconds))) is not None:
        channel, facts = sending.load(claimed)
        assert channel is not None
        message = messages.render(facts, key=claimed.key, base_url="https://p.example", now=at(seconds))
        path = channel.config["url"].removeprefix("http://127.0.0.1:9")
        call = Call(path, claimed.key, {}, json.dumps(message.payload).encode())
        taken.append(Try(at(seconds).timestamp(), call, 200))
        sending.finish(claimed, delivered=True, detail="200", retry=True, now=at(seconds))
    return taken


@pytest.fixture
def run(db: None) -> Run:
    fleet = make_monitors(PARTS, target="http://127.0.0.1:9")
    make_channels(fleet, receiver="http://127.0.0.1:9")
    drive, tries = Drive(), []
    first, second = Monitor.objects.order_by("pk")
    Monitor.objects.update(fail_threshold=1)
    drive.checks([first, second], Verdict.UP, at(0))
    for moment, monitor, verdict in (
        (10, first, Verdict.DOWN),
        (20, second, Verdict.DOWN),
        (30, first, Verdict.UP),
    ):
        drive.check(monitor, verdict, at(moment))
        consume(moment)
        tries += deliver(moment)
    return Run(fleet, tries + deliver(60))


def consume(seconds: float) -> None:
    consuming.consume(at(seconds), slow=lambda _: None)
    announcing.announce(at(seconds))


def test_a_run_without_faults_is_clean(run: Run) -> None:
    account = Account(NOON.timestamp(), 600.0, [], [])
    assert account_for_alerts(account, run.fleet, run.tries) == 6
    assert account.counts() == dict.fromkeys(KINDS, 0), account.faults
    assert unfinished() == ""


def test_a_repetition_with_its_key_is_none_twice(run: Run) -> None:
    run.tries += run.tries[:2]
    assert run.account() == dict.fromkeys(KINDS, 0)


def item_of(run: Run, news: str) -> int:
    """The number of the first message that tells of it."""
    return next(n for n, each in enumerate(run.tries) if each.call.json["event"] == news)


def lose_a_message(run: Run) -> None:
    del run.tries[0]


def refuse_a_message(run: Run) -> None:
    run.tries[0] = replace(run.tries[0], status=500)


def lose_a_recovery(run: Run) -> None:
    del run.tries[item_of(run, "recovered")]


def forget_a_change(run: Run) -> None:
    Incident.objects.filter(resolved_at=None).delete()


def leave_unsaid(run: Run) -> None:
    Incident.objects.filter(resolved_at=None).update(announced_at=None)


def leave_an_end_unsaid(run: Run) -> None:
    Incident.objects.exclude(resolved_at=None).update(closing_announced_at=None)


def leave_a_message(run: Run) -> None:
    Delivery.objects.filter(pk=Delivery.objects.order_by("pk")[0].pk).update(state="waiting")


def with_key(each: Try, key: str, **body: Any) -> Try:
    call = replace(each.call, key=key, body=json.dumps(each.call.json | body).encode())
    return replace(each, call=call)


def tell_under_another_key(run: Run) -> None:
    run.tries.append(with_key(run.tries[0], "another"))


def tell_of_nothing(run: Run) -> None:
    known = run.tries[0].call.json["incident"]
    run.tries.append(with_key(run.tries[0], "another", incident=known | {"id": "inc_unknown"}))


def tell_something_else(run: Run) -> None:
    run.tries.append(with_key(run.tries[0], run.tries[0].call.key, event="still_down"))


def have_an_incident_of_nothing(run: Run) -> None:
    StatusChange.objects.filter(after="up", before="down").delete()


def overtake(run: Run) -> None:
    run.tries.insert(0, run.tries.pop(item_of(run, "recovered")))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_a_message, "lost_alerts"),
        (refuse_a_message, "lost_alerts"),
        (lose_a_recovery, "lost_alerts"),
        (forget_a_change, "lost_alerts"),
        (leave_unsaid, "lost_alerts"),
        (leave_an_end_unsaid, "lost_alerts"),
        (leave_a_message, "lost_alerts"),
        (tell_under_another_key, "double_alerts"),
        (tell_of_nothing, "double_alerts"),
        (tell_something_else, "double_alerts"),
        (have_an_incident_of_nothing, "double_alerts"),
        (overtake, "overtaken_alerts"),
    ],
)
def test_a_planted_fault_is_found(run: Run, plant: Callable[[Run], None], kind: str) -> None:
    plant(run)
    assert run.account()[kind] > 0
