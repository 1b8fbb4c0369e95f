"""Incidents and maintenance windows."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from core.api.query import HISTORY_LIMIT, ChoiceParam, IdParam, Pages
from core.api.viewsets import ServiceViewSet, operation
from core.errors import IncidentResolved, LimitReached, NoThresholds, ResolvesByItself, WindowLimit
from core.throttles import BacktestThrottle
from incidents import selectors, services, windows
from incidents.backtest import Backtest, run
from incidents.models import Incident, MaintenanceWindow
from incidents.serializers import (
    INCIDENT_STATUSES,
    BacktestInputSerializer,
    BacktestSerializer,
    CommentSerializer,
    IncidentDetailSerializer,
    IncidentInputSerializer,
    IncidentSerializer,
    WindowInputSerializer,
    WindowPatchSerializer,
    WindowSerializer,
)
from monitors.models import Monitor
from monitors.selectors import get_monitor


class IncidentViewSet(ServiceViewSet):
    noun = "incident"
    lookup_url_kwarg = "incident_id"
    serializer_class = IncidentDetailSerializer

    def get_object(self, incident_id: str) -> Incident:
        return selectors.get_incident(self.caller, incident_id)

    @operation(
        answer=IncidentSerializer,
        pages=Pages(newest_first=True, default=HISTORY_LIMIT, weight=selectors.INCIDENT_CHARS, few=100),
        params=(
            ChoiceParam("status", "Only incidents in this state.", INCIDENT_STATUSES),
            IdParam("monitor_id", "Only incidents of this monitor."),
            IdParam("project_id", "Only incidents of this project."),
        ),
    )
    def list(self, status: str | None, **ids: str | None) -> QuerySet[Incident]:
        """List incidents, newest first."""
        is_open = None if status is None else status == "open"
        return selectors.list_incidents(self.caller, is_open=is_open, **ids)

    @operation(id="declare_incident", body=IncidentInputSerializer)
    def create(self, data: dict[str, Any]) -> Incident:
        """Declare an incident that no monitor detected.

        People comment on it and resolve it. No alert is sent.
        """
        return services.declare(self.caller, data, now=self.now)

    @operation()
    def retrieve(self, incident_id: str) -> Incident:
        """Read an incident with its timeline."""
        return self.get_object(incident_id)

    @operation("acknowledge", errors=(IncidentResolved,))
    def acknowledge(self, incident_id: str) -> Incident:
        """Acknowledge an incident; reminders stop.

        Only the first acknowledgement has an effect.
        """
        return services.acknowledge(self.caller, incident_id, now=self.now)

    @operation("comments", body=CommentSerializer, errors=(LimitReached,))
    def comment(self, incident_id: str, data: dict[str, Any]) -> Incident:
        """Comment on an incident."""
        return services.comment(self.caller, incident_id, **data, now=self.now)

    @operation("resolve", errors=(ResolvesByItself,))
    def resolve(self, incident_id: str) -> Incident:
        """Resolve a declared incident.

        Resolving it again changes nothing.
        """
        return services.resolve(self.caller, incident_id, now=self.now)


class WindowViewSet(ServiceViewSet):
    noun = "maintenance_window"
    lookup_url_kwarg = "window_id"
    serializer_class = WindowSerializer
    has_etag = True

    def get_object(self, window_id: str) -> MaintenanceWindow:
        return selectors.get_window(self.caller, window_id)

    @operation(pages=Pages(weight=selectors.WINDOW_BYTES))
    def list(self) -> QuerySet[MaintenanceWindow]:
        """List maintenance windows."""
        return selectors.list_windows(self.caller)

    @operation(body=WindowInputSerializer, errors=(WindowLimit, LimitReached))
    def create(self, data: dict[str, Any]) -> MaintenanceWindow:
        """Create a maintenance window.

        While it is active, alerts of its monitors are suppressed; checks, statuses and incidents continue.
        """
        return windows.create_window(self.caller, data, now=self.now)

    @operation("copy", body=WindowPatchSerializer, status=201, is_idempotent=True, errors=(WindowLimit, LimitReached))
    def copy(self, window_id: str, data: dict[str, Any]) -> MaintenanceWindow:
        """Copy a maintenance window.

        Creates a window with all settings of this one, changed by the body, if there is one: by default with the same
        name and " (copy)". A window that has ended needs other times.
        """
        given = self.body_of_copy(WindowInputSerializer, data, dependent={"monitors": ("monitor_ids",)})
        return windows.create_window(self.caller, given, now=self.now)

    @operation()
    def retrieve(self, window_id: str) -> MaintenanceWindow:
        """Read a maintenance window."""
        return self.get_object(window_id)

    @operation(body=WindowPatchSerializer, errors=(LimitReached,))
    def partial_update(self, window_id: str, data: dict[str, Any]) -> MaintenanceWindow:
        """Change a maintenance window."""
        return windows.update_window(self.caller, window_id, data, now=self.now, if_match=self.if_match)

    @operation()
    def destroy(self, window_id: str) -> None:
        """Delete a maintenance window."""
        windows.delete_window(self.caller, window_id, if_match=self.if_match)


class BacktestViewSet(ServiceViewSet):
    noun = "backtest"
    serializer_class = BacktestSerializer

    def get_parent(self, monitor_id: str) -> Monitor:
        return get_monitor(self.caller, monitor_id)

    @operation(
        id="backtest_monitor",
        body=BacktestInputSerializer,
        status=200,
        is_idempotent=False,
        only_reads=True,
        errors=(NoThresholds,),
        throttles=(BacktestThrottle,),
    )
    def create(self, monitor_id: str, data: dict[str, Any]) -> Backtest:
        """Try other thresholds of a monitor on its history.

        Replays the stored results of its checks, and changes nothing. `unanswered` says what they cannot answer:
        another timeout or interval would have had other results. Of a span with more than 150,000 checks, the newest
        are replayed. Heartbeats are refused.
        """
        return run(self.caller, self.found, data, now=self.now)
