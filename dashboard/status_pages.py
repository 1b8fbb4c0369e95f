"""Status pages for those who keep them: the list, what a page shows, and what is told on it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from core.clock import utc_now
from core.errors import ApiError, NotFound
from dashboard import limits
from dashboard.pages import PageRequest, page
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
        now = utc_now()
        made = form.attempt(
            lambda: form.make_once(
                request,
                request.caller,
                lambda: services.create_page(request.caller, form.given(), now=now).public_id,
                now=now,
            )
        )
        if made is not None:
            messages.success(request, "The page is there.")
            return redirect("status_page", made.object_id)
    context = {"section": SECTION, "form": form, "base_url": settings.BASE_URL}
    return render(request, "dashboard/status_pages/new.html", context)


@page
def show(request: PageRequest, page_id: str) -> HttpResponse:
    """With its notes, and a form for another."""
    return _detail(request, selectors.get_page(request.caller, page_id))


@page
def edit(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = EditPageForm(request.POST or None, caller=request.caller, page=found)
    if request.method == "POST" and form.is_valid():
        saved = form.attempt(lambda: services.update_page(request.caller, page_id, form.given()))
        if saved is not None:
            messages.success(request, "The page is saved.")
            return redirect("status_page", page_id)
    return render(
        request, "dashboard/status_pages/edit.html", {"section": SECTION, "form": form, "page": found}
    )


@require_POST
@page
def delete(request: PageRequest, page_id: str) -> HttpResponse:
    services.delete_page(request.caller, page_id)
    messages.success(request, "The page is deleted.")
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
            messages.success(request, "The logo is on the page.")
            return redirect("status_page", page_id)
    return _detail(request, found, logo_form=form)


@require_POST
@page
def remove_logo(request: PageRequest, page_id: str) -> HttpResponse:
    services.remove_logo(request.caller, page_id)
    messages.success(request, "The page has no logo any more.")
    return redirect("status_page", page_id)


@require_POST
@page
def write_note(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = NoteForm(request.POST)
    if form.is_valid():
        now = utc_now()
        given = {name: form.cleaned_data[name] for name in ("title", "status", "text")}
        made = form.attempt(
            lambda: form.make_once(
                request,
                request.caller,
                lambda: services.create_note(request.caller, page_id, given, now=now).public_id,
                now=now,
            )
        )
        if made is not None:
            messages.success(request, "The note is on the page.")
            return redirect("status_page", page_id)
    return _detail(request, found, note_form=form)


@require_POST
@page
def add_update(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    form = UpdateForm(request.POST, prefix=note_id)
    if form.is_valid():
        given = form.cleaned_data
        done = form.attempt(
            lambda: services.add_update(request.caller, page_id, note_id, given, now=utc_now())
        )
        if done is not None:
            messages.success(request, "The update is on the page.")
            return redirect("status_page", page_id)
    return _detail(request, found, update_forms={note_id: form})


@require_POST
@page
def delete_note(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    try:
        services.delete_note(request.caller, page_id, note_id)
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        messages.success(request, "The note is deleted.")
    return redirect("status_page", page_id)


def _detail(
    request: PageRequest,
    found: StatusPage,
    *,
    note_form: NoteForm | None = None,
    update_forms: dict[str, UpdateForm] | None = None,
    logo_form: LogoForm | None = None,
) -> HttpResponse:
    told = list(selectors.list_notes(found).order_by("-pk")[:NOTES])
    given: dict[str, Any] = dict(update_forms or {})
    shown = [
        (note, None if note.resolved_at else given.get(note.public_id) or UpdateForm(prefix=note.public_id))
        for note in told
    ]
    refused = any(form is not None and form.errors for form in (note_form, logo_form, *given.values()))
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
        status=422 if refused else 200,
    )
