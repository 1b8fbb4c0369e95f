"""Connectors: link providers and import their projects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRedirect

from connectors import importing, selectors, services
from connectors.importing import Importable, Imported
from connectors.models import Connector
from connectors.providers import provider, title_of
from connectors.serializers import MAX_REFS
from core.clock import utc_now
from core.errors import ApiError, MonitorLimit, NotFound, ReconnectRequired
from core.forms import ServiceForm, sentence
from dashboard import limits
from dashboard.choosing import ProjectField, project_choices
from dashboard.pages import PageRequest, page
from projects.access import Caller

MAX_REF = 200
SECTION = "connectors"


@dataclass(frozen=True, slots=True)
class ProviderView:
    """A provider with `word`, its name in this deployment's paths."""

    word: str
    title: str
    is_configured: bool
    connector: Connector | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A project of the provider: its reference, and its name for the results page."""

    ref: str
    name: str

    def as_value(self) -> str:
        return json.dumps([self.ref, self.name])

    @classmethod
    def from_value(cls, text: str) -> Choice:
        """Parse the value of a checkbox. Raises ValueError for anything that the form does not send."""
        found = json.loads(text)
        match found:
            case [str(ref), str(name)] if 0 < len(ref) <= MAX_REF and "\0" not in ref + name:
                (ref + name).encode()
                return cls(ref, name)
        raise ValueError("no reference and name")


class _ChoicesField(forms.MultipleChoiceField):
    """Chosen projects. Only their format is checked here; `importing` asks the provider."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[Choice]:
        given = super().clean(value)
        if len(given) > MAX_REFS:
            raise forms.ValidationError(f"Import at most {MAX_REFS} at a time.")
        return [Choice.from_value(text) for text in given]

    def valid_value(self, value: str) -> bool:
        try:
            Choice.from_value(value)
        except (ValueError, RecursionError):
            return False
        return True


class ImportForm(ServiceForm):
    projects = _ChoicesField(error_messages={"required": "Choose at least one project."})

    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data)
        self.fields["project_id"] = ProjectField(
            projects=project_choices(caller), none="None (personal)", label="Project"
        )


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A project that can be imported, with its checkbox."""

    project: Importable
    value: str
    is_chosen: bool

    @property
    def is_open(self) -> bool:
        return bool(self.project.url) and not self.project.already_imported


@page
def index(request: PageRequest) -> HttpResponse:
    linked = {connector.provider: connector for connector in selectors.list_connectors(request.caller)}
    shown = [
        ProviderView(word, title_of(name), provider(name).is_configured(), linked.get(name))
        for word, name in settings.CONNECTORS.items()
    ]
    return render(request, "dashboard/connectors/list.html", {"section": SECTION, "providers": shown})


@require_POST
@page
def link(request: PageRequest, word: str) -> HttpResponse:
    """Redirect the browser to the provider.

    The content security policy blocks redirects of forms to other hosts, so htmx navigates, or a page shows the link.
    """
    try:
        address = services.start(request.caller, word, now=utc_now())
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
        here = reverse("connectors")
        return HttpResponseClientRedirect(here) if request.htmx else redirect(here)
    if request.htmx:
        return HttpResponseClientRedirect(address)
    title = title_of(selectors.backend_of(word))
    context = {"section": SECTION, "title": title, "address": address}
    return render(request, "dashboard/connectors/go.html", context)


@require_POST
@page
def disconnect(request: PageRequest, word: str) -> HttpResponse:
    services.disconnect(request.caller, word)
    messages.success(request, f"{title_of(selectors.backend_of(word))} disconnected. Its monitors stay.")
    return redirect("connectors")


@page
def choose(request: PageRequest, word: str) -> HttpResponse:
    """List the projects that can be imported. A POST imports the selected ones."""
    caller = request.caller
    connector = selectors.get_connector(caller, word)
    form = ImportForm(request.POST if request.method == "POST" else None, caller=caller)
    if request.method == "POST" and form.is_valid():
        chosen: list[Choice] = form.cleaned_data["projects"]

        def run() -> Imported:
            limits.count(request, "create-and-test")
            place = {"project_id": form.cleaned_data["project_id"]}
            refs = [choice.ref for choice in chosen]
            return importing.import_projects(caller, word, refs, place=place, now=utc_now())

        imported = form.attempt(run)
        if imported is not None:
            return _done(request, word, chosen, imported)
    return _choose(request, word, connector, form)


def _choose(request: PageRequest, word: str, connector: Connector, form: ImportForm) -> HttpResponse:
    """Render the list, or the reason why the provider cannot be queried."""
    found: list[Importable] = []
    problem: ApiError | None = None
    try:
        limits.count(request, "ask-provider")
        found = importing.list_importable(request.caller, word, now=utc_now())
    except NotFound:
        raise
    except ApiError as error:
        problem = error
    chosen = set(form["projects"].value() or ())
    rows = [
        ImportRow(project, value, value in chosen)
        for project in found
        for value in [Choice(project.external_ref, project.name).as_value()]
    ]
    context = {
        "section": SECTION,
        "word": word,
        "title": title_of(connector.provider),
        "account": connector.meta,
        "form": form,
        "rows": rows,
        "problem": problem,
        "has_to_reconnect": isinstance(problem, ReconnectRequired),
    }
    return render(request, "dashboard/connectors/choose.html", context)


def _done(request: PageRequest, word: str, chosen: list[Choice], imported: Imported) -> HttpResponse:
    names = {choice.ref: choice.name for choice in chosen}
    context = {
        "section": SECTION,
        "word": word,
        "title": title_of(selectors.backend_of(word)),
        "created": imported.created,
        "skipped": [names[ref] for ref in imported.skipped],
        "failed": [(names[failure.external_ref], _reason(failure.error)) for failure in imported.failed],
    }
    return render(request, "dashboard/connectors/done.html", context)


def _reason(error: str) -> str:
    """Return an error of the API as a sentence."""
    reasons = {MonitorLimit.code: MonitorLimit.reason, NotFound.code: "It no longer exists."}
    return reasons.get(error) or sentence(error.removeprefix("url: "))
