"""Changes of on-call schedules, escalation policies and contacts. `projects.access` decides who may make them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts.models import User
from alerts.selectors import list_channels
from audit.actions import Action
from core.clock import from_ms
from core.errors import LimitReached, ValidationFailed
from core.etags import IfMatch, require_match
from core.hours import settle_hours
from core.ids import random_text
from core.zones import TIME_ZONES
from monitors.models import MonitorState
from oncall import selectors
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from oncall.selectors import (
    Row,
    Targets,
    contact_of,
    get_policy,
    get_schedule,
    list_schedules,
    named_in,
    own_channels,
)
from projects import access, log
from projects.access import Caller
from projects.models import Project
from projects.placement import enforce_quota, place, require_same_project

MAX_SCHEDULES = MAX_POLICIES = 50
"""Of an account."""
MAX_LAYERS = MAX_STEPS = MAX_TARGETS = 10
MAX_PEOPLE = 50
MAX_OVERRIDES = 500
MAX_RULES = 10
MAX_HOURS_A_WEEK = 140
"""How often the hours of all layers begin in a week. Each time is a shift or two in calendars and notices."""
SWAPPED_AHEAD = timedelta(days=90)
"""How long a shift is at most that is swapped: forms offer those of the next 90 days, cut to them."""
MOST_OF_UNIT = {"hour": 168, "day": 90, "week": 52}
"""How many hours, days or weeks a turn has at most."""
TARGET_TYPES = ("user", "schedule", "channel")
_FIXED = "cannot be changed; create a new one."
_COLUMNS = {"timezone": "time_zone"}
"""Columns whose name in the API is another."""


def create_schedule(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> OnCallSchedule:
    with transaction.atomic():
        project, owner = place(caller, given)
        schedule = OnCallSchedule(owner=owner, project=project, created_at=now, time_zone="UTC", layers=[])
        _set_schedule(schedule, given)
        enforce_quota(owner, OnCallSchedule, limit=MAX_SCHEDULES, error=LimitReached)
        schedule.save(force_insert=True)
        _record(caller, Action.ON_CALL_SCHEDULE_CREATED, schedule)
    return schedule


def update_schedule(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, if_match: IfMatch = None
) -> OnCallSchedule:
    """Change these fields. People who have left may stay in lists that have them."""
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id, if_match=if_match)
        _change_schedule(caller, schedule, given)
    return schedule


def _change_schedule(caller: Caller, schedule: OnCallSchedule, given: Mapping[str, Any]) -> None:
    require_same_project(schedule, given, reason=_FIXED)
    _set_schedule(schedule, given)
    schedule.save(update_fields=["name", "time_zone", "layers", "overrides"])
    _record(caller, Action.ON_CALL_SCHEDULE_UPDATED, schedule, fields=sorted(given))


def add_override(caller: Caller, public_id: str, override: Mapping[str, Any]) -> OnCallSchedule:
    """Append an override: it wins over those before. In place of the first that is over if the list is full."""
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id)
        _append_overrides(caller, schedule, [override])
    return schedule


def _append_overrides(caller: Caller, schedule: OnCallSchedule, added: Sequence[Mapping[str, Any]]) -> None:
    kept = list(schedule.overrides)
    for override in added:
        over = [one for one in kept if one["ends_at"] <= override["starts_at"]]
        if len(kept) >= MAX_OVERRIDES and over:
            kept.remove(min(over, key=lambda one: one["ends_at"]))
        if len(kept) >= MAX_OVERRIDES:
            raise ValidationFailed(f"at most {MAX_OVERRIDES} overrides.", field="overrides", limit=MAX_OVERRIDES)
        kept.append(dict(override))
    _change_schedule(caller, schedule, {"overrides": kept})


def swap_shifts(caller: Caller, public_id: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> OnCallSchedule:
    """Exchange the people of two shifts, given as overrides are, with two overrides.

    Raises ValidationFailed, for the field `first` or `second`, if the shift has changed since.
    """
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id)
        for field, shift in (("first", first), ("second", second)):
            start, end = (from_ms(shift[name]) for name in ("starts_at", "ends_at"))
            # The form may name any times, and hourly turns of centuries would take hours.
            found = selectors.shifts_of(schedule, start, end) if end - start <= SWAPPED_AHEAD else []
            if [one[:3] for one in found] != [(start, end, shift["user_id"])]:
                raise ValidationFailed("this shift has changed. Choose again.", field=field)
        if first["user_id"] == second["user_id"]:
            raise ValidationFailed("the two shifts are of one person.", field="second")
        _append_overrides(
            caller,
            schedule,
            [{**first, "user_id": second["user_id"]}, {**second, "user_id": first["user_id"]}],
        )
    return schedule


def remove_override(caller: Caller, public_id: str, override: Mapping[str, Any]) -> OnCallSchedule:
    """Remove the last override with these values. Nothing happens if it is gone."""
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id)
        kept = list(reversed(schedule.overrides))
        if override in kept:
            kept.remove(dict(override))
            _change_schedule(caller, schedule, {"overrides": kept[::-1]})
    return schedule


def delete_schedule(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a schedule. Policies that name it then leave it out."""
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id, for_deletion=True, if_match=if_match)
        _record(caller, Action.ON_CALL_SCHEDULE_DELETED, schedule)
        schedule.delete()


