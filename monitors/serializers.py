"""Monitors as the API takes and gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from checks.probes.http.spec import RuleType
from checks.probes.http.target import MAX_URL
from checks.spec import Verdict
from core.api.fields import BoolField, ChoiceField, EpochMsField, IntField, StrictSerializer, TextField
from core.clock import to_ms, utc_now
from monitors.configuration import (
    CREATABLE_TYPES,
    HEADER_TYPES,
    MAX_BODY,
    MAX_HEADERS,
    MAX_RULES,
    METHODS,
    PLANNED_TYPES,
    MonitorType,
)
from monitors.models import Monitor
from monitors.selectors import Statistics, statistics


class ContentRuleSerializer(StrictSerializer):
    """An assertion on the body. Text rules need `value`, json_field needs `path`."""

    type = ChoiceField(choices=[t.value for t in RuleType])
    value = TextField(max_length=256, required=False, help_text="Text rules: the literal to match.")
    path = TextField(max_length=128, required=False, help_text="json_field: dot path, for example a.b.")
    equals = TextField(
        max_length=256,
        required=False,
        allow_blank=True,
        help_text="json_field: without it, the field must exist.",
    )


class HeaderInputSerializer(StrictSerializer):
    """A header to send. Values are stored encrypted and never returned."""

    ignored = frozenset({"value_dropped"})  # so that a client can send back what it read

    name = TextField(max_length=256)
    value = TextField(
        max_length=4096,
        required=False,
        allow_blank=True,
        write_only=True,
        help_text="Plaintext; on PATCH, omit to keep the stored value. It is kept for the same server and owner only: "
        "see `value_dropped` of the answer.",
    )
    type = ChoiceField(choices=HEADER_TYPES, required=False, help_text="A display hint only.")


class HeaderOutSerializer(serializers.Serializer[Any]):
    """A header that is sent; its value is never returned."""

    name = serializers.CharField()
    type = serializers.ChoiceField(choices=HEADER_TYPES, required=False)
    value_dropped = serializers.BooleanField(
        required=False,
        help_text="true: the stored value was dropped, because the request goes to another server now (scheme, host, "
        "port or Host header) or the monitor to another owner. Send the value again. Absent otherwise.",
    )

    def to_representation(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in instance.items() if value is not None}


class TypeField(ChoiceField):
    def to_internal_value(self, data: Any) -> Any:
        if data in [t.value for t in PLANNED_TYPES]:
            raise serializers.ValidationError(f"{data} monitors are planned, and cannot be created yet.")
        return super().to_internal_value(data)


class MonitorInputSerializer(StrictSerializer):
    """A monitor to create or to test."""

    url = TextField(max_length=MAX_URL, required=False, allow_blank=True, help_text="http:// or https://.")
    name = TextField(max_length=200, required=False, help_text="Default: Untitled.")
    type = TypeField(choices=[t.value for t in CREATABLE_TYPES], required=False, help_text="Default: http.")
    method = ChoiceField(
        choices=METHODS,
        required=False,
        help_text="Default: HEAD, GET for api and keyword, POST for a scheduler, which takes neither HEAD nor "
        "OPTIONS. HEAD becomes GET when content rules are set.",
    )
    interval_sec = IntField(
        required=False,
        min_value=None,
        max_value=None,
        help_text="Seconds; raised to the plan's minimum. Default: the plan's default interval, else its minimum.",
    )
    grace_sec = IntField(required=False, min_value=0, help_text="Default: 60.")
    slow_ms = IntField(
        required=False, min_value=0, help_text="Latency at or above it is slow. Default: 1500."
    )
    timeout_ms = IntField(
        required=False,
        min_value=None,
        max_value=None,
        help_text="Default: 10000; clamped to the range 1000 to 60000.",
    )
    expect_status = IntField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=999,
        help_text="null or 0: any 2xx or 3xx.",
    )
    follow_redirects = BoolField(required=False, help_text="Default: false.")
    check_ssl = BoolField(required=False, help_text="Default: false.")
    check_domain = BoolField(required=False, help_text="Default: false.")
    content_rules = serializers.ListField(child=ContentRuleSerializer(), required=False, max_length=MAX_RULES)
    request_headers = serializers.ListField(
        child=HeaderInputSerializer(), required=False, max_length=MAX_HEADERS
    )
    request_body = TextField(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=MAX_BODY,
        help_text="Only with POST, PUT, PATCH and DELETE.",
    )
    fail_threshold = IntField(required=False, min_value=1, help_text="Default: 3.")
    recover_threshold = IntField(required=False, min_value=1, help_text="Default: 1.")
    project_id = TextField(required=False, allow_null=True, max_length=64)


class MuteSerializer(StrictSerializer):
    minutes = IntField(
        min_value=None, max_value=None, help_text="0 ends the mute; values are capped at 10080, 7 days."
    )


class MonitorSerializer(serializers.Serializer[Any]):
    """A monitor: its configuration, its status and its statistics."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=[t.value for t in MonitorType])
    url = serializers.CharField()
    method = serializers.CharField()
    interval_sec = serializers.IntegerField()
    slow_ms = serializers.IntegerField()
    timeout_ms = serializers.IntegerField()
    expect_status = serializers.IntegerField(allow_null=True)
    follow_redirects = serializers.BooleanField()
    check_ssl = serializers.BooleanField()
    check_domain = serializers.BooleanField()
    domain_expires_at = EpochMsField(source="state.domain_expires_at", allow_null=True)
    cert_expires_at = EpochMsField(source="state.cert_expires_at", allow_null=True)
    content_rules = ContentRuleSerializer(many=True)
    request_headers = HeaderOutSerializer(many=True)
    request_body = serializers.CharField(allow_null=True)
    fail_threshold = serializers.IntegerField()
    recover_threshold = serializers.IntegerField()
    grace_sec = serializers.IntegerField()
    last_ping_at = EpochMsField(source="state.last_ping_at", allow_null=True)
    muted_until = serializers.SerializerMethodField()
    enabled = serializers.BooleanField()
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    status = serializers.ChoiceField(
        source="state.status", choices=[v.value for v in Verdict], allow_null=True
    )
    status_since = EpochMsField(source="state.status_since", allow_null=True)
    last_latency_ms = serializers.IntegerField(source="state.last_latency_ms", allow_null=True)
    last_connect_ms = serializers.IntegerField(source="state.last_connect_ms", allow_null=True)
    last_ttfb_ms = serializers.IntegerField(source="state.last_ttfb_ms", allow_null=True)
    uptime_24h = serializers.SerializerMethodField()
    avg_latency_24h = serializers.SerializerMethodField()
    last_checked_at = EpochMsField(source="state.last_checked_at", allow_null=True)

    def _statistics(self, monitor: Monitor) -> Statistics:
        statistics: dict[int, Statistics] = self.context["statistics"]
        return statistics[monitor.pk]

    @extend_schema_field({"type": ["integer", "null"], "format": "int64"})
    def get_muted_until(self, monitor: Monitor) -> int | None:
        """A mute that is over is none."""
        until = monitor.muted_until
        return to_ms(until) if until is not None and until > self.context["now"] else None

    def get_uptime_24h(self, monitor: Monitor) -> float | None:
        return self._statistics(monitor).uptime_24h

    def get_avg_latency_24h(self, monitor: Monitor) -> float | None:
        return self._statistics(monitor).avg_latency_24h


def shown(monitors: Sequence[Monitor]) -> list[Any]:
    """As the API gives them, with their statistics, in as many queries for one as for many."""
    now = utc_now()
    context = {"now": now, "statistics": statistics(monitors, now=now)}
    return list(MonitorSerializer(monitors, many=True, context=context).data)


READ_ONLY_FIELDS = (
    frozenset(MonitorSerializer().fields) - frozenset(MonitorInputSerializer().fields) - {"enabled"}
)


class MonitorPatchSerializer(MonitorInputSerializer):
    """The fields to change. Read-only fields of a Monitor are ignored."""

    ignored = READ_ONLY_FIELDS
    enabled = BoolField(required=False, help_text="false pauses the monitor.")


class CheckResultSerializer(serializers.Serializer[Any]):
    """The result of testing a config."""

    status = serializers.ChoiceField(choices=[v.value for v in Verdict])
    latency_ms = serializers.IntegerField(allow_null=True)
    connect_ms = serializers.IntegerField(allow_null=True)
    ttfb_ms = serializers.IntegerField(allow_null=True)
    detail = serializers.CharField(allow_null=True, help_text="null when up; the reason otherwise.")
    http_status = serializers.IntegerField(allow_null=True)
