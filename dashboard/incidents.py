"""Incidents: the list, one with its timeline, and what people do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from alerts.messages import REASONS
from core.api.converters import PUBLIC_ID
from core.clock import utc_now
from core.errors import ApiError, NotFound
from core.forms import ServiceForm
from dashboard.choosing import ProjectField, project_choices
from dashboard.once import OnceForm
from dashboard.pages import PageRequest, page
from incidents import selectors, services
from incidents.models import Incident, IncidentEvent
from incidents.serializers import MAX_TEXT
from monitors.selectors import list_monitors
from projects.access import Caller

PAGE = 50
STATES = {"open": "Open", "acknowledged": "Acknowledged", "resolved": "Resolved"}

Type = IncidentEvent.Type

# What each line of a timeline is called, and the state that its mark shows.
_LINES: dict[str, tuple[str, str]] = {
    Type.FIRST_FAILURE: ("First failure", "down"),
    Type.CONFIRMED: ("Confirmed", "down"),
    Type.REASON_CHANGED: ("Another reason", "down"),
    Type.ANNOUNCED: ("Alerts on their way", ""),
    Type.ALERT_SENT: ("Alert delivered", ""),
    Type.ALERT_FAILED: ("Alert not delivered", ""),
    Type.SUPPRESSED: ("Alerts held back", ""),
    Type.ACKNOWLEDGED: ("Acknowledged", "slow"),
    Type.COMMENTED: ("Comment", ""),
    Type.DECLARED: ("Declared", "down"),
    Type.RESOLVED: ("Resolved", "up"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One of a timeline. `by` is who said or did it, where that is not in the text."""

    event: IncidentEvent
    title: str
    status: str
    by: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An incident as pages show it."""

    incident: Incident

    @property
    def state(self) -> str:
        if not self.incident.is_open:
            return "resolved"
        return "acknowledged" if self.incident.acknowledged_at else "open"

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def reason(self) -> str:
        """In plain words; empty for what people declared."""
        code = self.incident.reason_code
        return "" if code is None else REASONS.get(code, code)

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
        """Names what the page shows: whatever changes on an incident adds a line to its timeline."""
        events = self.incident.events.all()
        return events[len(events) - 1].public_id if events else "none"

    def lines(self) -> Iterator[Line]:
        for event in self.incident.events.all():
            title, status = _LINES.get(event.type, (event.get_type_display(), ""))
            says_who = event.type in (Type.COMMENTED, Type.DECLARED)
            yield Line(event, title, status, str(event.data.get("by", "")) if says_who else "")


_RESOLUTIONS: dict[str, str] = {
    Incident.Resolution.RECOVERED: "It recovered.",
    Incident.Resolution.PAUSED: "The monitor was paused.",
    Incident.Resolution.DELETED: "The monitor was deleted.",
    Incident.Resolution.CLOSED: "It was closed by hand.",
}


class FilterForm(forms.Form):
    """What the list is limited to. Nothing that comes in an address is an error: what makes no sense is left out."""

    state = forms.ChoiceField(choices=list(STATES.items()), required=False)
    project = forms.RegexField(PUBLIC_ID, required=False)
    monitor = forms.RegexField(PUBLIC_ID, required=False)
    q = forms.CharField(max_length=200, required=False)

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        self.is_valid()
        self.wanted: dict[str, str] = {name: value for name, value in self.cleaned_data.items() if value}

    def query(self, **changes: str) -> str:
        """As in an address, with these changes; an empty one takes away."""
        query = QueryDict(mutable=True)
        query.update({name: value for name, value in (self.wanted | changes).items() if value})
        return f"?{query.urlencode()}" if query else "?"

    def states(self) -> list[tuple[str, str, bool]]:
        """Address, name and whether it is this one."""
        chosen = self.wanted.get("state", "")
        return [
            (self.query(state=state), name, state == chosen) for state, name in [("", "All"), *STATES.items()]
        ]


class CommentForm(ServiceForm):
    text = forms.CharField(label="Comment", max_length=MAX_TEXT, widget=forms.Textarea(attrs={"rows": 3}))

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        return text.replace("\r\n", "\n")


class DeclareForm(OnceForm):
    title = forms.CharField(
        max_length=200, help_text="What is wrong, in a few words. It is the name of the incident."
    )
    text = forms.CharField(
        label="What happened",
        max_length=MAX_TEXT,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="The first line of the timeline. Comments tell how it goes on.",
    )

    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data)
        self.fields["project_id"] = ProjectField(
            projects=project_choices(caller),
            none="None: mine alone",
            label="Project",
            help_text="Its members see the incident.",
        )

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        return text.replace("\r\n", "\n")


@page
def index(request: PageRequest) -> HttpResponse:
    asked = FilterForm(request.GET)
    rows, more = _page_of(_filtered(request.caller, asked.wanted), after=request.GET.get("after", ""))
    return render(
        request,
        "dashboard/incidents/list.html",
        {
            "section": "incidents",
            "incidents": [Shown(row) for row in rows],
            "filter": asked,
            "projects": project_choices(request.caller),
            "monitor": _name_of(request.caller, asked.wanted.get("monitor")),
            "next": asked.query(after=f"{int(not rows[-1].is_open)}-{rows[-1].pk}") if more else None,
            "first": asked.query() if "after" in request.GET else None,
        },
    )


@page
def show(request: PageRequest, incident_id: str) -> HttpResponse:
    return _show(request, selectors.get_incident(request.caller, incident_id), CommentForm())


@page
def live(request: PageRequest, incident_id: str) -> HttpResponse:
    """What changed since the reader's page was drawn: its parts, or 204, on which htmx leaves the page alone."""
    shown = Shown(selectors.get_incident(request.caller, incident_id))
    if shown.seen == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render(request, "dashboard/incidents/live.html", {"shown": shown, "live": True})


