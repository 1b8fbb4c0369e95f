from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from oncall.serializers import OnCallScheduleSerializer
from projects.access import owned


def sections(user: User, *, now: datetime) -> Sections:
    schedules = OnCallSchedule.objects.select_related("project")
    return {
        "on_call_schedules": serialized(owned(schedules, user), OnCallScheduleSerializer),
        "escalation_policies": columns_of(
            owned(EscalationPolicy.objects.all(), user),
            id="public_id",
            name="name",
            project_id="project__public_id",
            steps="steps",
            repeat="repeat",
            acknowledge_timeout_min="acknowledge_timeout_min",
            created_at="created_at",
        ),
        "contact": columns_of(Contact.objects.filter(user=user), rules="rules"),
    }
