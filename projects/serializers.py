from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.api.fields import ChoiceField, EpochMsField, StrictSerializer, TextField
from projects.models import Membership, Role


class ProjectInputSerializer(StrictSerializer):
    name = TextField(max_length=200)


class ProjectSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    created_at = EpochMsField()


class ListedProjectSerializer(ProjectSerializer):
    """A project of a list, with its monitors counted: in all, and by status (`unknown`: none yet)."""

    monitors = serializers.IntegerField(source="monitor_count")
    up = serializers.IntegerField()
    slow = serializers.IntegerField()
    down = serializers.IntegerField()
    unknown = serializers.IntegerField()


GIVEN_ROLES = (Role.ADMIN.value, Role.MEMBER.value)
MEMBER_STATUSES = ("active", "invited")


class MemberInputSerializer(StrictSerializer):
    email = TextField(max_length=254)
    role = ChoiceField(choices=GIVEN_ROLES)


class MemberPatchSerializer(StrictSerializer):
    role = ChoiceField(choices=GIVEN_ROLES)


class MemberSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    email = serializers.EmailField()
    role = serializers.ChoiceField(choices=Role.values)
    status = serializers.SerializerMethodField(
        help_text="invited: until somebody with this address signs in."
    )
    created_at = EpochMsField()
    expires_at = EpochMsField(
        source="invited_until", allow_null=True, help_text="Of an invitation; null for a member."
    )

    @extend_schema_field(serializers.ChoiceField(choices=MEMBER_STATUSES))
    def get_status(self, member: Membership) -> str:
        return "invited" if member.is_open else "active"
