"""Locations: list, create, change, delete, issue join tokens and revoke agents."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect

from core.api.fields import validated
from dashboard.deletion import Deletable, deletion
from dashboard.forms import ObjectForm, ProjectField, project_choices
from dashboard.monitors.listing import version_of
from dashboard.pages import PageRequest, action, button, done, errors_as_messages, page, read_only, render_page
from locations import services
from locations.models import Location
from locations.serializers import LocationInputSerializer, LocationPatchSerializer
from projects import access


class LocationForm(ObjectForm):
    name = forms.CharField(max_length=services.MAX_NAME)
    preselected = forms.BooleanField(
        label="Preselected", required=False, help_text="New monitors are checked from here unless others are selected."
    )

    def __init__(self, location: Location, data: QueryDict | None = None) -> None:
        super().__init__(data, stored=location, initial={"name": location.title, "preselected": location.preselected})
        if location.is_default:
            del self.fields["name"]  # it is a setting of the deployment

    def given(self) -> dict[str, Any]:
        changed = self.sent & {"name", "preselected"}
        return validated(LocationPatchSerializer, {name: self.cleaned_data[name] for name in changed})


class NewLocationForm(ObjectForm):
    name = forms.CharField(max_length=services.MAX_NAME, help_text="An office, a data center, a city.")

    def given(self) -> dict[str, Any]:
        return validated(LocationInputSerializer, {name: self.cleaned_data[name] for name in ("name", "project_id")})


@page
def index(request: PageRequest) -> HttpResponse:
    """List locations. A POST creates a private one: only its response shows the join token, a reload does not."""
    caller, shown = request.caller, dict[str, Any]()
    form = NewLocationForm(request.POST or None, initial={"project_id": request.GET.get("project")})
    form.fields["project_id"] = ProjectField(
        project_choices(caller, roles=access.MANAGERS),
        none="None: for all my own monitors",
        help_text="Its monitors can be checked from here, and its members see the location.",
    )

    def create() -> Location:
        location, shown["token"] = services.create_location(caller, form.given(), now=request.now)
        return location

    created = form.create(request, create)
    if created is None:
        locations = services.list_locations(caller, now=request.now).order_by("pk")
        return render_page(request, "locations/list", locations=locations, form=form)
    if created.repeated:
        messages.warning(request, "The location was already created. If its join token is lost, create another.")
        return redirect("location", created.object_id)
    return _show(request, created.object_id, **shown)


@page
def show(request: PageRequest, location_id: str) -> HttpResponse:
    """Show a location. A POST changes its settings."""
    caller, now = request.caller, request.now
    form = LocationForm(services.get_location(caller, location_id, now=now), request.POST or None)

    def change() -> Location:
        return services.update_location(caller, location_id, form.given(), now=now, if_match=form.if_match)

    if form.save(request, change):
        return done(request, "Location saved.", "location", location_id)
    return _show(request, location_id, form=form)


@read_only
def live(request: PageRequest, location_id: str) -> HttpResponse:
    """Return the agents, or 204 if `seen` is their current version."""
    context = _moving(request, location_id)
    if context["seen"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    return render_page(request, "locations/moving", live=True, **context)


@action
def issue_token(request: PageRequest, location_id: str) -> HttpResponse:
    """Show a new join token. Only this response shows it."""
    token = ""
    with errors_as_messages(request):
        token = services.issue_join_token(request.caller, location_id, now=request.now)
    return _show(request, location_id, token=token) if token else redirect("location", location_id)


delete = deletion(
    services.delete_location,
    lambda request, location_id: _deletable(services.get_location(request.caller, location_id, now=request.now)),
    "Location deleted. Its agents are revoked.",
    "locations",
)
revoke = button(services.revoke_agent, "Agent revoked.", "location", to_first_id=True)


def _deletable(location: Location) -> Deletable:
    return Deletable(location, location.title, LocationForm(location).values())


def _moving(request: PageRequest, location_id: str) -> dict[str, Any]:
    location = services.get_location(request.caller, location_id, now=request.now)
    agents = sorted(location.agents.all(), key=attrgetter("name", "pk"))
    # The time changes all the time; that an agent is online says enough.
    shown = [(one.pk, one.is_online, one.network_down, one.version, one.checks_per_min, one.lag_ms) for one in agents]
    return {
        "location": location,
        "agents": agents,
        "manages": services.may_manage(request.caller, location),
        "seen": version_of(shown),
    }


def _show(request: PageRequest, location_id: str, *, form: LocationForm | None = None, token: str = "") -> HttpResponse:
    context = _moving(request, location_id)
    location: Location = context["location"]
    return render_page(
        request,
        "locations/detail",
        form=form or LocationForm(location),
        token=token,
        expires_at=request.now + services.TOKEN_LIFETIME,
        base_url=settings.BASE_URL,
        deletable=_deletable(location),
        deletes=not location.is_default and services.may_manage(request.caller, location, right="delete"),
        **context,
    )
