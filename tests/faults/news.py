"""What the receiver took against the incidents, and those against the changes. Import it where Django is set up.

Every change to down is an incident and every change back ends it. Each incident is told to every channel of its
monitor, as is its end: once, but for repetitions under the same key, and in this order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from alerts.bulletin import TOPICS
from alerts.facts import News
from alerts.models import Delivery, DeliveryItem, Topic
from incidents.models import Incident
from monitors.models import StatusChange
from tests.alerts.receiver import Call
from tests.faults.accounts import Account
from tests.faults.taking import Try
from tests.faults.tenant import Watched, channels_of

OPEN = [Delivery.State.GATHERING, Delivery.State.WAITING]

Spell = tuple[datetime | None, datetime | None]
"""When an outage was confirmed, and when it ended."""


def unfinished() -> str:
    """What is still to be said, in words; empty where nothing is."""
    due = Q(announced_at=None) | Q(resolved_at__isnull=False, closing_announced_at=None)
    left = {
        "changes": StatusChange.objects.filter(processed_at=None).count(),
        "incidents": Incident.objects.filter(due).count(),
        "messages": Delivery.objects.filter(state__in=OPEN).count(),
    }
    return ", ".join(f"{count} {what}" for what, count in left.items() if count)


@dataclass(frozen=True)
class Told:
    """One item of a message that was taken: the message's number and key, and which of its items."""

    call: int
    key: str
    item: int
    news: News

    def __str__(self) -> str:
        return f"{self.news} as item {self.item} of {self.key}"


def account_for_alerts(account: Account, fleet: Sequence[Watched], tries: Sequence[Try]) -> int:
    """Enter what is wrong into the account; how many pieces of news arrived, each counted once for each channel."""
    told: dict[tuple[str, str | None, Topic], list[Told]] = defaultdict(list)
    for number, each in enumerate(tries):
        if each.taken:
            for index, (news, incident_id) in enumerate(_items(each.call)):
                place = each.call.path, incident_id, TOPICS[news]
                told[place].append(Told(number, each.call.key, index, news))
    arrived = len(told)
    by_monitor = {watched.monitor_id: watched for watched in fleet}
    incidents: dict[int, list[Incident]] = defaultdict(list)
    for incident in Incident.objects.order_by("pk"):
        assert incident.monitor_id is not None
        incidents[incident.monitor_id].append(incident)
    spells = _spells()
    for watched in fleet:
        _compare(account, watched, spells[watched.monitor_id], incidents[watched.monitor_id])
        for incident in incidents[watched.monitor_id]:
            _said(account, watched, incident)
            for channel in channels_of(watched.part):
                downs, overs = (
                    told.pop((f"/{channel}", incident.public_id, topic), [])
                    for topic in (Topic.DOWN, Topic.RECOVERED)
                )
                _arrived(account, watched, incident, channel, downs, overs)
    for (path, incident_id, _), items in told.items():
        account.fault("double_alerts", path, account.end, f"{items[0]}, and there is no such {incident_id}")
    for delivery in Delivery.objects.exclude(state=Delivery.State.SENT).select_related("channel"):
        items_of = DeliveryItem.objects.filter(delivery=delivery, incident__monitor__isnull=False)
        watched_ids = list(items_of.values_list("incident__monitor", flat=True))
        text = f"{delivery} after {delivery.attempts} tries: {delivery.last_error}"
        about = by_monitor[watched_ids[0]] if watched_ids else delivery.channel.name
        account.fault("lost_alerts", about, delivery.created_at.timestamp() - account.start, text)
    return arrived


def _items(call: Call) -> Iterator[tuple[News, str | None]]:
    """What a message tells, as (news, incident)."""
    payload = call.json
    if payload.get("left_out"):
        # The receiver is told of how many more than the message has room for. What they are, only we know.
        stored = DeliveryItem.objects.filter(delivery__public_id=call.key).order_by("pk")
        for facts in stored.values_list("facts", flat=True):
            yield News(facts["news"]), facts["incident_id"]
        return
    for item in payload.get("items", [payload]):
        yield News(item["event"]), item["incident"] and item["incident"]["id"]


def _spells() -> dict[int, list[Spell]]:
    """The outages of each monitor, as its changes tell of them."""
    found: dict[int, list[Spell]] = defaultdict(list)
    for change in StatusChange.objects.filter(kind=StatusChange.Kind.STATUS).order_by("pk"):
        spells = found[change.monitor_id]
        is_open = bool(spells) and spells[-1][1] is None
        if change.after == "down" and not is_open:
            spells.append((change.at, None))
        elif change.after != "down" and is_open:
            began = spells[-1][0]
            assert began is not None
            spells[-1] = began, max(change.at, began)
    return found


def _compare(account: Account, watched: Watched, spells: Sequence[Spell], found: Sequence[Incident]) -> None:
    true = Counter(spells)
    stored = Counter((incident.confirmed_at, incident.resolved_at) for incident in found)
    for kind, wrong, text in (
        ("lost_alerts", true - stored, "an outage without its incident"),
        ("double_alerts", stored - true, "an incident without its outage"),
    ):
        for began, ended in wrong:
            assert began is not None
            account.fault(kind, watched, began.timestamp() - account.start, f"{text}: {began} to {ended}")


def _said(account: Account, watched: Watched, incident: Incident) -> None:
    """Whether there was an attempt at all to tell of it and of its end."""
    assert incident.confirmed_at is not None
    at = incident.confirmed_at.timestamp() - account.start
    if incident.announced_at is None:
        account.fault("lost_alerts", watched, at, f"{incident} was not announced")
    elif incident.resolved_at is not None and incident.closing_announced_at is None:
        account.fault("lost_alerts", watched, at, f"the end of {incident} was not announced")


def _arrived(
    account: Account,
    watched: Watched,
    incident: Incident,
    channel: str,
    downs: Sequence[Told],
    overs: Sequence[Told],
) -> None:
    for what, said_at, items in (
        ("outage", incident.announced_at, downs),
        ("end", incident.closing_announced_at, overs),
    ):
        at = (said_at or incident.started_at).timestamp() - account.start
        if said_at is not None and not items:
            account.fault("lost_alerts", watched, at, f"{channel} was not told of the {what} of {incident}")
        elif said_at is None and items:
            text = f"{channel} was told of the {what} of {incident}, which was not announced: {items[0]}"
            account.fault("double_alerts", watched, at, text)
        if len({(each.key, each.item) for each in items}) > 1:
            text = f"{channel} was told of the {what} of {incident} by {', '.join(map(str, items))}"
            account.fault("double_alerts", watched, at, text)
        if len({each.news for each in items}) > 1:
            account.fault("double_alerts", watched, at, f"{channel} was told different things: {items}")
    if downs and overs and (overs[0].call, overs[0].item) < (downs[0].call, downs[0].item):
        assert incident.resolved_at is not None
        at = incident.resolved_at.timestamp() - account.start
        account.fault(
            "overtaken_alerts", watched, at, f"{channel} took {overs[0]} before {downs[0]} of {incident}"
        )
