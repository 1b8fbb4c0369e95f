from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from core.api.fields import ChoiceField, EpochMsField, IntField, StrictSerializer, TextField
from core.errors import ProjectRequired
from tokens.models import ProjectToken, Session

MIN_TTL_SEC, MAX_TTL_SEC = 60, 7_776_000


class SessionInputSerializer(StrictSerializer):
    email = TextField(max_length=254)
    password = TextField(max_length=1024, style={"input_type": "password"})
    code = TextField(
        max_length=32,
        required=False,
        help_text="A code of the authenticator app, or an unused recovery code. Required after `mfa_required`.",
    )


class SessionSerializer(serializers.Serializer[Any]):
    """A session of the API, which lasts 14 days."""

    id = serializers.CharField(source="public_id")
    created_at = EpochMsField()
    last_used_at = EpochMsField(allow_null=True)
    expires_at = EpochMsField()
    current = serializers.SerializerMethodField(help_text="Whether it is the session of this request.")

    def get_current(self, session: Session) -> bool:
        return bool(session.lookup == self.context["lookup"])


class SessionUserSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    email = serializers.EmailField()
    plan = serializers.CharField(source="plan.name")


class SessionCreatedSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="The session token; shown once.")
    expires_at = EpochMsField()
    user = SessionUserSerializer()


class AccountPatchSerializer(StrictSerializer):
    current_password = TextField(max_length=1024, style={"input_type": "password"})
    password = TextField(max_length=1024, style={"input_type": "password"})


class AccountDeletionSerializer(StrictSerializer):
    password = TextField(max_length=1024, style={"input_type": "password"})


class TokenInputSerializer(StrictSerializer):
    project_id = TextField(max_length=64, help_text="The single project the token is for.")
    name = TextField(max_length=200)
    ttl_seconds = IntField(
        required=False, min_value=MIN_TTL_SEC, max_value=MAX_TTL_SEC, help_text="Omitted: never expires."
    )

    access = ChoiceField(
        choices=ProjectToken.Access.values,
        required=False,
        help_text="read: every writing method is refused with 403 `read_only`. Default: write.",
    )

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("project_id"):
            raise ProjectRequired
        return super().to_internal_value(data)


class TokenSerializer(serializers.Serializer[Any]):
    """A project token; its plaintext is shown once, at creation."""

    id = serializers.CharField(source="public_id")
    project_id = serializers.CharField(source="project.public_id")
    name = serializers.CharField(allow_null=True)
    access = serializers.ChoiceField(
        choices=ProjectToken.Access.values,
        help_text="The token of a member who became a viewer only reads, even with write.",
    )
    created_at = EpochMsField()
    last_used_at = EpochMsField(allow_null=True)
    expires_at = EpochMsField(allow_null=True, help_text="null: never.")


class TokenCreatedSerializer(TokenSerializer):
    token = serializers.SerializerMethodField(help_text="The plaintext; shown once.")

    def get_token(self, _token: ProjectToken) -> str:
        secret: str = self.context["secret"]
        return secret
