"""The checks of a monitor: history, uptime, and a check on demand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rest_framework import serializers

from checks.results.models import CheckResult
from checks.results.selectors import result_of, results_of
from checks.spec import ReasonCode, Verdict
from core.api.fields import EpochMsField
from core.api.query import ChoiceParam, IntParam, TimePages, TimeParam
from core.api.viewsets import ServiceViewSet, operation
from core.errors import MonitorPaused, NotFound, NoWorker
from core.throttles import CheckThrottle
from core.waiting import limit_waiting
from locations.models import DEFAULT
from locations.selectors import public_id_of
from monitors.check_ids import CheckIds
from monitors.checking import on_demand
from monitors.heartbeats.history import pings_of
from monitors.heartbeats.log import ID_PREFIX
from monitors.models import DnsChange, Monitor, Ping
from monitors.recording.answers import MAX_LISTED
from monitors.selectors import dns_changes_of, get_monitor
from monitors.uptime.daily import MAX_DAYS, daily_uptime

DEFAULT_DAYS = 7


class CheckSerializer(serializers.Serializer[Any]):
    """A finished check."""

    id = serializers.SerializerMethodField()
    checked_at = EpochMsField(help_text="When the check ended.")
    status = serializers.ChoiceField(source="verdict", choices=[v.value for v in Verdict])
    latency_ms = serializers.IntegerField(allow_null=True)
    connect_ms = serializers.IntegerField(allow_null=True)
    ttfb_ms = serializers.IntegerField(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True)
    loss = serializers.IntegerField(allow_null=True, help_text="Packet loss of a ping, in percent; otherwise null.")
    reason_code = serializers.ChoiceField(
        choices=[r.value for r in ReasonCode], allow_null=True, help_text="null when the check passed."
    )
    detail = serializers.CharField(allow_null=True, help_text="null when up; the reason otherwise.")
    location = serializers.SerializerMethodField()
    confirmed = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the failure counts, after other locations were asked; null for passes, and where no other "
        "location answered.",
    )

    def get_location(self, result: CheckResult) -> str | None:
        """Return the id of the location that made the check; null if it was deleted."""
        if result.location_id not in self._locations:
            self._locations[result.location_id] = public_id_of(result.location_id)
        return self._locations[result.location_id]

    @cached_property
    def _locations(self) -> dict[int | None, str | None]:
        """The ids that are known so far: the rows of a list are from few locations."""
        return {None: DEFAULT}

    def get_id(self, result: CheckResult) -> str:
        ids: CheckIds = self.context["ids"]
        return ids.encode(result.claim, result.checked_at)


class PairSerializer(serializers.Serializer[Any]):
    """An object with two fields, stored as a list of their values."""

    def to_representation(self, instance: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.fields, instance, strict=True))


class ResponseHeaderSerializer(PairSerializer):
    """A header of the response."""

    name = serializers.CharField(help_text="In lower case.")
    value = serializers.CharField(allow_blank=True)


class RedirectSerializer(PairSerializer):
    """A redirect that was followed."""

    status = serializers.IntegerField(help_text="Status of the redirect.")
    url = serializers.CharField(help_text="Target of the redirect, with query values masked.")


class FactSerializer(PairSerializer):
    """Facts that depend on the protocol, for example the flags of a DNS answer."""

    name = serializers.CharField()
    value = serializers.CharField(allow_blank=True)


class EvidenceSerializer(serializers.Serializer[Any]):
    """Evidence of a failed check."""

    address = serializers.CharField(allow_null=True, default=None, help_text="Remote address and port.")
    tls_version = serializers.CharField(allow_null=True, default=None)
    tls_issuer = serializers.CharField(allow_null=True, default=None, help_text="Issuer of the certificate.")
    status_line = serializers.CharField(allow_null=True, default=None)
    headers = ResponseHeaderSerializer(many=True, read_only=True, default=list)
    body = serializers.CharField(
        allow_null=True, default=None, help_text="The first 2,048 received characters, decoded."
    )
    redirects = RedirectSerializer(many=True, read_only=True, default=list)
    facts = FactSerializer(many=True, read_only=True, default=list)


class CheckDetailSerializer(CheckSerializer):
    """A finished check, with the evidence of a failure."""

    evidence = EvidenceSerializer(
        allow_null=True,
        help_text="Evidence of a failed check, with secrets masked; null if the check passed.",
    )


class UptimeDaySerializer(serializers.Serializer[Any]):
    """One day of UTC."""

    date = serializers.DateField(help_text="Start of the UTC day; the last one is today, until now.")
    uptime = serializers.FloatField(
        allow_null=True,
        min_value=0,
        max_value=100,
        help_text="Percent of the observed time outside outages and maintenance; null without observations.",
    )
    down_sec = serializers.IntegerField(
        min_value=0,
        help_text="Observed seconds of outages, each from its first failed check to the check that ended it, without "
        "maintenance.",
    )
    incidents = serializers.IntegerField(min_value=0, help_text="Number of outages that began, also in maintenance.")
    avg_latency_ms = serializers.FloatField(allow_null=True, help_text="Mean of the passed checks; null without any.")


class DnsChangeSerializer(serializers.Serializer[Any]):
    """A check that found other records than the previous one."""

    at = EpochMsField(help_text="When the check ended.")
    added = serializers.ListField(
        child=serializers.CharField(),
        help_text=f"Records that the previous answer did not have, at most {MAX_LISTED}: names in lower case without "
        "the final dot, TXT without quotes, long ones shortened with a digest.",
    )
    removed = serializers.ListField(
        child=serializers.CharField(), help_text=f"Records that only the previous answer had, at most {MAX_LISTED}."
    )
    added_count = serializers.IntegerField(help_text="Number of all added records.")
    removed_count = serializers.IntegerField(help_text="Number of all removed records.")


class PingSerializer(serializers.Serializer[Any]):
    """A signal of a heartbeat's job."""

    id = serializers.SerializerMethodField()
    at = EpochMsField(help_text="When it arrived.")
    kind = serializers.ChoiceField(choices=Ping.Kind.values)
    exit_status = serializers.IntegerField(allow_null=True, help_text="Of the job, if it reported one.")
    duration_ms = serializers.IntegerField(
        allow_null=True, help_text="Duration of the run that it ends; null if its start was not signalled."
    )
    rid = serializers.UUIDField(allow_null=True)
    method = serializers.CharField()
    user_agent = serializers.CharField(
        allow_blank=True, help_text="The first 200 characters; empty if the heartbeat had another owner then."
    )
    remote_addr = serializers.IPAddressField(allow_null=True, help_text="null if the heartbeat had another owner then.")
    body = serializers.CharField(
        allow_null=True,
        help_text="The first 10,000 bytes, decoded; null if it had none, if the heartbeat received more than "
        "1,000,000 bytes of bodies within an hour, or if it had another owner then.",
    )

    def get_id(self, ping: Ping) -> str:
        ids: CheckIds = self.context["ids"]
        return ids.encode(ping.id, ping.at)


