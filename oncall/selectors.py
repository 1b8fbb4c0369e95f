"""Queries for on-call schedules, escalation policies, the people in them, and how these are reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Length
from django.utils.crypto import salted_hmac

from accounts.models import User
from alerts.models import AlertChannel
from alerts.selectors import sends_to
from audit import origin
from core.db import get_or_not_found
from core.shares import Shares
from oncall import rotation
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from oncall.rotation import Shift
from projects import access
from projects.access import Caller
from projects.models import Membership

Row = OnCallSchedule | EscalationPolicy
People = dict[str, User]
"""Users by public id."""

SCHEDULE_CHARS = Length(Cast("layers", TextField())) + Length(Cast("overrides", TextField()))
POLICY_CHARS = Length(Cast("steps", TextField()))
"""How much text a list reads of a row."""

_turns = Shares(at_once=1, most_waiting=16, most_present=8, patience_sec=5.0)


@contextmanager
def computing() -> Iterator[None]:
    """Run the block in turn with other requests that compute shifts. Raises TooManyRequests.

    Those of schedules at their limits take a part of a second, and several at once would delay all other requests.
    """
    with _turns.turn(*origin.users()):
        yield


def list_schedules(caller: Caller) -> QuerySet[OnCallSchedule]:
    return access.accessible(caller, OnCallSchedule.objects.select_related("project"))


def get_schedule(caller: Caller, public_id: str) -> OnCallSchedule:
    return get_or_not_found(list_schedules(caller), public_id=public_id)


def list_policies(caller: Caller) -> QuerySet[EscalationPolicy]:
    return access.accessible(caller, EscalationPolicy.objects.select_related("project"))


def get_policy(caller: Caller, public_id: str) -> EscalationPolicy:
    return get_or_not_found(list_policies(caller), public_id=public_id)


def people_of(rows: Iterable[Row], *, among: Collection[str] | None = None) -> dict[Row, People]:
    """Return who can be on call, or notified, for each row: the active members of its project, or its owner alone.

    `among` are the public ids of those to return, by default all.
    """
    rows = list(rows)
    return dict(zip(rows, _people_of(rows, among), strict=True))


def _people_of(rows: Sequence[Row], among: Collection[str] | None = None) -> list[People]:
    """Return what `people_of` does, in the order of the rows, which may be unsaved."""
    places = Membership.objects.filter(project__in={row.project_id for row in rows} - {None}, user__is_active=True)
    owners = User.objects.filter(pk__in={row.owner_id for row in rows if row.project_id is None}, is_active=True)
    if among is not None:
        places, owners = places.filter(user__public_id__in=among), owners.filter(public_id__in=among)
    members: dict[int, People] = defaultdict(dict)
    for place in places.select_related("user"):
        assert place.user is not None
        members[place.project_id][place.user.public_id] = place.user
    alone = {user.pk: {user.public_id: user} for user in owners}
    return [alone.get(row.owner_id, {}) if row.project_id is None else members[row.project_id] for row in rows]


def named_in(schedule: OnCallSchedule) -> Iterator[str]:
    """Return the ids of the people in layers and overrides. They may have left."""
    layers = chain.from_iterable(layer["user_ids"] for layer in schedule.layers)
    return chain(layers, (override["user_id"] for override in schedule.overrides))


def present_in(row: Row) -> People:
    """Return what `people_of` does for a row, which may be unsaved."""
    return _people_of([row])[0]


def parsed(schedule: OnCallSchedule) -> rotation.Schedule:
    return rotation.parse_schedule(schedule.time_zone, schedule.layers, schedule.overrides)


def shifts_of(schedule: OnCallSchedule, start: datetime, end: datetime) -> list[Shift]:
    """Return the shifts in this range, in order, with those who are still there."""
    return rotation.shifts(parsed(schedule), start, end, present_in(schedule))


def now_of(schedule: OnCallSchedule, now: datetime) -> rotation.Now:
    """Return who is on call until when, and who is next."""
    return rotation.now(parsed(schedule), now, present_in(schedule))


def calendar_digest(token: str) -> bytes:
    return salted_hmac("pulsekeeper.on-call-calendars", token, algorithm="sha256").digest()


def schedule_of_calendar(token: str) -> OnCallSchedule:
    """Return the schedule whose calendar has this secret address. Raises NotFound."""
    rows = OnCallSchedule.objects.select_related("project").filter(owner__is_active=True)
    return get_or_not_found(rows, calendar_digest=calendar_digest(token))


@dataclass(frozen=True, slots=True)
class Targets:
    """Those targets of a policy that still exist where the policy may notify them, by public id."""

    people: People = field(default_factory=dict)
    schedules: dict[str, OnCallSchedule] = field(default_factory=dict)
    channels: dict[str, AlertChannel] = field(default_factory=dict)

    def has(self, target: dict[str, str]) -> bool:
        kinds: dict[str, dict[str, Any]] = {
            "user": self.people,
            "schedule": self.schedules,
            "channel": self.channels,
        }
        return target["id"] in kinds[target["type"]]


def targets_of(policies: Sequence[EscalationPolicy]) -> list[Targets]:
    """Return the targets of each policy that exist, in the order of the policies, in at most four queries.

    Schedules and channels are those of the policy's project, and those of its owner without a project.
    """
    ids: dict[str, set[str]] = defaultdict(set)
    for policy in policies:
        for step in policy.steps:
            for target in step["targets"]:
                ids[target["type"]].add(target["id"])
    people: list[People] = _people_of(policies, ids["user"]) if ids["user"] else [{}] * len(policies)
    schedules = list(OnCallSchedule.objects.filter(public_id__in=ids["schedule"])) if ids["schedule"] else []
    channels = list(AlertChannel.objects.filter(public_id__in=ids["channel"])) if ids["channel"] else []
    return [
        Targets(
            known,
            {row.public_id: row for row in schedules if belongs(row, policy)},
            {row.public_id: row for row in channels if belongs(row, policy)},
        )
        for policy, known in zip(policies, people, strict=True)
    ]


def shown_steps(policy: EscalationPolicy, targets: Targets) -> list[dict[str, Any]]:
    """Return the steps as readers see them, without targets that no longer exist."""
    return [{**step, "targets": [one for one in step["targets"] if targets.has(one)]} for step in policy.steps]


def belongs(row: OnCallSchedule | AlertChannel, policy: EscalationPolicy) -> bool:
    """Return whether a policy may notify the row: it is in its project, or its owner's without a project."""
    return row.owner_id == policy.owner_id if row.project_id is None else row.project_id == policy.project_id


