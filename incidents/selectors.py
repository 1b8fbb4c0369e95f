"""Read incidents and maintenance windows."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import Func, IntegerField, OuterRef, Prefetch, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, JSONObject, Length
from django.db.models.lookups import Exact

from accounts.models import User
from checks.spec import ReasonCode
from core.db import Derived, compiled_for_users, get_or_not_found, total_of
from core.ids import derived_bits, derived_id
from incidents.models import Incident, IncidentEvent, MaintenanceWindow
from monitors.models import READING_PREFIX, Monitor
from monitors.selectors import named, shown_id
from projects import access
from projects.access import Caller

_OF_HEARTBEATS = {ReasonCode.HEARTBEAT_MISSED, ReasonCode.HEARTBEAT_FAILED}
_SENT_TEXTS: Mapping[str, str] = {
    IncidentEvent.Type.ALERT_SENT: "Alert delivered.",
    IncidentEvent.Type.ALERT_FAILED: "Alert not delivered.",
    IncidentEvent.Type.ANNOUNCED: "Alert planned.",
    IncidentEvent.Type.SUPPRESSED: "Alert not sent.",
    IncidentEvent.Type.ESCALATED: "A step of the escalation policy ran.",
}
"""What viewers read of an alert to one channel, the only entries with `data.channel_id`, and of steps that ran."""
TIMELINE = Prefetch("events", IncidentEvent.objects.order_by("pk"))
INCIDENT_CHARS = Coalesce(Length("detail"), 0)
WINDOW_BYTES = total_of(MaintenanceWindow.monitors.through.objects.all(), "maintenancewindow", Value(500))
"""Memory of the chosen monitors while a list is created."""


def list_incidents(
    caller: Caller, *, monitor_id: str | None = None, project_id: str | None = None, is_open: bool | None = None
) -> QuerySet[Incident]:
    """Return the incidents of accessible monitors, and declared ones by their own owner and project.

    `cause` is the id and name of the outage that caused one, as a dictionary, if the caller can access it.

    A union instead of OR, for which PostgreSQL would scan the incidents of all accounts.
    """
    monitors = access.accessible(caller, Monitor.objects.all()).values("pk")
    of_monitors = Incident.objects.filter(monitor__in=monitors)
    of_none = access.accessible(caller, Incident.objects.filter(monitor=None))
    found = Incident.objects.filter(pk__in=of_monitors.values("pk").union(of_none.values("pk"), all=True))
    if monitor_id is not None:
        found = found.filter(_of_monitor(monitor_id))
    if project_id is not None:
        found = found.filter(Q(monitor__project__public_id=project_id) | Q(monitor=None, project__public_id=project_id))
    if is_open is not None:
        found = found.filter(resolved_at__isnull=is_open)
    unread = ("monitor__config", "monitor__header_values", "monitor__url")  # may take 40 KB for each incident
    cause = Incident.objects.filter(pk=OuterRef("caused_by"), monitor__in=monitors)
    cause_of = Subquery(cause.values(json=JSONObject(id="public_id", name="name")))
    related = ("monitor__project", "project", "acknowledged_by", "escalation__policy")
    return found.select_related(*related).defer(*unread, "escalation__policy__steps").annotate(cause=cause_of)


def shown_monitor_id(incident: Incident, caller: Caller | None) -> str | None:
    """Return the id of an incident's monitor for its readers, as `shown_id`, also if the monitor is deleted."""
    if incident.monitor is not None:
        return shown_id(incident.monitor, caller)
    if incident.reason_code in _OF_HEARTBEATS and caller is not None and caller.only_reads(incident):
        return derived_id(READING_PREFIX, incident.monitor_public_id)
    return incident.monitor_public_id or None


def shown_event_text(event: IncidentEvent, caller: Caller | None) -> str:
    """Return the text of an entry of a timeline. To viewers of the project it does not say where alerts go."""
    says_where = "channel_id" in event.data or "people" in event.data
    if says_where and event.type in _SENT_TEXTS and caller is not None and caller.views(event.incident):
        return _SENT_TEXTS[event.type]
    return event.text


def _of_monitor(public_id: str) -> Q:
    """Match the incidents of a monitor, which may be deleted. Its id may be that for those who only read."""
    bits = derived_bits(READING_PREFIX, public_id)
    if bits is None:
        return Q(monitor_public_id=public_id)
    secret = Monitor.objects.filter(named([public_id])).values_list("public_id", flat=True).first()
    if secret is not None:
        return Q(monitor_public_id=secret)
    return Q(Exact(Derived("monitor_public_id"), bits), monitor=None)


_count_open = compiled_for_users(
    lambda user: list_incidents(Caller(User(pk=user)), is_open=True).values_list(
        Func("pk", function="count", output_field=IntegerField())
    )
)


def count_open(user: User) -> int:
    """Return the number of open incidents that the user can access, for the navigation of each page."""
    ((count,),) = _count_open(user.pk)
    return int(count)


def get_incident(caller: Caller, public_id: str) -> Incident:
    """Return an incident with its timeline."""
    return get_or_not_found(list_incidents(caller).prefetch_related(TIMELINE), public_id=public_id)


def effects_of(caller: Caller, incident: Incident, *, limit: int) -> tuple[list[Incident], int]:
    """Return outages whose alerts this one held, newest first, and the number of those beyond the limit."""
    found = list_incidents(caller).filter(caused_by=incident)
    newest = list(found.order_by("-pk")[:limit])
    return newest, found.count() - limit if len(newest) == limit else 0


def newest_incidents(monitor: Monitor, *, limit: int) -> list[Incident]:
    """Return the newest incidents of a monitor that the caller may see, newest first, without their evidence.

    With the outages that caused them.
    """
    found = Incident.objects.filter(monitor=monitor).select_related("caused_by")
    return list(found.defer("evidence", "caused_by__evidence").order_by("-started_at", "-pk")[:limit])


def list_windows(caller: Caller) -> QuerySet[MaintenanceWindow]:
    """Return windows with those of their monitors that the caller may see."""
    visible = access.accessible(
        caller, Monitor.objects.only("public_id", "type", "owner_id", "project_id").order_by("pk")
    )
    windows = MaintenanceWindow.objects.select_related("project")
    return access.accessible(caller, windows).prefetch_related(Prefetch("monitors", visible))


def windows_covering(caller: Caller, monitor: Monitor) -> list[MaintenanceWindow]:
    """Return accessible windows, active or upcoming, the next first; `incidents.windows.covered` defines the
    rules."""
    whole = Q(project__isnull=False, project=monitor.project_id) | Q(project=None, owner=monitor.owner_id)
    chosen = Q(project=monitor.project_id)
    if not caller.views(monitor):
        chosen |= Q(project=None)
    naming = MaintenanceWindow.monitors.through.objects.filter(monitor=monitor).values("maintenancewindow")
    tagged = whole & Q(monitor_tag_keys__has_any_keys=monitor.tag_keys)
    covering = (Q(all_monitors=True) & whole) | (Q(all_monitors=False) & ((Q(pk__in=naming) & chosen) | tagged))
    windows = access.accessible(caller, MaintenanceWindow.objects.filter(current_ends_at__isnull=False))
    return list(windows.filter(covering).order_by("current_starts_at", "pk"))


def get_window(caller: Caller, public_id: str) -> MaintenanceWindow:
    return get_or_not_found(list_windows(caller), public_id=public_id)
