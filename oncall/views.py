"""On-call schedules, escalation policies and contacts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from core.api.query import Pages, TimeParam
from core.api.viewsets import ServiceViewSet, operation
from core.clock import to_ms
from core.errors import LimitReached, ValidationFailed
from oncall import selectors, services
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from oncall.rotation import Now, Shift
from oncall.serializers import (
    CalendarLinkSerializer,
    ContactSerializer,
    EscalationPolicyInputSerializer,
    EscalationPolicyPatchSerializer,
    EscalationPolicySerializer,
    OnCallNowSerializer,
    OnCallScheduleInputSerializer,
    OnCallSchedulePatchSerializer,
    OnCallScheduleSerializer,
    ShiftSerializer,
    policy_context,
)

LONGEST_RANGE = timedelta(days=366)
USUAL_RANGE = timedelta(days=30)
_LATEST_RANGE_MS = to_ms(datetime(9997, 1, 1, tzinfo=UTC))
"""The range and the longest turn after it end before the year 10000."""
MOST_SHIFTS = 10_000
"""In an answer. Hourly turns of a year are 8,784."""


class ScheduleViewSet(ServiceViewSet):
    noun = "on_call_schedule"
    lookup_url_kwarg = "schedule_id"
    serializer_class = OnCallScheduleSerializer
    has_etag = True

    def get_object(self, schedule_id: str) -> OnCallSchedule:
        return selectors.get_schedule(self.caller, schedule_id)

    @operation(pages=Pages(weight=selectors.SCHEDULE_CHARS))
    def list(self) -> QuerySet[OnCallSchedule]:
        """List on-call schedules."""
        return selectors.list_schedules(self.caller)

    @operation(body=OnCallScheduleInputSerializer, errors=(LimitReached,))
    def create(self, data: dict[str, Any]) -> OnCallSchedule:
        """Create an on-call schedule.

        In each layer people take turns. A turn changes at the same wall-clock time of the time zone, also across
        changes of summer time; turns of hours have their exact length.
        """
        return services.create_schedule(self.caller, data, now=self.now)

    @operation()
    def retrieve(self, schedule_id: str) -> OnCallSchedule:
        """Read an on-call schedule."""
        return self.get_object(schedule_id)

    @operation(body=OnCallSchedulePatchSerializer)
    def partial_update(self, schedule_id: str, data: dict[str, Any]) -> OnCallSchedule:
        """Change an on-call schedule.

        People who have left may stay in the lists that have them.
        """
        return services.update_schedule(self.caller, schedule_id, data, if_match=self.if_match)

    @operation()
    def destroy(self, schedule_id: str) -> None:
        """Delete an on-call schedule."""
        services.delete_schedule(self.caller, schedule_id, if_match=self.if_match)

    @operation(
        "shifts",
        method="get",
        id="list_shifts",
        answer=ShiftSerializer,
        many=True,
        params=(
            TimeParam("from", "Epoch milliseconds. Default: now.", maximum=_LATEST_RANGE_MS),
            TimeParam("to", f"At most {LONGEST_RANGE.days} days after from. Default: {USUAL_RANGE.days} days after."),
        ),
    )
    def shifts(self, schedule_id: str, **limits: datetime | None) -> Sequence[Shift]:
        """List the shifts of a range, in order.

        Cut to the range. Neighbours of one person are merged; spans without anyone are left out. At most 10,000: a
        longer list needs several ranges.
        """
        start = limits["from"] or self.now
        end = limits["to"] or start + USUAL_RANGE
        if not start <= end <= start + LONGEST_RANGE:
            raise ValidationFailed(f"must be 0 to {LONGEST_RANGE.days} days after from.", field="to")
        with selectors.computing():
            found = selectors.shifts_of(self.found, start, end)
        if len(found) > MOST_SHIFTS:
            raise ValidationFailed(f"there are more than {MOST_SHIFTS:,} shifts; name a shorter range.", field="to")
        return found

    @operation("now", method="get", id="get_on_call", answer=OnCallNowSerializer)
    def on_call(self, schedule_id: str) -> Now:
        """Read who is on call now, and who is next."""
        with selectors.computing():
            return selectors.now_of(self.get_object(schedule_id), self.now)

    @operation("calendar", id="create_on_call_calendar", answer=CalendarLinkSerializer)
    def calendar(self, schedule_id: str) -> dict[str, str]:
        """Create a secret address of the schedule's calendar.

        An iCalendar feed from 30 days ago to 90 days ahead. The address from before no longer works.
        """
        return {"url": services.new_calendar(self.caller, schedule_id)}


class PolicyViewSet(ServiceViewSet):
    noun = "escalation_policy"
    lookup_url_kwarg = "policy_id"
    serializer_class = EscalationPolicySerializer
    has_etag = True

    def get_object(self, policy_id: str) -> EscalationPolicy:
        return selectors.get_policy(self.caller, policy_id)

    def serialize(self, rows: Sequence[Any], serializer: Any = None) -> Any:
        return list(EscalationPolicySerializer(rows, many=True, context=policy_context(rows)).data)

    @operation(id="list_escalation_policies", pages=Pages(weight=selectors.POLICY_CHARS))
    def list(self) -> QuerySet[EscalationPolicy]:
        """List escalation policies."""
        return selectors.list_policies(self.caller)

    @operation(body=EscalationPolicyInputSerializer, errors=(LimitReached,))
    def create(self, data: dict[str, Any]) -> EscalationPolicy:
        """Create an escalation policy.

        It applies to monitors and projects that have its id as `escalation_policy_id`.
        """
        return services.create_policy(self.caller, data, now=self.now)

    @operation()
    def retrieve(self, policy_id: str) -> EscalationPolicy:
        """Read an escalation policy."""
        return self.get_object(policy_id)

    @operation(body=EscalationPolicyPatchSerializer)
    def partial_update(self, policy_id: str, data: dict[str, Any]) -> EscalationPolicy:
        """Change an escalation policy."""
        return services.update_policy(self.caller, policy_id, data, if_match=self.if_match)

    @operation()
    def destroy(self, policy_id: str) -> None:
        """Delete an escalation policy; monitors and projects that have it then have none."""
        services.delete_policy(self.caller, policy_id, if_match=self.if_match)


class ContactViewSet(ServiceViewSet):
    noun = "contact"
    is_singleton = True
    serializer_class = ContactSerializer
    session_only = True
    has_etag = True

    @operation()
    def retrieve(self) -> Contact:
        """Read how you are reached when an escalation policy notifies you."""
        return selectors.contact_of(self.caller.user)

    @operation(body=ContactSerializer)
    def update(self, data: dict[str, Any]) -> Contact:
        """Change how you are reached: in which of your own alert channels, and after how many minutes.

        An empty list: not at all.
        """
        return services.set_contact(self.caller, data["rules"], if_match=self.if_match)
