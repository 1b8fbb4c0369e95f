"""Monitors in requests and responses of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from checks.results.series import average_latency
from checks.spec import RuleType, Verdict
from core.api.fields import BoolField, ChoiceField, EpochMsField, IntField, ListField, StrictSerializer, TextField
from core.clock import to_ms, utc_now
from core.errors import HistoryUnavailable
from core.registry import union
from monitors import dependencies, types
from monitors.models import Monitor
from monitors.selectors import DAY, shown_id, uptimes
from monitors.stale import stale_reason, stale_since
from monitors.types.content import MAX_RULE_PATH, MAX_RULE_VALUE, Rule
from monitors.types.http import HEADER_TYPES, MAX_HEADER_NAME, MAX_HEADER_VALUE, Header
from monitors.types.settings import MonitorConfig, Setting
from projects.access import Caller
from projects.placement import POLICY, policy_ids
from projects.serializers import POLICY_HELP

Field = serializers.Field[Any, Any, Any, Any]


class ContentRuleSerializer(StrictSerializer):
    """An assertion on the body. Text rules need `value`, json_field needs `path`."""

    type = ChoiceField(choices=[t.value for t in RuleType])
    value = TextField(max_length=MAX_RULE_VALUE, required=False, help_text="Text rules: the literal to match.")
    path = TextField(max_length=MAX_RULE_PATH, required=False, help_text="json_field: dot path, for example a.b.")
    equals = TextField(
        max_length=MAX_RULE_VALUE,
        required=False,
        allow_blank=True,
        help_text="json_field: without it, the field must exist.",
    )


class HeaderInputSerializer(StrictSerializer):
    """A header to send. Values are stored encrypted and never returned."""

    ignored = frozenset({"value_dropped"})  # so that a client can send back what it read

    name = TextField(max_length=MAX_HEADER_NAME)
    value = TextField(
        max_length=MAX_HEADER_VALUE,
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
        "port or Host header) or from another private location, or the monitor has another owner. Send the value "
        "again. Absent otherwise.",
    )

    def to_representation(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in instance.items() if value is not None}


_ITEMS: dict[Any, tuple[type[serializers.Serializer[Any]], type[serializers.Serializer[Any]]]] = {
    Rule: (ContentRuleSerializer, ContentRuleSerializer),
    Header: (HeaderInputSerializer, HeaderOutSerializer),
}
"""The request and response serializers of settings that are lists."""


def input_field(setting: Setting) -> Field:
    """Return the request field of a setting."""
    said: dict[str, Any] = {"required": False, "allow_null": setting.nullable, "help_text": _help_text(setting)}
    if setting.item is not None:
        child = _ITEMS[setting.item][0]() if setting.item in _ITEMS else TextField(max_length=setting.item_max_length)
        return ListField(child=child, max_length=setting.max_length, **said)
    if setting.choices:
        return ChoiceField(choices=setting.choices, **said)
    if setting.type is bool:
        return BoolField(**said)
    if setting.type is int and setting.clamped:
        return IntField(min_value=None, max_value=None, **said)
    if setting.type is int:
        bounds = {"min_value": setting.minimum, "max_value": setting.maximum}
        return IntField(**{name: value for name, value in bounds.items() if value is not None}, **said)
    return TextField(max_length=setting.max_length, allow_blank=setting.blank, **said)


def output_field(setting: Setting) -> Field:
    said: dict[str, Any] = {"allow_null": True} if setting.nullable else {}
    if setting.name not in MonitorConfig.columns:
        said["source"] = f"options.{setting.name}"
    if setting.item in _ITEMS:
        answers: Field = _ITEMS[setting.item][1](many=True, **said)
        return answers
    if setting.item is not None:
        return serializers.ListField(child=serializers.CharField(), **said)
    if setting.choices:
        return serializers.ChoiceField(choices=setting.choices, **said)
    if setting.type is bool:
        return serializers.BooleanField(**said)
    return (serializers.IntegerField if setting.type is int else serializers.CharField)(**said)


def _help_text(setting: Setting) -> str | None:
    parts = [setting.description] if setting.description else []
    if setting.default not in (None, "", ()) and "Default:" not in setting.description:
        default = str(setting.default).lower() if setting.type is bool else setting.default
        clamped = f"; clamped to the range {setting.minimum} to {setting.maximum}" if setting.clamped else ""
        parts.append(f"Default: {default}{clamped}.")
    return " ".join(parts) or None


class MonitorInputSerializer(StrictSerializer):
    """A monitor to create or to test."""

    def get_fields(self) -> dict[str, Field]:
        fields = {name: input_field(setting) for name, setting in types.settings().items()}
        kind = ChoiceField(choices=types.names(), required=False, help_text=f"Default: {types.DEFAULT}.")
        project_id = TextField(required=False, allow_null=True, max_length=64)
        depends_on = ListField(
            child=TextField(max_length=64),
            required=False,
            max_length=dependencies.MAX_PARENTS,
            help_text="Ids of monitors of the same account, without cycles. While one of them is down, alerts of this "
            f"monitor are held. At most {dependencies.LONGEST_CHAIN} monitors may depend on each other in a chain.",
        )
        first = {"url": fields.pop("url"), "name": fields.pop("name"), "type": kind}
        policy = TextField(
            required=False,
            allow_null=True,
            max_length=64,
            help_text=f"Whom outages notify: {POLICY_HELP} null: that of the project, if it has one.",
        )
        others: dict[str, Field] = {"project_id": project_id, POLICY: policy, dependencies.FIELD: depends_on}
        return union(common=first, settings=fields, ownership=others)


class MuteSerializer(StrictSerializer):
    minutes = IntField(min_value=None, max_value=None, help_text="0 ends the mute; values are capped at 10080, 7 days.")


class MonitorSerializer(serializers.Serializer[Any]):
    """A monitor: its configuration, its status and its statistics."""

    id = serializers.SerializerMethodField(
        help_text="That of a heartbeat is the secret of its ping URL: viewers and tokens that only read get another, "
        "which reading methods accept."
    )
    type = serializers.ChoiceField(choices=())
    domain_expires_at = EpochMsField(source="state.domain_expires_at", allow_null=True)
    cert_expires_at = EpochMsField(source="state.cert_expires_at", allow_null=True)
    last_ping_at = EpochMsField(source="state.last_ping_at", allow_null=True)
    muted_until = serializers.SerializerMethodField()
    enabled = serializers.BooleanField()
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    escalation_policy_id = serializers.SerializerMethodField(help_text="null: that of the project, if it has one.")
    depends_on = serializers.SerializerMethodField(
        help_text="Ids of the monitors that it depends on, of those that the caller can access."
    )
    status = serializers.ChoiceField(source="state.status", choices=[v.value for v in Verdict], allow_null=True)
    status_since = EpochMsField(source="state.status_since", allow_null=True)
    last_latency_ms = serializers.IntegerField(source="state.last_latency_ms", allow_null=True)
    last_connect_ms = serializers.IntegerField(source="state.last_connect_ms", allow_null=True)
    last_ttfb_ms = serializers.IntegerField(source="state.last_ttfb_ms", allow_null=True)
    uptime_24h = serializers.SerializerMethodField()
    avg_latency_24h = serializers.SerializerMethodField(
        help_text="null: no check passed, or the history of checks cannot be read right now."
    )
    last_checked_at = EpochMsField(source="state.last_checked_at", allow_null=True)
    stale_since = serializers.SerializerMethodField()
    stale_reason = serializers.SerializerMethodField()
    last_duration_ms = serializers.IntegerField(
        source="state.last_duration_ms",
        allow_null=True,
        help_text="Heartbeats: duration of the last run whose start and end were signalled.",
    )

    def get_fields(self) -> dict[str, Field]:
        fields = super().get_fields()
        settings = {name: output_field(setting) for name, setting in types.settings().items()}
        fields["type"] = serializers.ChoiceField(choices=types.names())
        first = {"id": fields.pop("id"), "name": settings.pop("name")}
        return union(common=first, monitor=fields, settings=settings)

    def get_id(self, monitor: Monitor) -> str:
        return shown_id(monitor, self.context["caller"])

    def get_escalation_policy_id(self, monitor: Monitor) -> str | None:
        policy_id: str | None = self.context["policies"].get(monitor.escalation_policy_id)
        return policy_id

    def get_depends_on(self, monitor: Monitor) -> list[str]:
        return dependencies.shown_ids(monitor, self.context["caller"])

    @extend_schema_field({"type": ["integer", "null"], "format": "int64"})
    def get_muted_until(self, monitor: Monitor) -> int | None:
        """Return the end of the mute, or None if it is over."""
        until = monitor.muted_until
        return to_ms(until) if until is not None and until > self.context["now"] else None

    @extend_schema_field({"type": ["integer", "null"], "format": "int64"})
    def get_stale_since(self, monitor: Monitor) -> int | None:
        """Return since when due checks were not made because of our own fault, or None.

        `status` is then that of the last check, and unknown now.
        """
        since = stale_since(monitor, now=self.context["now"])
        return None if since is None else to_ms(since)

    def get_stale_reason(self, monitor: Monitor) -> str | None:
        """Return why no check was made, or None if `stale_since` is null."""
        return None if stale_since(monitor, now=self.context["now"]) is None else stale_reason(monitor)

    def get_uptime_24h(self, monitor: Monitor) -> float | None:
        uptime: float | None = self.context["uptimes"][monitor.pk]
        return uptime

    def get_avg_latency_24h(self, monitor: Monitor) -> float | None:
        latency: float | None = self.context["latencies"].get(monitor.pk)
        return latency


def serialize_monitors(monitors: Sequence[Monitor], *, caller: Caller | None) -> list[Any]:
    """Return the monitors as the API shows them to the caller, or else to their owner, with their statistics.

    The number of queries is constant.
    """
    now = utc_now()
    dependencies.load(monitors, caller=caller)
    latencies: dict[int, float] = {}
    with suppress(HistoryUnavailable):  # what else is shown, and what was changed, is in the main database
        latencies = average_latency([monitor.pk for monitor in monitors], since=now - DAY)
    context = {
        "caller": caller,
        "now": now,
        "uptimes": uptimes(monitors, now=now),
        "latencies": latencies,
        "policies": policy_ids({monitor.escalation_policy_id for monitor in monitors}),
    }
    return list(MonitorSerializer(monitors, many=True, context=context).data)


class TagSerializer(serializers.Serializer[Any]):
    """A tag of monitors."""

    name = serializers.CharField()
    monitors = serializers.IntegerField(help_text="How many monitors have it.")


class MonitorPatchSerializer(MonitorInputSerializer):
    """The fields to change. Read-only fields of a Monitor are ignored."""

    ignored = frozenset(MonitorSerializer._declared_fields)

    def get_fields(self) -> dict[str, Field]:
        enabled = BoolField(required=False, help_text="false pauses the monitor.")
        return union(input=super().get_fields(), patch={"enabled": enabled})


class FailedChangeSerializer(serializers.Serializer[Any]):
    """A monitor that was not changed, with the code and reason of the error."""

    id = serializers.CharField()
    error = serializers.CharField()
    reason = serializers.CharField()


class BulkChangeSerializer(serializers.Serializer[Any]):
    """The result of a change of many monitors: how many matched, and their ids."""

    matched = serializers.IntegerField()
    changed = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    failed = FailedChangeSerializer(many=True)
    dry_run = serializers.BooleanField()


class SchedulePreviewSerializer(serializers.Serializer[Any]):
    """The next times of a schedule."""

    times = serializers.ListField(child=EpochMsField())


class CheckResultSerializer(serializers.Serializer[Any]):
    """The result of testing a config."""

    status = serializers.ChoiceField(choices=[v.value for v in Verdict])
    latency_ms = serializers.IntegerField(allow_null=True)
    connect_ms = serializers.IntegerField(allow_null=True)
    ttfb_ms = serializers.IntegerField(allow_null=True)
    detail = serializers.CharField(allow_null=True, help_text="null when up; the reason otherwise.")
    http_status = serializers.IntegerField(allow_null=True)
