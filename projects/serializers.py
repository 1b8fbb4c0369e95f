from __future__ import annotations

from typing import Any

from rest_framework import serializers

from core.api.fields import EpochMsField, StrictSerializer, TextField


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
