"""Policies, schedules and people for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from accounts.models import User
from alerts.models import AlertChannel
from core.clock import to_ms
from incidents.models import Incident
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from projects.access import owner_of
from projects.models import Project
from tests.helpers import NOON

Target = User | OnCallSchedule | AlertChannel


def target(row: Target) -> dict[str, str]:
    kind = {User: "user", OnCallSchedule: "schedule", AlertChannel: "channel"}[type(row)]
    return {"type": kind, "id": row.public_id}


def make_policy(
    place: User | Project, *steps: tuple[int, Sequence[Target]], name: str = "Backend", **columns: Any
) -> EscalationPolicy:
    """Create a policy of a project or account. A step is its minutes and targets."""
    project = place if isinstance(place, Project) else None
    return EscalationPolicy.objects.create(
        owner=owner_of(place) if isinstance(place, Project) else place,
        project=project,
        created_at=NOON,
        name=name,
        steps=[{"after_min": after, "targets": [target(row) for row in rows]} for after, rows in steps],
        **columns,
    )


def make_schedule(place: User | Project, *people: User, name: str = "Nights", **columns: Any) -> OnCallSchedule:
    """Create a schedule in which the people take turns of a day since long ago."""
    start = to_ms(NOON - timedelta(days=1000))
    layer = {
        "user_ids": [user.public_id for user in people],
        "every": {"unit": "day", "count": 1},
        "starts_at": start,
        "hours": [],
    }
    given: dict[str, Any] = {"layers": [layer], "time_zone": "UTC"} | columns
    return OnCallSchedule.objects.create(
        owner=owner_of(place) if isinstance(place, Project) else place,
        project=place if isinstance(place, Project) else None,
        created_at=NOON,
        name=name,
        **given,
    )


def reach_by(user: User, *rules: tuple[int, AlertChannel]) -> None:
    """Let a person be reached after some minutes each through these channels."""
    stored = [{"after_min": after, "channel_id": channel.public_id} for after, channel in rules]
    Contact.objects.update_or_create(user=user, defaults={"rules": stored})


def texts(incident: Incident) -> list[str]:
    """Return what the timeline says about the escalation."""
    kinds = ("escalated", "unacknowledged", "suppressed")
    return list(incident.events.filter(type__in=kinds).order_by("pk").values_list("text", flat=True))