@page
def declare(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = DeclareForm(request.POST or None, caller=caller)
    if request.method == "POST" and form.is_valid():
        now = utc_now()
        given = form.cleaned_data
        made = form.attempt(
            lambda: form.make_once(
                request, caller, lambda: services.declare(caller, given, now=now).public_id, now=now
            )
        )
        if made is not None:
            messages.success(request, "The incident is declared.")
            return redirect("incident", made.object_id)
    return render(request, "dashboard/incidents/declare.html", {"section": "incidents", "form": form})


@require_POST
@page
def comment(request: PageRequest, incident_id: str) -> HttpResponse:
    incident = selectors.get_incident(request.caller, incident_id)
    form = CommentForm(request.POST)
    if form.is_valid():
        text = form.cleaned_data["text"]
        said = form.attempt(lambda: services.comment(request.caller, incident_id, text=text, now=utc_now()))
        if said is not None:
            messages.success(request, "The comment is added.")
            return redirect("incident", incident_id)
    return _show(request, incident, form)


@require_POST
@page
def acknowledge(request: PageRequest, incident_id: str) -> HttpResponse:
    return _do(
        request,
        incident_id,
        lambda: services.acknowledge(request.caller, incident_id, now=utc_now()),
        "Acknowledged: no further reminders are sent.",
    )


@require_POST
@page
def resolve(request: PageRequest, incident_id: str) -> HttpResponse:
    return _do(
        request,
        incident_id,
        lambda: services.resolve(request.caller, incident_id, now=utc_now()),
        "The incident is resolved.",
    )


def _do(request: PageRequest, incident_id: str, action: Callable[[], Incident], done: str) -> HttpResponse:
    """Back to the incident, with what came of it: it may have changed since the page with the button was drawn."""
    try:
        action()
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        messages.success(request, done)
    return redirect("incident", incident_id)


def _show(request: PageRequest, incident: Incident, form: CommentForm) -> HttpResponse:
    context = {"section": "incidents", "shown": Shown(incident), "form": form}
    return render(request, "dashboard/incidents/detail.html", context)


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


def _page_of(incidents: QuerySet[Incident], *, after: str) -> tuple[Sequence[Incident], bool]:
    """Open ones first, the newest first in both. `after` is whether the last one seen was over, and its number."""
    over = ExpressionWrapper(Q(resolved_at__isnull=False), output_field=BooleanField())
    incidents = incidents.annotate(over=over).order_by("over", "-pk")
    position = re.fullmatch(r"([01])-([0-9]{1,18})", after)
    if position is not None:
        was_over, pk = position[1] == "1", int(position[2])
        beyond = Q(over=was_over, pk__lt=pk)
        incidents = incidents.filter(beyond if was_over else beyond | Q(over=True))
    rows = list(incidents[: PAGE + 1])
    return rows[:PAGE], len(rows) > PAGE


def _name_of(caller: Caller, monitor_id: str | None) -> str | None:
    """Of the monitor that the list is limited to; its id where it is gone."""
    if monitor_id is None:
        return None
    monitor = list_monitors(caller).filter(public_id=monitor_id).first()
    return monitor_id if monitor is None else monitor.name or monitor.url or monitor_id
