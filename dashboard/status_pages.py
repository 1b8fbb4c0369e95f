"""Status pages for their editors: list, settings, notes and logo."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from django.http import HttpResponse

from core.clock import utc_now
from dashboard.pages import PageRequest, action, button, done, page, render_page
from dashboard.status_page_forms import LogoForm, NoteForm, StatusPageForm, UpdateForm
from statuspages import selectors, services
from statuspages.models import StatusPage

NOTES = 20


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_pages(request.caller).order_by("name", "pk")
    pages = [(one, sum(len(group.monitors.all()) for group in one.groups.all())) for one in found]
    return render_page(request, "status_pages/list", pages=pages)


@page
def create(request: PageRequest) -> HttpResponse:
    form = StatusPageForm(request.POST or None, caller=request.caller)
    created = form.create(request, lambda now: services.create_page(request.caller, form.given(), now=now))
    if created is not None:
        return done(request, "Status page created.", "status_page", created.object_id)
    return render_page(request, "status_pages/new", form=form)


@page
def show(request: PageRequest, page_id: str) -> HttpResponse:
    return _detail(request, selectors.get_page(request.caller, page_id))


@page
def edit(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = StatusPageForm(request.POST or None, caller=request.caller, stored=found)
    if form.save(request, lambda: services.update_page(request.caller, page_id, form.given())):
        return done(request, "Status page saved.", "status_page", page_id)
    return render_page(request, "status_pages/edit", form=form, page=found)


delete = button(services.delete_page, "Status page deleted.", "status_pages")
remove_logo = button(services.remove_logo, "Logo removed.", "status_page", to_first_id=True)
delete_note = button(services.delete_note, "Note deleted.", "status_page", to_first_id=True)


@action
def set_logo(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = LogoForm(request.POST, request.FILES)
    if form.save(request, lambda: services.set_logo(request.caller, page_id, form.cleaned_data["logo"]), limit="logo"):
        return done(request, "Logo saved.", "status_page", page_id)
    return _detail(request, found, logo_form=form)


@action
def create_note(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = NoteForm(request.POST)
    if form.create(request, lambda now: services.create_note(request.caller, page_id, form.cleaned_data, now=now)):
        return done(request, "Note published.", "status_page", page_id)
    return _detail(request, found, note_form=form)


@action
def add_update(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    caller = request.caller
    found = selectors.get_page(caller, page_id)
    form = UpdateForm(request.POST, prefix=note_id)
    if form.save(request, lambda: services.add_update(caller, page_id, note_id, form.cleaned_data, now=utc_now())):
        return done(request, "Update published.", "status_page", page_id)
    return _detail(request, found, update_forms={note_id: form})


def _detail(
    request: PageRequest,
    found: StatusPage,
    *,
    note_form: NoteForm | None = None,
    update_forms: Mapping[str, UpdateForm] = MappingProxyType({}),
    logo_form: LogoForm | None = None,
) -> HttpResponse:
    """Render the page of a status page; forms with errors replace the empty ones."""
    notes = [
        (note, None if note.resolved_at else update_forms.get(note.public_id) or UpdateForm(prefix=note.public_id))
        for note in selectors.list_notes(found).order_by("-pk")[:NOTES]
    ]
    invalid = any(form is not None and form.errors for form in (note_form, logo_form, *update_forms.values()))
    return render_page(
        request,
        "status_pages/detail",
        status=422 if invalid else 200,
        page=found,
        subscribers=selectors.list_subscribers(found).count(),
        notes=notes,
        note_form=note_form or NoteForm(),
        logo_form=logo_form or LogoForm(),
    )
