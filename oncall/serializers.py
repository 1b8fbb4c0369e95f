"""On-call schedules, escalation policies and contacts in the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.api.fields import ChoiceField, EpochMsField, IntField, ListField, StrictSerializer, TextField
from core.api.hours import HoursSerializer
from core.clock import to_ms
from core.hours import MAX_HOURS
from oncall import selectors
from oncall.models import EscalationPolicy
from oncall.services import (
    MAX_LAYERS,
    MAX_OVERRIDES,
    MAX_PEOPLE,
    MAX_RULES,
    MAX_STEPS,
    MAX_TARGETS,
    MOST_OF_UNIT,
    TARGET_TYPES,
)

LONGEST_WAIT_MIN = 1440
LATEST_MS = to_ms(datetime(9999, 1, 1, tzinfo=UTC))
"""Later times may have no local time: Python's last year is 9999."""
PEOPLE_HELP = "Members of the project, by `user_id` of Member, or the owner."


def _time(help_text: str | None = None) -> IntField:
    """Return a field of epoch milliseconds, which is also how they are stored."""
    return IntField(min_value=0, max_value=LATEST_MS, help_text=help_text)


class TurnLengthSerializer(StrictSerializer):
    """The length of a turn: at most 168 hours, 90 days or 52 weeks."""

    unit = ChoiceField(choices=tuple(MOST_OF_UNIT))
    count = IntField(min_value=1, max_value=max(MOST_OF_UNIT.values()))


class OnCallLayerSerializer(StrictSerializer):
    """People who take turns."""

    user_ids = ListField(
        child=TextField(max_length=64),
        min_length=1,
        max_length=MAX_PEOPLE,
        help_text=f"{PEOPLE_HELP} In the order of their turns; repeats are allowed. The turn of one who has left goes "
        "to the next.",
    )
    every = TurnLengthSerializer()
    starts_at = _time(
        "Of the first turn, epoch milliseconds. Turns change at the same wall-clock time, hours excepted."
    )
    hours = ListField(
        child=HoursSerializer(),
        required=False,
        max_length=MAX_HOURS,
        help_text="Empty: always.",
    )


class OnCallOverrideSerializer(StrictSerializer):
    """A person who is on call in place of the layers."""

    user_id = TextField(max_length=64, help_text=PEOPLE_HELP)
    starts_at = _time()
    ends_at = _time()


class OnCallScheduleInputSerializer(StrictSerializer):
    """An on-call schedule to create."""

    name = TextField(max_length=200)
    project_id = TextField(
        required=False, allow_null=True, max_length=64, help_text="null: one of the caller alone. Set at creation."
    )
    timezone = TextField(required=False, max_length=64, help_text="An IANA name. Default: UTC.")
    layers = ListField(
        child=OnCallLayerSerializer(),
        min_length=1,
        max_length=MAX_LAYERS,
        help_text="Later layers win where they have someone.",
    )
    overrides = ListField(
        child=OnCallOverrideSerializer(),
        required=False,
        max_length=MAX_OVERRIDES,
        help_text="They win over all layers; the last in the list wins among them.",
    )