def unreachable(found: Mapping[EscalationPolicy, Targets]) -> set[EscalationPolicy]:
    """Return the policies, of these with their targets, that cannot notify anyone at any time.

    Their targets have left or were deleted, none of their channels is enabled and confirmed, and none of their people,
    in schedules too, has a confirmed contact. The number of queries is constant.
    """
    schedules = {schedule for targets in found.values() for schedule in targets.schedules.values()}
    on_call = people_of(schedules, among={one for schedule in schedules for one in named_in(schedule)})
    people = {policy: set(targets.people.values()) for policy, targets in found.items()}
    for policy, targets in found.items():
        for schedule in targets.schedules.values():
            people[policy].update(user for one in named_in(schedule) if (user := on_call[schedule].get(one)))
    rules = contact_rules(set().union(*people.values()))
    return {
        policy
        for policy, targets in found.items()
        if not any(channel.enabled and channel.confirmed_at for channel in targets.channels.values())
        and not any(rules[user] for user in people[policy])
    }


def contact_rules(users: Collection[User]) -> dict[User, list[dict[str, Any]]]:
    """Return how each person is reached, in order: `[{after_min, channel_id}]`, with usable channels only.

    That is, with their own that are enabled and confirmed. Without rules it is their e-mail at once: the first of these
    channels that sends to their own address. An empty list: not reachable. Two queries.
    """
    stored = dict(Contact.objects.filter(user__in=users).values_list("user", "rules")) if users else {}
    usable: dict[int, dict[str, AlertChannel]] = defaultdict(dict)
    for channel in own_channels(users).filter(enabled=True, confirmed_at__isnull=False) if users else ():
        usable[channel.owner_id][channel.public_id] = channel
    return {
        user: [rule for rule in stored[user.pk] if rule["channel_id"] in usable[user.pk]]
        if user.pk in stored
        else _usual_rules(user, usable[user.pk].values())
        for user in users
    }


def contact_of(user: User) -> Contact:
    """Return the stored contact without channels that are gone, or else the default one, which is not stored."""
    found = Contact.objects.filter(user=user).first()
    if found is None:
        return Contact(user=user, rules=contact_rules([user])[user])
    own = set(own_channels([user]).values_list("public_id", flat=True))
    found.rules = [rule for rule in found.rules if rule["channel_id"] in own]
    return found


def own_channels(users: Collection[User]) -> QuerySet[AlertChannel]:
    return AlertChannel.objects.filter(owner__in=users, project=None).order_by("pk")


def _usual_rules(user: User, usable: Iterable[AlertChannel]) -> list[dict[str, Any]]:
    own = next((channel for channel in usable if sends_to(channel, user.email)), None)
    return [] if own is None else [{"after_min": 0, "channel_id": own.public_id}]
