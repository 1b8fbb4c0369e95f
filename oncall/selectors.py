"""Queries for on-call schedules, escalation policies, and the people in them."""

from __future__ import annotations

from collections.abc import Iterable

from accounts.models import User
from oncall.models import EscalationPolicy, OnCallSchedule
from projects.models import Membership

Row = OnCallSchedule | EscalationPolicy
People = dict[str, User]
"""Users by public id."""


def people_of(rows: Iterable[Row]) -> dict[Row, People]:
    """Return who can be on call, or notified, for each row: the active members of its project, or its owner alone."""
    rows = list(rows)
    projects = {row.project_id for row in rows} - {None}
    members: dict[int, People] = {}
    for place in Membership.objects.filter(project__in=projects, user__is_active=True).select_related("user"):
        assert place.user is not None
        members.setdefault(place.project_id, {})[place.user.public_id] = place.user
    alone = {row.owner_id for row in rows if row.project_id is None}
    owners = {user.pk: {user.public_id: user} for user in User.objects.filter(pk__in=alone, is_active=True)}
    return {
        row: owners.get(row.owner_id, {}) if row.project_id is None else members.get(row.project_id, {})
        for row in rows
    }
