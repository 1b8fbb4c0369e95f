"""Incidents: list, timeline, acknowledge, comment, declare and resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpResponse, QueryDict

from alerts.messages import REASONS
from core.api.converters import PUBLIC_ID
from dashboard.forms import MultilineField, ObjectForm, PageForm, ProjectField, project_choices
from dashboard.monitors.listing import version_of
from dashboard.on_call.policies import StepView, views_of
from dashboard.pages import PageRequest, action, button, done, page, render_page
from dashboard.paging import first_page
from incidents import selectors, services
from incidents.models import Incident, IncidentEvent
from incidents.serializers import MAX_TEXT
from monitors.selectors import list_monitors, named
from oncall import escalating, reaching
from oncall.models import EscalationPolicy
from oncall.selectors import list_policies
from projects.access import EVERY_ROLE, Caller

PAGE = 50
EFFECTS = 30
STATES = {"open": "Open", "acknowledged": "Acknowledged", "resolved": "Resolved"}

Type = IncidentEvent.Type

# Title and marker state of each kind of timeline line.
_LINES: dict[str, tuple[str, str]] = {
    Type.FIRST_FAILURE: ("First failure", "down"),
    Type.CONFIRMED: ("Confirmed", "down"),
    Type.REASON_CHANGED: ("Reason changed", "down"),
    Type.ANNOUNCED: ("Alerts queued", ""),
    Type.ALERT_SENT: ("Alert delivered", ""),
    Type.ALERT_FAILED: ("Alert not delivered", ""),
    Type.SUPPRESSED: ("No alert sent", ""),
    Type.ACKNOWLEDGED: ("Acknowledged", "slow"),
    Type.UNACKNOWLEDGED: ("Acknowledgement taken back", "down"),
    Type.ESCALATED: ("Escalation", ""),
    Type.COMMENTED: ("Comment", ""),
    Type.DECLARED: ("Declared", "down"),
    Type.RESOLVED: ("Resolved", "up"),
    Type.TOO_OFTEN: ("Pinged too often", ""),
}


_RESOLUTIONS: dict[str, str] = {
    Incident.Resolution.RECOVERED: "Recovered",
    Incident.Resolution.PAUSED: "Monitor paused",
    Incident.Resolution.DELETED: "Monitor deleted",
    Incident.Resolution.CLOSED: "Closed manually",
}


def reason_in_words(code: str | None) -> str:
    return "" if code is None else REASONS.get(code, code)


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident as pages show it to a caller. On its own page, `effects` are outages whose alerts it held."""

    incident: Incident
    caller: Caller
    effects: Sequence[IncidentView] = ()
    further_effects: int = 0

    @property
    def monitor_id(self) -> str | None:
        return selectors.shown_monitor_id(self.incident, self.caller)

    @property
    def state(self) -> str:
        if not self.incident.is_open:
            return "resolved"
        return "acknowledged" if self.incident.acknowledged_at else "open"

    @property
    def reason(self) -> str:
        """Return the reason in words; empty for declared incidents."""
        return reason_in_words(self.incident.reason_code)

    @property
    def lasted(self) -> Any:
        ended = self.incident.resolved_at
        return None if ended is None else ended - self.incident.started_at

    @property
    def project(self) -> Any:
        monitor = self.incident.monitor
        return self.incident.project if monitor is None else monitor.project

    @property
    def resolution(self) -> str:
        return _RESOLUTIONS.get(self.incident.resolution or "", "")

    @property
    def seen(self) -> str:
        """Return a version of the page: every change of an incident adds a line to its timeline."""
        events = self.incident.events.all()
        effects = [(effect.incident.pk, effect.state) for effect in self.effects]
        running = self.incident.running_escalation
        at = None if running is None else (running.step, str(running.next_at))
        latest = events[len(events) - 1].public_id if events else "none"
        return version_of(latest, effects, self.further_effects, at)

    def lines(self) -> Iterator[tuple[IncidentEvent, str, str, str, str]]:
        """Return the event, text, title and status of each line of the timeline, and its author if no text names it."""
        for event in self.incident.events.all():
            has_author = event.type in (Type.COMMENTED, Type.DECLARED)
            author = str(event.data.get("by", "")) if has_author else ""
            yield event, selectors.shown_event_text(event, self.caller), *_LINES[event.type], author


class FilterForm(forms.Form):
    """Filters of the list. Invalid values in the URL are ignored."""

    state = forms.ChoiceField(choices=list(STATES.items()), required=False)
    project = forms.RegexField(PUBLIC_ID, required=False)
    monitor = forms.RegexField(PUBLIC_ID, required=False)
    q = forms.CharField(max_length=200, required=False)

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        self.is_valid()
        self.wanted: dict[str, str] = {name: value for name, value in self.cleaned_data.items() if value}


class CommentForm(PageForm):
    text = MultilineField(label="Comment", max_length=MAX_TEXT, widget=forms.Textarea(attrs={"rows": 3}))


class DeclareForm(ObjectForm):
    title = forms.CharField(max_length=200, help_text="What is wrong, in a few words.")
    text = MultilineField(
        label="What happened",
        max_length=MAX_TEXT,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="The first line of the timeline. Add comments later.",
    )

    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data)
        self.fields["project_id"] = ProjectField(
            project_choices(caller), help_text="Members of the project can see the incident."
        )


@page
def index(request: PageRequest) -> HttpResponse:
    filters = FilterForm(request.GET)
    found = _filtered(request.caller, filters.wanted).defer("monitor__config")
    rows, last = _page_of(found, after=request.GET.get("after", ""))
    return render_page(
        request,
        "incidents/list",
        incidents=[IncidentView(row, request.caller) for row in rows],
        wanted=filters.wanted,
        states=[(None, "All"), *STATES.items()],
        projects=project_choices(request.caller, roles=EVERY_ROLE),
        monitor=_name_of(request.caller, filters.wanted.get("monitor")),
        next=last and f"{int(not last.is_open)}-{last.pk}",
        later="after" in request.GET,
    )