def new_calendar(caller: Caller, public_id: str) -> str:
    """Return a new secret address of the schedule's calendar. The one before ends."""
    token = random_text(32)
    with transaction.atomic():
        schedule = access.lock(get_schedule, caller, public_id)
        schedule.calendar_digest = selectors.calendar_digest(token)
        schedule.save(update_fields=["calendar_digest"])
        _record(caller, Action.CALENDAR_LINK_CREATED, schedule)
    return f"{settings.BASE_URL}/calendar/{token}.ics"


def _set_schedule(schedule: OnCallSchedule, given: Mapping[str, Any]) -> None:
    """Set the fields of `given`, validated."""
    if given.get("timezone", "UTC") not in TIME_ZONES:  # opening the given name would read a path on our disk
        raise ValidationFailed("is not a time zone. Write one as Europe/Berlin or UTC.", field="timezone")
    names_people = bool({"layers", "overrides"} & given.keys())
    known = {*selectors.present_in(schedule), *named_in(schedule)} if names_people else set()
    if "layers" in given:
        given = {
            **given,
            "layers": [_settle_layer(one, f"layers[{i}]", known) for i, one in enumerate(given["layers"])],
        }
        if sum(len(row["days"]) for layer in given["layers"] for row in layer["hours"]) > MAX_HOURS_A_WEEK:
            raise ValidationFailed(
                f"their hours begin more than {MAX_HOURS_A_WEEK} times a week, all layers together.",
                field="layers",
                limit=MAX_HOURS_A_WEEK,
            )
    for index, override in enumerate(given.get("overrides", ())):
        field = f"overrides[{index}]"
        _require_person(override["user_id"], known, field=f"{field}.user_id")
        if override["ends_at"] <= override["starts_at"]:
            raise ValidationFailed("must be after starts_at.", field=f"{field}.ends_at")
    for name in given.keys() & {"name", "timezone", "layers", "overrides"}:
        setattr(schedule, _COLUMNS.get(name, name), given[name])


def _settle_layer(layer: Mapping[str, Any], field: str, known: Collection[str]) -> dict[str, Any]:
    every = layer["every"]
    if every["count"] > MOST_OF_UNIT[every["unit"]]:
        raise ValidationFailed(
            f"at most {MOST_OF_UNIT[every['unit']]} with the unit {every['unit']}.", field=f"{field}.every.count"
        )
    for index, user_id in enumerate(layer["user_ids"]):
        _require_person(user_id, known, field=f"{field}.user_ids[{index}]")
    return {**layer, "hours": settle_hours(layer.get("hours", []), f"{field}.hours")}


def _require_person(user_id: str, known: Collection[str], *, field: str) -> None:
    if user_id not in known:
        raise ValidationFailed("is not a member of the project, or the owner.", field=field)