VERDICTS = [verdict.value for verdict in Verdict]


class HistoryViewSet(ServiceViewSet):
    """Rows of a monitor."""

    def get_parent(self, monitor_id: str) -> Monitor:
        self.found = monitor = get_monitor(self.caller, monitor_id)
        return monitor


class CheckViewSet(HistoryViewSet):
    noun = "monitor_check"
    lookup_url_kwarg = "check_id"
    serializer_class = CheckDetailSerializer

    def get_serializer_context(self) -> dict[str, Any]:
        return super().get_serializer_context() | {"ids": self.found and CheckIds(self.found.public_id)}

    @operation(
        answer=CheckSerializer,
        pages=TimePages(time="checked_at", number="claim"),
        params=(
            ChoiceParam("status", "Only checks with this status.", VERDICTS),
            TimeParam("since", "Epoch milliseconds: only checks at or after it."),
            TimeParam("until", "Epoch milliseconds: only checks before it."),
        ),
    )
    def list(self, monitor_id: str, status: str | None, **bounds: Any) -> Sequence[CheckResult]:
        """List the checks of a monitor, newest first."""
        verdict = None if status is None else Verdict(status)
        return results_of(self.found.pk, now=self.now, verdict=verdict, **bounds)

    @operation(id="check_monitor", is_idempotent=False, errors=(MonitorPaused, NoWorker), throttles=(CheckThrottle,))
    def create(self, monitor_id: str) -> CheckResult:
        """Check a monitor now.

        Waits for the check, which is recorded and counts like any other. Heartbeats and schedulers are refused: a
        heartbeat waits for pings, and a check of a scheduler would trigger its target.
        """
        monitor = self.get_parent(monitor_id)
        self.caller.require_write(monitor)
        with limit_waiting(self.caller.account):
            return on_demand.check_now(monitor, now=self.now)

    @operation()
    def retrieve(self, monitor_id: str, check_id: str) -> CheckResult:
        """Read a check, with the evidence of a failure."""
        monitor = self.get_parent(monitor_id)
        named = CheckIds(monitor.public_id).decode(check_id)
        result = None if named is None else result_of(monitor.pk, *named)
        if result is None:
            raise NotFound
        return result


class DnsChangeViewSet(HistoryViewSet):
    noun = "monitor_dns_change"
    serializer_class = DnsChangeSerializer

    @operation(
        pages=TimePages(time="at", chars=lambda change: sum(map(len, change.added)) + sum(map(len, change.removed)))
    )
    def list(self, monitor_id: str, **page: Any) -> Sequence[DnsChange]:
        """List the changes of the records that a dns monitor finds, newest first.

        Recorded while `records` is null. For monitors of other types the list is empty.
        """
        return dns_changes_of(self.get_parent(monitor_id), **page)


class PingLogViewSet(HistoryViewSet):
    noun = "monitor_ping"
    serializer_class = PingSerializer

    def get_serializer_context(self) -> dict[str, Any]:
        ids = self.found and CheckIds(self.found.public_id, prefix=ID_PREFIX)
        return super().get_serializer_context() | {"ids": ids}

    @operation(pages=TimePages(time="at", number="id", chars=lambda ping: len(ping.body or "")))
    def list(self, monitor_id: str, **page: Any) -> Sequence[Ping]:
        """List the signals of a heartbeat's job, newest first.

        They are kept as long as checks. A page may be shorter than `limit`: it ends after 200,000 characters of
        bodies. For monitors of other types the list is empty.
        """
        return pings_of(self.get_parent(monitor_id), **page)


class UptimeViewSet(HistoryViewSet):
    noun = "monitor_uptime"
    is_singleton = True
    serializer_class = UptimeDaySerializer

    @operation(
        id="list_monitor_uptime",
        many=True,
        params=(IntParam("days", "Number of UTC days, including today.", 1, MAX_DAYS, DEFAULT_DAYS),),
    )
    def retrieve(self, monitor_id: str, days: int) -> Sequence[Any]:
        """Uptime of a monitor by day.

        Oldest first, one entry for each day, today's until now. Maintenance is not counted; `uptime_24h` of a Monitor
        counts it.
        """
        return daily_uptime(self.found, days=days, now=self.now)