class OnCallScheduleSerializer(serializers.Serializer[Any]):
    """Who is on call when."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    timezone = serializers.CharField(source="time_zone")
    layers = OnCallLayerSerializer(many=True)
    overrides = OnCallOverrideSerializer(many=True)
    created_at = EpochMsField()


class OnCallSchedulePatchSerializer(OnCallScheduleInputSerializer):
    """The fields to change. Read-only fields of a schedule are ignored."""

    ignored = frozenset(OnCallScheduleSerializer().fields) - frozenset(OnCallScheduleInputSerializer().fields)

    name = TextField(required=False, max_length=200)
    layers = ListField(child=OnCallLayerSerializer(), required=False, min_length=1, max_length=MAX_LAYERS)


class ShiftSerializer(serializers.Serializer[Any]):
    """A span in which one person is on call."""

    starts_at = EpochMsField()
    ends_at = EpochMsField()
    user_id = serializers.CharField()
    layer = serializers.IntegerField(allow_null=True, help_text="Its index at the beginning; null: an override.")


class OnCallNowSerializer(serializers.Serializer[Any]):
    """Who is on call now, and who is next within 366 days."""

    user_id = serializers.CharField(allow_null=True, help_text="null: no one is on call.")
    until = EpochMsField(allow_null=True, help_text="At most 366 days ahead.")
    next_user_id = serializers.CharField(allow_null=True)
    next_at = EpochMsField(allow_null=True)


class CalendarLinkSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(help_text="Secret, and shown only once: subscribe to it in a calendar.")


class EscalationTargetSerializer(StrictSerializer):
    """A person, the person on call, or a channel. The last two are of the policy's project, or the owner's."""

    type = ChoiceField(choices=TARGET_TYPES)
    id = TextField(max_length=64)


class EscalationStepSerializer(StrictSerializer):
    after_min = IntField(min_value=0, max_value=LONGEST_WAIT_MIN, help_text="After the step before, or the outage.")
    targets = ListField(
        child=EscalationTargetSerializer(),
        max_length=MAX_TARGETS,
        help_text="At least one. Answers leave out those that no longer exist.",
    )


class EscalationPolicyInputSerializer(StrictSerializer):
    """An escalation policy to create."""

    name = TextField(max_length=200)
    project_id = TextField(
        required=False, allow_null=True, max_length=64, help_text="null: one of the caller alone. Set at creation."
    )
    steps = ListField(child=EscalationStepSerializer(), min_length=1, max_length=MAX_STEPS)
    repeat = IntField(
        required=False, min_value=0, max_value=9, help_text="How often it starts again after the last step. Default: 0."
    )
    acknowledge_timeout_min = IntField(
        required=False,
        min_value=0,
        max_value=LONGEST_WAIT_MIN,
        help_text="An outage that is acknowledged but not resolved by then starts again. Default: 0, never.",
    )


class EscalationPolicySerializer(serializers.Serializer[Any]):
    """Whom an outage notifies, and when, until someone acknowledges it."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    steps = serializers.SerializerMethodField()
    repeat = serializers.IntegerField()
    acknowledge_timeout_min = serializers.IntegerField()
    reaches_no_one = serializers.SerializerMethodField(
        help_text="true: it has no target that can be notified, so the owner is notified by e-mail instead."
    )
    created_at = EpochMsField()

    @extend_schema_field(EscalationStepSerializer(many=True))
    def get_steps(self, policy: EscalationPolicy) -> list[dict[str, Any]]:
        return selectors.shown_steps(policy, self.context["targets"][policy])

    def get_reaches_no_one(self, policy: EscalationPolicy) -> bool:
        return policy in self.context["unreachable"]


def policy_context(policies: Sequence[EscalationPolicy]) -> dict[str, Any]:
    """Return what EscalationPolicySerializer needs in its context, with a constant number of queries."""
    targets = dict(zip(policies, selectors.targets_of(policies), strict=True))
    return {"targets": targets, "unreachable": selectors.unreachable(targets)}


class EscalationPolicyPatchSerializer(EscalationPolicyInputSerializer):
    """The fields to change. Read-only fields of a policy are ignored."""

    ignored = frozenset(EscalationPolicySerializer().fields) - frozenset(EscalationPolicyInputSerializer().fields)

    name = TextField(required=False, max_length=200)
    steps = ListField(child=EscalationStepSerializer(), required=False, min_length=1, max_length=MAX_STEPS)


class ContactRuleSerializer(StrictSerializer):
    after_min = IntField(min_value=0, max_value=60, help_text="After the person is to be notified.")
    channel_id = TextField(max_length=64, help_text="A channel of the person's own, without a project.")


class ContactSerializer(StrictSerializer):
    """How a person is reached. By default their e-mail address at once."""

    rules = ListField(child=ContactRuleSerializer(), max_length=MAX_RULES, help_text="Empty: not reachable.")
