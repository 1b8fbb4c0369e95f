"""Endpoints of a monitor's checks: its past, and one more now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from checks.results.models import CheckResult
from checks.results.selectors import result_of, results_of
from checks.spec import ReasonCode, Verdict
from core.api.fields import EpochMsField
from core.api.pagination import cursor_of, limit_of, page_parameters, with_next
from core.api.query import choice_param, int_param
from core.api.schema import ErrorSerializer
from core.clock import EPOCH, MAX_MS, from_ms, utc_now
from core.errors import NotFound, ValidationFailed
from core.throttles import CallerThrottle, CheckThrottle
from core.waiting import waiting_place
from monitors.check_ids import CheckIds
from monitors.models import Monitor
from monitors.probing import on_demand
from monitors.selectors import get_monitor
from monitors.uptime.daily import MAX_DAYS, daily_uptime
from projects.access import caller_of

PAGE = 100
DEFAULT_DAYS = 7
MICROSECOND = timedelta(microseconds=1)


class CheckSerializer(serializers.Serializer[Any]):
    """A check that was made."""

    id = serializers.SerializerMethodField()
    checked_at = EpochMsField(help_text="When the check ended.")
    status = serializers.ChoiceField(source="verdict", choices=[v.value for v in Verdict])
    latency_ms = serializers.IntegerField(allow_null=True)
    connect_ms = serializers.IntegerField(allow_null=True)
    ttfb_ms = serializers.IntegerField(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True)
    reason_code = serializers.ChoiceField(
        choices=[r.value for r in ReasonCode], allow_null=True, help_text="null when the check passed."
    )
    detail = serializers.CharField(allow_null=True, help_text="null when up; the reason otherwise.")

    def get_id(self, result: CheckResult) -> str:
        ids: CheckIds = self.context["ids"]
        return ids.encode(result.claim, result.checked_at)


class ResponseHeaderSerializer(serializers.Serializer[Any]):
    """A header of the response."""

    name = serializers.CharField(help_text="In lower case.")
    value = serializers.CharField(allow_blank=True)


class RedirectSerializer(serializers.Serializer[Any]):
    """A redirect that was followed."""

    status = serializers.IntegerField(help_text="The status that the redirect came with.")
    url = serializers.CharField(help_text="Where it led; the values of a query are masked.")


class EvidenceSerializer(serializers.Serializer[Any]):
    """What the failing check saw of the target."""

    address = serializers.CharField(
        allow_null=True, default=None, help_text="Address and port that were connected to."
    )
    tls_version = serializers.CharField(allow_null=True, default=None)
    tls_issuer = serializers.CharField(allow_null=True, default=None, help_text="Who signed the certificate.")
    status_line = serializers.CharField(allow_null=True, default=None)
    headers = serializers.SerializerMethodField()
    body = serializers.CharField(
        allow_null=True, default=None, help_text="The first 2,048 characters, decoded."
    )
    redirects = serializers.SerializerMethodField()

    @extend_schema_field(ResponseHeaderSerializer(many=True))
    def get_headers(self, evidence: dict[str, Any]) -> list[dict[str, str]]:
        return [{"name": name, "value": value} for name, value in evidence.get("headers", ())]

    @extend_schema_field(RedirectSerializer(many=True))
    def get_redirects(self, evidence: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"status": status, "url": url} for status, url in evidence.get("redirects", ())]


class CheckDetailSerializer(CheckSerializer):
    """A check that was made, with the evidence of a failure."""

    evidence = EvidenceSerializer(
        allow_null=True,
        help_text="What was seen of the target where the check failed, secrets masked; null when it passed.",
    )


class UptimeDaySerializer(serializers.Serializer[Any]):
    """One day of UTC."""

    date = serializers.DateField(help_text="A day of UTC; the last one is today, until now.")
    uptime = serializers.FloatField(
        allow_null=True,
        min_value=0,
        max_value=100,
        help_text="Percent of the observed time outside outages and maintenance; null with nothing observed.",
    )
    down_sec = serializers.IntegerField(
        min_value=0,
        help_text="Observed seconds of outages, each from its first failed check to the check that ended it, without "
        "maintenance.",
    )
    incidents = serializers.IntegerField(min_value=0, help_text="How many outages began, maintenance or not.")
    avg_latency_ms = serializers.FloatField(
        allow_null=True, help_text="Mean over passed checks; null with none."
    )


def _moment(request: Request, name: str) -> datetime | None:
    ms = int_param(request, name, minimum=0, maximum=MAX_MS)
    return None if ms is None else from_ms(ms)


def _position(request: Request) -> tuple[datetime, int] | None:
    """Where the page before ended: (checked_at in microseconds, claim)."""
    found = cursor_of(request, numbers=2)
    if found is None:
        return None
    at_us, claim = found
    if at_us > MAX_MS * 1000:
        raise ValidationFailed("is not a cursor that a Link header gave.", field="cursor")
    return EPOCH + at_us * MICROSECOND, claim


def _context(monitor: Monitor) -> dict[str, Any]:
    return {"ids": CheckIds(monitor.public_id)}


class MonitorChecks(APIView):
    throttle_classes = (CallerThrottle, CheckThrottle)

    @extend_schema(
        operation_id="list_monitor_checks",
        summary="List the checks of a monitor, newest first",
        parameters=[
            *page_parameters(default=PAGE),
            OpenApiParameter("status", enum=[v.value for v in Verdict], description="Only such checks."),
            OpenApiParameter(
                "since",
                {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_MS},
                description="Epoch milliseconds: only checks at or after it.",
            ),
            OpenApiParameter(
                "until",
                {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_MS},
                description="Epoch milliseconds: only checks before it.",
            ),
        ],
        responses=CheckSerializer(many=True),
    )
    def get(self, request: Request, monitor_id: str) -> Response:
        monitor = get_monitor(caller_of(request), monitor_id)
        limit = limit_of(request) or PAGE
        verdict = choice_param(request, "status", [v.value for v in Verdict])
        rows = results_of(
            monitor.pk,
            limit=limit + 1,
            now=utc_now(),
            before=_position(request),
            since=_moment(request, "since"),
            until=_moment(request, "until"),
            verdict=None if verdict is None else Verdict(verdict),
        )
        shown = rows[:limit]
        response = Response(CheckSerializer(shown, many=True, context=_context(monitor)).data)
        if len(rows) > limit:
            return with_next(
                request, response, (shown[-1].checked_at - EPOCH) // MICROSECOND, shown[-1].claim
            )
        return response

    @extend_schema(
        operation_id="check_monitor",
        summary="Check a monitor now",
        description="Answers when a worker has made the check, which is recorded and counts like any other. Heartbeats "
        "and schedulers are refused: one is pinged, and the other's check is an action at its target.",
        request=None,
        responses={201: CheckDetailSerializer, 409: ErrorSerializer, 503: ErrorSerializer},
    )
    def post(self, request: Request, monitor_id: str) -> Response:
        caller = caller_of(request)
        monitor = get_monitor(caller, monitor_id)
        with waiting_place(caller.account):
            result = on_demand.check_now(monitor, now=utc_now())
        return Response(CheckDetailSerializer(result, context=_context(monitor)).data, status=201)


class MonitorCheck(APIView):
    @extend_schema(
        operation_id="get_monitor_check",
        summary="Read a check, with the evidence of a failure",
        responses=CheckDetailSerializer,
    )
    def get(self, request: Request, monitor_id: str, check_id: str) -> Response:
        monitor = get_monitor(caller_of(request), monitor_id)
        named = CheckIds(monitor.public_id).decode(check_id)
        result = None if named is None else result_of(monitor.pk, *named)
        if result is None:
            raise NotFound
        return Response(CheckDetailSerializer(result, context=_context(monitor)).data)


class MonitorUptime(APIView):
    @extend_schema(
        operation_id="list_monitor_uptime",
        summary="Uptime of a monitor by day",
        description="Oldest first, one entry for each day, today's until now. Maintenance is not counted; "
        "`uptime_24h` of a Monitor counts it.",
        parameters=[
            OpenApiParameter(
                "days",
                {"type": "integer", "minimum": 1, "maximum": MAX_DAYS, "default": DEFAULT_DAYS},
                description="How many days of UTC, today included.",
            )
        ],
        responses=UptimeDaySerializer(many=True),
    )
    def get(self, request: Request, monitor_id: str) -> Response:
        monitor = get_monitor(caller_of(request), monitor_id)
        days = int_param(request, "days", minimum=1, maximum=MAX_DAYS) or DEFAULT_DAYS
        return Response(UptimeDaySerializer(daily_uptime(monitor, days=days, now=utc_now()), many=True).data)