@page
def show(request: PageRequest, incident_id: str) -> HttpResponse:
    incident = selectors.get_incident(request.caller, incident_id)
    return _page(request, incident, CommentForm())


@page
def live(request: PageRequest, incident_id: str) -> HttpResponse:
    """Return the changed parts of the page, or 204 if nothing changed."""
    incident = selectors.get_incident(request.caller, incident_id)
    shown = _view(request, incident)
    if shown.seen == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render_page(request, "incidents/live", shown=shown, live=True, next=_next_step(request.caller, incident))


@page
def declare(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = DeclareForm(request.POST or None, caller=caller)
    created = form.create(request, lambda: services.declare(caller, form.cleaned_data, now=request.now))
    if created is not None:
        return done(request, "Incident declared.", "incident", created.object_id)
    return render_page(request, "incidents/declare", form=form)


@action
def comment(request: PageRequest, incident_id: str) -> HttpResponse:
    incident = selectors.get_incident(request.caller, incident_id)
    request.caller.require_write(incident)
    form = CommentForm(request.POST)
    if form.save(request, lambda: services.comment(request.caller, incident_id, **form.cleaned_data, now=request.now)):
        return done(request, "Comment added.", "incident", incident_id)
    return _page(request, incident, form)


acknowledge = button(
    services.acknowledge,
    "Acknowledged. Reminders and the escalation have stopped.",
    "incident",
    to_first_id=True,
    takes_now=True,
)
unacknowledge = button(
    escalating.unacknowledge, "Acknowledgement taken back.", "incident", to_first_id=True, takes_now=True
)
escalate = button(escalating.escalate, "The next step ran.", "incident", to_first_id=True, takes_now=True)
resolve = button(services.resolve, "Incident resolved.", "incident", to_first_id=True, takes_now=True)


def _page(request: PageRequest, incident: Incident, form: CommentForm) -> HttpResponse:
    following = _next_step(request.caller, incident)
    return render_page(request, "incidents/detail", shown=_view(request, incident), form=form, next=following)


def _view(request: PageRequest, incident: Incident) -> IncidentView:
    effects, further = selectors.effects_of(request.caller, incident, limit=EFFECTS)
    shown = [IncidentView(effect, request.caller) for effect in effects]
    return IncidentView(incident, request.caller, shown, further)


@dataclass(frozen=True, slots=True)
class NextStep:
    """Where an escalation stands. Without the policy if the caller cannot see it."""

    at: datetime
    number: int
    round: int
    policy: EscalationPolicy | None
    step: StepView | None
    on_call: list[str]
    """Texts about who is on call then in the schedules of the step."""


def _next_step(caller: Caller, incident: Incident) -> NextStep | None:
    """Return the step that runs next, or None if nothing runs."""
    escalation = incident.running_escalation
    if escalation is None or escalation.next_at is None or escalation.policy_id is None:
        return None
    policy = list_policies(caller).filter(pk=escalation.policy_id).first()
    steps = [] if policy is None else views_of(caller, [policy])[0].steps
    step = steps[escalation.step] if escalation.step < len(steps) else None
    on_call = [] if policy is None or step is None else _on_call(policy, escalation.step, at=escalation.next_at)
    return NextStep(escalation.next_at, escalation.step + 1, escalation.round + 1, policy, step, on_call)


def _on_call(policy: EscalationPolicy, number: int, *, at: datetime) -> list[str]:
    """Return texts about whom the schedules of a step lead to."""
    schedules = [target for target in policy.steps[number]["targets"] if target["type"] == "schedule"]
    if not schedules:
        return []
    found = reaching.Directory([policy], now=at).look_up(policy, schedules)
    names = ", ".join(user.email for user in found.people)
    missed = "; ".join(found.missed)
    return [*([f"On call then: {names}"] if names else []), *([f"Not reached: {missed}"] if missed else [])]


def _filtered(caller: Caller, wanted: dict[str, str]) -> QuerySet[Incident]:
    state = wanted.get("state")
    incidents = selectors.list_incidents(
        caller,
        monitor_id=wanted.get("monitor"),
        project_id=wanted.get("project"),
        is_open=None if state is None else state != "resolved",
    )
    if state == "acknowledged":
        incidents = incidents.filter(acknowledged_at__isnull=False)
    if "q" in wanted:
        incidents = incidents.filter(name__icontains=wanted["q"])
    return incidents


def _page_of(incidents: QuerySet[Incident], *, after: str) -> tuple[list[Incident], Incident | None]:
    """Return a page: open incidents first, newest first in both groups."""
    incidents = incidents.annotate(is_resolved=Q(resolved_at__isnull=False)).order_by("is_resolved", "-pk")
    position = re.fullmatch(r"([01])-([0-9]{1,18})", after)
    if position is not None:
        was_resolved, pk = position[1] == "1", int(position[2])
        beyond = Q(is_resolved=was_resolved, pk__lt=pk)
        incidents = incidents.filter(beyond if was_resolved else beyond | Q(is_resolved=True))
    return first_page(incidents, PAGE)


def _name_of(caller: Caller, monitor_id: str | None) -> str | None:
    """Return the name of the monitor in the filter, or its id if it was deleted."""
    if monitor_id is None:
        return None
    monitor = list_monitors(caller).filter(named([monitor_id])).first()
    return monitor_id if monitor is None else monitor.name or monitor.url or monitor_id
