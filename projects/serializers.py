from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from audit.actions import Action
from audit.models import Entry
from core.api.fields import ChoiceField, EpochMsField, StrictSerializer, TextField
from projects import log
from projects.models import Membership, Role

POLICY_HELP = "an escalation policy of the project, or one of its owner's without a project."


class ProjectInputSerializer(StrictSerializer):
    name = TextField(max_length=200)


class ProjectSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    escalation_policy_id = serializers.CharField(
        source="escalation_policy.public_id", allow_null=True, help_text="Applies to its monitors without one."
    )
    created_at = EpochMsField()


class ProjectPatchSerializer(StrictSerializer):
    """The fields to change. Read-only fields of a project are ignored."""

    ignored = frozenset({"id", "created_at"})

    name = TextField(required=False, max_length=200)
    escalation_policy_id = TextField(
        required=False, allow_null=True, max_length=64, help_text=f"For its monitors without one: {POLICY_HELP}"
    )


class ListedProjectSerializer(ProjectSerializer):
    """A project with the number of its monitors, in total and by status.

    `unknown`: not checked yet, or not checked because of a problem of Pulsekeeper (`stale_since`).
    """

    monitors = serializers.IntegerField(source="monitor_count")
    up = serializers.IntegerField()
    slow = serializers.IntegerField()
    down = serializers.IntegerField()
    unknown = serializers.IntegerField()


GIVEN_ROLES = (Role.ADMIN.value, Role.MEMBER.value, Role.VIEWER.value)
MEMBER_STATUSES = ("active", "invited")


class MemberInputSerializer(StrictSerializer):
    email = TextField(max_length=254)
    role = ChoiceField(choices=GIVEN_ROLES)


class MemberPatchSerializer(StrictSerializer):
    role = ChoiceField(choices=GIVEN_ROLES)


class MemberSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    user_id = serializers.CharField(
        source="user.public_id", allow_null=True, help_text="Names the person in schedules and policies."
    )
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.values)
    status = serializers.SerializerMethodField(help_text="invited: until a person with this address signs in.")
    created_at = EpochMsField()
    expires_at = EpochMsField(source="invited_until", allow_null=True, help_text="Invitations only; null for members.")

    @extend_schema_field(serializers.ChoiceField(choices=MEMBER_STATUSES))
    def get_status(self, member: Membership) -> str:
        return "invited" if member.is_open else "active"


class AuditEntrySerializer(serializers.Serializer[Any]):
    """An action that matters to security."""

    id = serializers.CharField(source="public_id")
    at = EpochMsField()
    action = serializers.ChoiceField(choices=[action.value for action in Action])
    actor_type = serializers.ChoiceField(choices=Entry.ActorType.values)
    actor_id = serializers.CharField(
        source="actor_public_id",
        allow_null=True,
        help_text="The account that acted; null for staff and unknown actors.",
    )
    actor_email = serializers.EmailField(allow_null=True, help_text="At that time; null after the account was deleted.")
    project_id = serializers.CharField(source="project_public_id", allow_null=True, read_only=True)
    target_id = serializers.CharField(
        allow_null=True, read_only=True, help_text="The object of the action, if it has an id."
    )
    target_name = serializers.CharField(allow_null=True, read_only=True, help_text="Its name at that time.")
    address = serializers.CharField(allow_null=True, help_text="Visible only to the person who acted.")
    user_agent = serializers.CharField(allow_null=True, help_text="Visible only to the person who acted.")
    details = serializers.DictField(help_text="Details, depending on the action.")

    def to_representation(self, entry: Entry) -> dict[str, Any]:
        """Return what `viewer` of the context may see, with null for empty texts."""
        shown = super().to_representation(log.redact(entry, viewer=self.context["viewer"]))
        return {name: None if value == "" else value for name, value in shown.items()}
