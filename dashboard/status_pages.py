"""Status pages for their editors: list, settings, notes and logo."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from core.clock import utc_now
from dashboard import limits
from dashboard.pages import PageRequest, act, page
from dashboard.status_page_forms import EditPageForm, LogoForm, NewPageForm, NoteForm, UpdateForm
from statuspages import selectors, services
from statuspages.lookup import page_url
from statuspages.models import StatusPage

SECTION = "status-pages"
NOTES = 20


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_pages(request.caller).order_by("name", "pk")
    shown = [
        (one, page_url(one, one.custom_domain), sum(len(group.monitors.all()) for group in one.groups.all()))
        for one in found
    ]
    return render(request, "dashboard/status_pages/list.html", {"section": SECTION, "pages": shown})


@page
def create(request: PageRequest) -> HttpResponse:
    form = NewPageForm(request.POST or None, caller=request.caller)
    if request.method == "POST" and form.is_valid():
        given = form.given()
        created = form.create(request, lambda now: services.create_page(request.caller, given, now=now).public_id)
        if created is not None:
            messages.success(request, "Status page created.")
            return redirect("status_page", created.object_id)
    context = {"section": SECTION, "form": form, "base_url": settings.BASE_URL}
    return render(request, "dashboard/status_pages/new.html", context)


@page
def show(request: PageRequest, page_id: str) -> HttpResponse:
    return _detail(request, selectors.get_page(request.caller, page_id))


@page
def edit(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = EditPageForm(request.POST or None, caller=request.caller, page=found)
    if request.method == "POST" and form.is_valid():
        saved = form.attempt(lambda: services.update_page(request.caller, page_id, form.given()))
        if saved is not None:
            messages.success(request, "Status page saved.")
            return redirect("status_page", page_id)
    return render(request, "dashboard/status_pages/edit.html", {"section": SECTION, "form": form, "page": found})


@require_POST
@page
def delete(request: PageRequest, page_id: str) -> HttpResponse:
    services.delete_page(request.caller, page_id)
    messages.success(request, "Status page deleted.")
    return redirect("status_pages")


@require_POST
@page
def set_logo(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = LogoForm(request.POST, request.FILES)
    if form.is_valid():
        data = form.cleaned_data["logo"]

        def set_it() -> StatusPage:
            limits.count(request, "logo")
            return services.set_logo(request.caller, page_id, data)

        if form.attempt(set_it) is not None:
            messages.success(request, "Logo saved.")
            return redirect("status_page", page_id)
    return _detail(request, found, logo_form=form)


@require_POST
@page
def remove_logo(request: PageRequest, page_id: str) -> HttpResponse:
    services.remove_logo(request.caller, page_id)
    messages.success(request, "Logo removed.")
    return redirect("status_page", page_id)


@require_POST
@page
def create_note(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = NoteForm(request.POST)
    if form.is_valid():
        given = {name: form.cleaned_data[name] for name in ("title", "status", "text")}
        if form.create(request, lambda now: services.create_note(request.caller, page_id, given, now=now).public_id):
            messages.success(request, "Note published.")
            return redirect("status_page", page_id)
    return _detail(request, found, note_form=form)


@require_POST
@page
def add_update(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = UpdateForm(request.POST, prefix=note_id)
    if form.is_valid():
        given = form.cleaned_data
        done = form.attempt(lambda: services.add_update(request.caller, page_id, note_id, given, now=utc_now()))
        if done is not None:
            messages.success(request, "Update published.")
            return redirect("status_page", page_id)
    return _detail(request, found, update_forms={note_id: form})


@require_POST
@page
def delete_note(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    return act(
        request,
        lambda: services.delete_note(request.caller, page_id, note_id),
        done="Note deleted.",
        to="status_page",
        page_id=page_id,
    )


def _detail(
    request: PageRequest,
    found: StatusPage,
    *,
    note_form: NoteForm | None = None,
    update_forms: dict[str, UpdateForm] | None = None,
    logo_form: LogoForm | None = None,
) -> HttpResponse:
    notes = list(selectors.list_notes(found).order_by("-pk")[:NOTES])
    given: dict[str, Any] = dict(update_forms or {})
    shown = [
        (note, None if note.resolved_at else given.get(note.public_id) or UpdateForm(prefix=note.public_id))
        for note in notes
    ]
    invalid = any(form is not None and form.errors for form in (note_form, logo_form, *given.values()))
    return render(
        request,
        "dashboard/status_pages/detail.html",
        {
            "section": SECTION,
            "page": found,
            "url": page_url(found, found.custom_domain),
            "subscribers": selectors.list_subscribers(found).count(),
            "notes": shown,
            "note_form": note_form or NoteForm(),
            "logo_form": logo_form or LogoForm(),
            "has_logo": hasattr(found, "logo"),
        },
        status=422 if invalid else 200,
    )
