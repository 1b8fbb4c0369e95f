from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from checks.agent_protocol import MAX_NAME as MAX_AGENT_NAME
from checks.agent_protocol import MAX_VERSION, PROTOCOL
from core.api.fields import BoolField, EpochMsField, IntField, StrictSerializer, TextField
from core.clock import to_ms
from locations.services import MAX_NAME, TOKEN_LIFETIME


class LocationInputSerializer(StrictSerializer):
    """A location to create."""

    name = TextField(max_length=MAX_NAME)
    project_id = TextField(required=False, allow_null=True, max_length=64)


class LocationPatchSerializer(StrictSerializer):
    name = TextField(max_length=MAX_NAME, required=False)
    preselected = BoolField(required=False)


class LocationSerializer(serializers.Serializer[Any]):
    """A place that checks run from."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField(source="title")
    project_id = serializers.CharField(source="project.public_id", allow_null=True, default=None)
    default = serializers.BooleanField(source="is_default", help_text="Whether it is that of the workers.")
    private = serializers.BooleanField(source="is_private", help_text="Whether only a project or account may use it.")
    preselected = serializers.BooleanField(help_text="Whether new monitors are checked from here.")
    online = serializers.BooleanField(source="is_online")
    agents = serializers.IntegerField(source="agents.all.__len__", help_text="How many agents it has.")
    version = serializers.CharField(allow_null=True, help_text="The oldest version of its agents that are online.")
    last_seen_at = EpochMsField(allow_null=True, help_text="When one of its agents was last heard of.")


class JoinTokenSerializer(serializers.Serializer[Any]):
    join_token = serializers.SerializerMethodField(help_text="For one agent; shown once.")
    join_token_expires_at = serializers.SerializerMethodField()

    def get_join_token(self, _: Any) -> str:
        secret: str = self.context["secret"]
        return secret

    def get_join_token_expires_at(self, _: Any) -> int:
        return to_ms(self.context["now"] + TOKEN_LIFETIME)


class LocationCreatedSerializer(LocationSerializer, JoinTokenSerializer):
    pass


class AgentSerializer(serializers.Serializer[Any]):
    """A process that checks for a location."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    version = serializers.CharField()
    last_seen_at = EpochMsField(allow_null=True, help_text="null: not since it joined.")


class JoinSerializer(StrictSerializer):
    """What an agent sends to join. A later version of the protocol may add fields."""

    token = TextField(max_length=100)
    name = TextField(max_length=MAX_AGENT_NAME)
    version = TextField(max_length=MAX_VERSION)
    protocol = IntField(required=False, default=PROTOCOL, min_value=0)

    def to_internal_value(self, data: Any) -> Any:
        known = {name: data[name] for name in self.fields if name in data} if isinstance(data, Mapping) else data
        return super().to_internal_value(known)


class JoinedSerializer(serializers.Serializer[Any]):
    agent_id = serializers.CharField(source="public_id")
    credential = serializers.SerializerMethodField(help_text="For the agent's other requests; shown once.")
    location_id = serializers.CharField(source="location.public_id")
    location_name = serializers.CharField(source="location.title")

    def get_credential(self, _: Any) -> str:
        secret: str = self.context["secret"]
        return secret
