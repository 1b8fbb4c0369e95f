from __future__ import annotations

from typing import Any

from rest_framework import serializers


class PlanSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    min_interval_sec = serializers.IntegerField()
    monitor_limit = serializers.IntegerField(allow_null=True, help_text="null: no limit.")


class UsageSerializer(serializers.Serializer[Any]):
    # Uses the reverse relation of Monitor.owner: monitors are in a higher layer.
    monitors = serializers.IntegerField(source="monitors.count", help_text="Monitors that count towards the limit.")


class AccountSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="public_id")
    email = serializers.EmailField()
    plan = PlanSerializer()
    usage = UsageSerializer(source="*")
