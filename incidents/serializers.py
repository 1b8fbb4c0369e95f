"""Incidents and maintenance windows as the API takes and gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from checks.spec import ReasonCode
from core.api.fields import ChoiceField, EpochMsField, ListField, MomentField, StrictSerializer, TextField
from incidents import windows
from incidents.backtest import LONGEST, THRESHOLDS, UNANSWERED
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from incidents.recurrence import MAX_LENGTH, MAX_YEARS
from incidents.selectors import shown_event_text, shown_monitor_id
from incidents.windows import MAX_CHOSEN, SCOPES
from monitors import types
from monitors.history_views import EvidenceSerializer
from monitors.selectors import shown_id
from monitors.serializers import input_field
from monitors.types.tags import MAX_TAGS

MAX_TEXT = 2_000
MAX_RULE = 500
INCIDENT_STATUSES = ("open", "resolved")


class EscalationSerializer(serializers.Serializer[Any]):
    """How far an open incident has come in its escalation policy."""

    policy_id = serializers.CharField(source="policy.public_id")
    step = serializers.IntegerField(help_text="The one that runs next, from 0.")
    round = serializers.IntegerField(help_text="From 0.")
    next_at = EpochMsField(help_text="When that step is due.")


class IncidentSerializer(serializers.Serializer[Any]):
    """An outage of a monitor, or a declared incident."""

    id = serializers.CharField(source="public_id")
    monitor_id = serializers.SerializerMethodField(
        help_text="Kept after the monitor is deleted; null if the incident was declared by a person."
    )
    project_id = serializers.SerializerMethodField(
        help_text="The project that the monitor is in, or was in when it was deleted."
    )
    title = serializers.CharField(
        source="name", help_text="The monitor's name at that time, or the title of a declared incident."
    )
    status = serializers.SerializerMethodField()
    reason_code = serializers.ChoiceField(
        choices=[r.value for r in ReasonCode], allow_null=True, help_text="null if it was declared by a person."
    )
    detail = serializers.CharField(allow_null=True)
    started_at = EpochMsField(help_text="The first of the consecutive failures.")
    confirmed_at = EpochMsField(
        allow_null=True, help_text="When fail_threshold was reached; null if it was declared by a person."
    )
    acknowledged_at = EpochMsField(allow_null=True)
    resolved_at = EpochMsField(allow_null=True)
    resolution = serializers.ChoiceField(
        choices=Incident.Resolution.values, allow_null=True, help_text="closed: by a person."
    )

    caused_by = serializers.SerializerMethodField(
        help_text="The outage of a monitor that this one depends on, which held its alerts; null without any."
    )

    acknowledged_by = serializers.CharField(
        source="acknowledged_by.public_id",
        default=None,
        allow_null=True,
        help_text="The user id of the person who acknowledged it; null without any, or if the account was deleted.",
    )
    escalation = EscalationSerializer(
        source="running_escalation",
        allow_null=True,
        help_text="null without a policy, and if it is acknowledged, resolved or finished.",
    )

    @extend_schema_field({"type": ["string", "null"]})
    def get_caused_by(self, incident: Incident) -> str | None:
        cause: dict[str, str] | None = getattr(incident, "cause", None)
        return cause["id"] if cause else None

    @extend_schema_field({"type": ["string", "null"]})
    def get_monitor_id(self, incident: Incident) -> str | None:
        return shown_monitor_id(incident, self.context.get("caller"))

    @extend_schema_field({"type": ["string", "null"]})
    def get_project_id(self, incident: Incident) -> str | None:
        project = incident.project if incident.monitor is None else incident.monitor.project
        return None if project is None else project.public_id

    @extend_schema_field(serializers.ChoiceField(choices=INCIDENT_STATUSES))
    def get_status(self, incident: Incident) -> str:
        return "open" if incident.is_open else "resolved"


class IncidentEventSerializer(serializers.Serializer[Any]):
    """One entry of a timeline, in the order of events."""

    id = serializers.CharField(source="public_id")
    type = serializers.ChoiceField(choices=IncidentEvent.Type.values)
    at = EpochMsField()
    text = serializers.SerializerMethodField(help_text="A sentence for people; for comments, the comment.")
    data = serializers.DictField(  # type: ignore[assignment]  # a field, that its class takes away again
        help_text="The same for programs; `by` is the person who did it."
    )

    def get_text(self, event: IncidentEvent) -> str:
        return shown_event_text(event, self.context.get("caller"))


class IncidentDetailSerializer(IncidentSerializer):
    """An incident with its timeline and the evidence of the failing check."""

    evidence = EvidenceSerializer(
        allow_null=True, help_text="Evidence of the failed check, with secrets masked; null without any."
    )
    events = IncidentEventSerializer(source="events.all", many=True)


class IncidentInputSerializer(StrictSerializer):
    """An incident that no monitor detected."""

    project_id = TextField(required=False, allow_null=True, max_length=64)
    title = TextField(max_length=200)
    text = TextField(max_length=MAX_TEXT)


class CommentSerializer(StrictSerializer):
    text = TextField(max_length=MAX_TEXT)


class WindowInputSerializer(StrictSerializer):
    """A maintenance window to create."""

    project_id = TextField(
        required=False, allow_null=True, max_length=64, help_text="null: a personal one of the caller. Set at creation."
    )
    name = TextField(max_length=200)
    starts_at = MomentField(help_text="Of the first occurrence; must match rrule.")
    ends_at = MomentField(help_text=f"Of the first occurrence, at most {MAX_LENGTH.days} days after starts_at.")
    time_zone = TextField(
        required=False, max_length=64, help_text="Time zone in which it recurs: an IANA name. Default: UTC."
    )
    rrule = TextField(
        required=False,
        allow_null=True,
        max_length=MAX_RULE,
        help_text="RFC 5545, for example FREQ=WEEKLY;BYDAY=SU;UNTIL=20271231T235959Z: FREQ (DAILY or rarer), "
        "INTERVAL, BYMONTH, BYMONTHDAY, BYDAY, BYSETPOS, WKST, and COUNT or UNTIL, "
        f"at most {MAX_YEARS} years after starts_at; without either it does not end. null: once.",
    )
    monitors = ChoiceField(
        choices=SCOPES, help_text="all: all of the project, or without a project all that the caller owns."
    )
    monitor_ids = ListField(
        child=TextField(max_length=64),
        required=False,
        max_length=MAX_CHOSEN,
        help_text="With chosen: at least one, or a tag.",
    )
    monitor_tags = ListField(
        child=TextField(),
        required=False,
        max_length=MAX_TAGS,
        help_text="With chosen: also those monitors of all that have any of these tags, compared without case, as long "
        "as they have it.",
    )


class WindowSerializer(serializers.Serializer[Any]):
    """A maintenance window, with its current or next occurrence."""

    id = serializers.CharField(source="public_id")
    project_id = serializers.CharField(source="project.public_id", allow_null=True)
    name = serializers.CharField()
    starts_at = EpochMsField(help_text="Of the first occurrence.")
    ends_at = EpochMsField(help_text="Of the first occurrence.")
    time_zone = serializers.CharField()
    rrule = serializers.SerializerMethodField(help_text="null: once.")
    monitors = serializers.ChoiceField(source="scope", choices=SCOPES, read_only=True)
    monitor_ids = serializers.SerializerMethodField(help_text="The selected monitors; empty with all.")
    monitor_tags = serializers.ListField(child=serializers.CharField())
    active = serializers.SerializerMethodField(help_text="Whether alerts are suppressed now.")
    next_starts_at = EpochMsField(
        source="occurrence.starts_at",
        allow_null=True,
        help_text="Of the current occurrence, or else of the next; null if there are no more.",
    )
    next_ends_at = EpochMsField(source="occurrence.ends_at", allow_null=True, help_text="Of that occurrence.")
    created_at = EpochMsField()

    def to_representation(self, instance: Any) -> Any:
        instance.occurrence = windows.occurrence_of(instance, now=self.context["now"])
        return super().to_representation(instance)

    @extend_schema_field({"type": ["string", "null"]})
    def get_rrule(self, window: MaintenanceWindow) -> str | None:
        return window.rrule or None

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_monitor_ids(self, window: MaintenanceWindow) -> list[str]:
        return [shown_id(monitor, self.context.get("caller")) for monitor in window.chosen]

    def get_active(self, window: Any) -> bool:
        return window.occurrence is not None and window.occurrence.starts_at <= self.context["now"]


class WindowPatchSerializer(WindowInputSerializer):
    """The fields to change. Read-only fields of a window are ignored."""

    ignored = frozenset(WindowSerializer().fields) - frozenset(WindowInputSerializer().fields)

    name = TextField(required=False, max_length=200)
    starts_at = MomentField(required=False, help_text="Of the first occurrence.")
    ends_at = MomentField(required=False, help_text="Of the first occurrence.")
    monitors = ChoiceField(required=False, choices=SCOPES)


class BacktestInputSerializer(StrictSerializer):
    """Thresholds to try, by default those of the monitor, and a span of time, by default the last 90 days."""

    def get_fields(self) -> dict[str, Any]:
        settings = types.settings()
        fields: dict[str, Any] = {name: input_field(replace(settings[name], default=None)) for name in THRESHOLDS}
        fields["from"] = MomentField(required=False, help_text=f"At most {LONGEST.days} days before to, the default.")
        fields["to"] = MomentField(required=False, help_text="Default, and latest: now.")
        return fields


class TriedOutageSerializer(serializers.Serializer[Any]):
    """An outage as an incident would have it."""

    started_at = EpochMsField(source="outage.started_at", help_text="The first of the consecutive failures.")
    confirmed_at = EpochMsField(source="outage.confirmed_at")
    resolved_at = EpochMsField(source="outage.resolved_at", allow_null=True, help_text="null: it is not over.")
    reason_code = serializers.ChoiceField(
        source="outage.reason_code", choices=[r.value for r in ReasonCode], allow_null=True
    )
    alerts = serializers.IntegerField(help_text="How many alerts within the span say that the monitor is down.")


class ThresholdsSerializer(serializers.Serializer[Any]):
    """Settings of a monitor that decide about its status."""

    fail_threshold = serializers.IntegerField()
    recover_threshold = serializers.IntegerField()
    slow_ms = serializers.IntegerField()
    confirmation_sec = serializers.IntegerField(allow_null=True)


class BacktestSideSerializer(serializers.Serializer[Any]):
    """What the monitor would have had with these settings."""

    settings = ThresholdsSerializer()
    outages = serializers.IntegerField(help_text="Also one that began before the span, or is not over.")
    down_sec = serializers.IntegerField(
        help_text="Seconds of these outages within the span, each from its first failed check to the check that ended "
        "it, without maintenance and times without checks."
    )
    alerts = serializers.IntegerField(
        help_text="Alerts that say that the monitor is down: one for each outage, none if it was over before its "
        "maintenance, few while it flaps. Reminders, and the dependencies of the monitor, do not count."
    )
    slow_alerts = serializers.IntegerField(help_text="Alerts that say that the monitor became slow.")
    avg_detection_sec = serializers.FloatField(
        allow_null=True,
        help_text="Mean time from the first failed check of an outage to its confirmation; null without any.",
    )
    max_detection_sec = serializers.FloatField(allow_null=True, help_text="The longest of these times.")


class DifferenceSerializer(serializers.Serializer[Any]):
    """Outages that overlap and differ, oldest first. One side may have none, and each lists at most 20."""

    stored = TriedOutageSerializer(many=True)
    tried = TriedOutageSerializer(many=True)


class UnansweredSerializer(serializers.Serializer[Any]):
    """What the history cannot answer exactly."""

    code = serializers.ChoiceField(choices=UNANSWERED)
    reason = serializers.CharField(help_text="A sentence for people.")


class BacktestSerializer(serializers.Serializer[Any]):
    """What a monitor would have had with other thresholds (`tried`), beside its own (`stored`)."""

    def get_fields(self) -> dict[str, Any]:
        return {
            "from": EpochMsField(source="start", help_text="The start of the span that was replayed."),
            "to": EpochMsField(source="end"),
            **super().get_fields(),
        }

    history_from = EpochMsField(allow_null=True, help_text="The first stored check of the span; null without any.")
    history_to = EpochMsField(allow_null=True, help_text="The last one.")
    checks = serializers.IntegerField(help_text="How many checks of the span are stored.")
    stored = BacktestSideSerializer()
    tried = BacktestSideSerializer()
    differences = DifferenceSerializer(many=True, help_text="At most 100, newest first.")
    differences_total = serializers.IntegerField()
    unanswered = UnansweredSerializer(many=True)