def create_policy(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> EscalationPolicy:
    with transaction.atomic():
        project, owner = place(caller, given)
        policy = EscalationPolicy(owner=owner, project=project, created_at=now, steps=[])
        _set_policy(caller, policy, given)
        enforce_quota(owner, EscalationPolicy, limit=MAX_POLICIES, error=LimitReached)
        policy.save(force_insert=True)
        _record(caller, Action.ESCALATION_POLICY_CREATED, policy)
    return policy


def update_policy(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, if_match: IfMatch = None
) -> EscalationPolicy:
    """Change these fields. Running escalations follow the new steps. Targets that it has may stay."""
    with transaction.atomic():
        policy = access.lock(get_policy, caller, public_id, if_match=if_match)
        require_same_project(policy, given, reason=_FIXED)
        _set_policy(caller, policy, given)
        policy.save(update_fields=["name", "steps", "repeat", "acknowledge_timeout_min"])
        _record(caller, Action.ESCALATION_POLICY_UPDATED, policy, fields=sorted(given))
    return policy


def delete_policy(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a policy. Its monitors and projects then have none.

    Their rows are locked first, in the order of other changes: states of monitors, projects, the policy.
    """
    with transaction.atomic():
        policy = get_policy(caller, public_id)
        caller.require_write(policy)
        states = MonitorState.objects.filter(monitor__escalation_policy=policy).order_by("pk")
        list(states.select_for_update(of=["self"], no_key=True).values_list("pk"))
        projects = Project.objects.filter(escalation_policy=policy).order_by("pk")
        list(projects.select_for_update(no_key=True).values_list("pk"))
        policy = access.lock(get_policy, caller, public_id, for_deletion=True, if_match=if_match)
        _record(caller, Action.ESCALATION_POLICY_DELETED, policy)
        policy.delete()


def lock_policies(project_ids: Collection[int]) -> None:
    """Lock the policies of projects that are being deleted, before their monitors change."""
    policies = EscalationPolicy.objects.select_for_update().filter(project__in=project_ids)
    list(policies.order_by("pk").values_list("pk"))


def _set_policy(caller: Caller, policy: EscalationPolicy, given: Mapping[str, Any]) -> None:
    """Set the fields of `given`, validated."""
    if "steps" in given and given["steps"] != selectors.shown_steps(policy, selectors.targets_of([policy])[0]):
        kept = {(target["type"], target["id"]) for step in policy.steps for target in step["targets"]}
        policy.steps = given["steps"]
        found = selectors.targets_of([policy])[0]
        visible = _visible_targets(caller, found)
        for number, step in enumerate(given["steps"]):
            if not step["targets"]:
                raise ValidationFailed("needs at least one target.", field=f"steps[{number}].targets")
            for index, target in enumerate(step["targets"]):
                pair = target["type"], target["id"]
                if not found.has(target) or (pair not in kept and not visible.has(target)):
                    field = f"steps[{number}].targets[{index}].id"
                    raise ValidationFailed(f"{target['type']} not found.", field=field)
    for name in given.keys() & {"name", "repeat", "acknowledge_timeout_min"}:
        setattr(policy, name, given[name])


def _visible_targets(caller: Caller, found: Targets) -> Targets:
    """Return those targets that the caller can access: not the owner's own, but for the owner."""
    schedules = set(list_schedules(caller).filter(public_id__in=found.schedules).values_list("public_id", flat=True))
    channels = set(list_channels(caller).filter(public_id__in=found.channels).values_list("public_id", flat=True))
    return Targets(
        found.people,
        {key: row for key, row in found.schedules.items() if key in schedules},
        {key: row for key, row in found.channels.items() if key in channels},
    )


def set_contact(caller: Caller, rules: Sequence[Mapping[str, Any]], *, if_match: IfMatch = None) -> Contact:
    """Replace how the caller is reached. Raises ValidationFailed for channels that are not the caller's own."""
    caller.require_session()
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=caller.user.pk)
        require_match(contact_of(caller.user), if_match)
        own = set(own_channels([caller.user]).values_list("public_id", flat=True))
        for index, rule in enumerate(rules):
            if rule["channel_id"] not in own:
                raise ValidationFailed(
                    "must be an alert channel of your own, without a project.", field=f"rules[{index}].channel_id"
                )
        contact, _ = Contact.objects.update_or_create(user=caller.user, defaults={"rules": list(rules)})
        log.record(caller, Action.CONTACT_UPDATED, details={"rules": len(rules)})
    return contact


def _record(caller: Caller, action: Action, row: Row, **details: Any) -> None:
    log.record(caller, action, project=row.project, target_id=row.public_id, target_name=row.name, details=details)
