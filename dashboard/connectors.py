"""Connectors: link providers and import their projects."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.core.validators import MaxLengthValidator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.text import capfirst
from django_htmx.http import HttpResponseClientRedirect

from connectors import importing, selectors, services
from connectors.importing import Imported
from connectors.providers import BACKENDS
from connectors.providers.backend import ProviderProject
from connectors.serializers import MAX_REFS
from core.errors import ApiError, MonitorLimit, NotFound, ReconnectRequired
from dashboard.forms import ChosenField, PageForm, ProjectField, project_choices
from dashboard.pages import PageRequest, action, count_request, done, errors_as_messages, page, render_page
from projects.access import Caller

_NO_NUL = r"\A[^\0]*\Z"
_Choice = tuple[
    Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=_NO_NUL)],
    Annotated[str, msgspec.Meta(pattern=_NO_NUL)],
]
"""The value of a checkbox, as JSON: the reference of a project, and its name for the results page."""


class ImportForm(PageForm):
    projects = ChosenField(
        coerce=partial(msgspec.json.decode, type=_Choice),
        validators=[MaxLengthValidator(MAX_REFS, f"Import at most {MAX_REFS} at a time.")],
        error_messages={"required": "Select at least one project."},
    )

    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data)
        self.fields["project_id"] = ProjectField(project_choices(caller))


@page
def index(request: PageRequest) -> HttpResponse:
    linked = {connector.provider: connector for connector in selectors.list_connectors(request.caller)}
    providers = [
        (word, BACKENDS[name].title, BACKENDS[name].is_configured(), linked.get(name))
        for word, name in settings.CONNECTORS.items()
    ]
    return render_page(request, "connectors/list", providers=providers)


@action
def link(request: PageRequest, word: str) -> HttpResponse:
    """Redirect the browser to the provider.

    The content security policy blocks redirects of forms to other hosts, so htmx navigates, or a page shows the link.
    """
    address = ""
    with errors_as_messages(request):
        address = services.start(request.caller, word, now=request.now)
    if request.htmx:
        return HttpResponseClientRedirect(address or reverse("connectors"))
    if not address:
        return redirect("connectors")
    return render_page(request, "connectors/go", title=BACKENDS[selectors.backend_of(word)].title, address=address)


@action
def disconnect(request: PageRequest, word: str) -> HttpResponse:
    services.disconnect(request.caller, word)
    title = BACKENDS[selectors.backend_of(word)].title
    return done(request, f"{title} disconnected. Its monitors stay.", "connectors")


@page
def choose(request: PageRequest, word: str) -> HttpResponse:
    """List the projects that can be imported. A POST imports the selected ones."""
    caller = request.caller
    connector = selectors.get_connector(caller, word)
    form = ImportForm(request.POST or None, caller=caller)

    def run() -> Imported:
        place = {"project_id": form.cleaned_data["project_id"]}
        refs = [ref for ref, _ in form.cleaned_data["projects"]]
        return importing.import_projects(caller, word, refs, place=place, now=request.now)

    imported = form.save(request, run, limit="create-and-test")
    title = BACKENDS[connector.provider].title
    if imported is not None:
        names = dict(form.cleaned_data["projects"])
        return render_page(
            request,
            "connectors/done",
            word=word,
            title=title,
            created=imported.created,
            skipped=[names[ref] for ref in imported.skipped],
            failed=[(names[ref], _reason(error)) for ref, error in imported.failed.items()],
        )
    found: list[ProviderProject] = []
    problem: ApiError | None = None
    try:
        count_request(request, "ask-provider")
        found = importing.list_importable(caller, word, now=request.now)
    except NotFound:
        raise
    except ApiError as error:
        problem = error
    chosen = set(form["projects"].value() or ())
    values = [json.dumps([project.external_ref, project.name]) for project in found]
    return render_page(
        request,
        "connectors/choose",
        word=word,
        title=title,
        account=connector.meta,
        form=form,
        rows=[(project, value, value in chosen) for project, value in zip(found, values, strict=True)],
        problem=problem,
        has_to_reconnect=isinstance(problem, ReconnectRequired),
    )


def _reason(error: str) -> str:
    """Return an error of the API as a sentence."""
    reasons = {MonitorLimit.code: MonitorLimit.reason, NotFound.code: "It no longer exists."}
    return reasons.get(error) or capfirst(error.removeprefix("url: "))
