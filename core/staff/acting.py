"""Admin actions on selected rows: a service does them, and the admin's log records them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from core.bulk_actions import BulkResult
from core.errors import ApiError

F = TypeVar("F", bound=forms.Form)

ASKED = "_asked"


def act(
    page: admin.ModelAdmin[Any],
    request: HttpRequest,
    queryset: QuerySet[Any],
    do: Callable[[list[int]], BulkResult[Any]],
    *,
    done: str,
    gone: bool = False,
    named: Callable[[Any], str] = str,
) -> BulkResult[Any] | None:
    """Call `do` with the keys of the selected rows and log it, in one transaction. Return None if the service refused.

    `done` is the participle for the message ("paused"), `gone` whether the rows are deleted, and `named` returns the
    name in the log, which outlives the row.
    """
    keys = list(queryset.values_list("pk", flat=True))
    try:
        with transaction.atomic():
            outcome = do(keys)
            _log(request, page.model, [(row.pk, named(row)) for row in outcome.done], done=done, gone=gone)
    except ApiError as error:
        page.message_user(request, f"Nothing was done: {error.reason}", messages.ERROR)
        return None
    _report(page, request, outcome, done=done, chosen=len(keys))
    return outcome


def _log(request: HttpRequest, model: type[Model], rows: Sequence[tuple[Any, str]], *, done: str, gone: bool) -> None:
    kind = ContentType.objects.get_for_model(model, for_concrete_model=False)
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=request.user.pk or 0,  # always staff, which the stubs do not know
            content_type=kind,
            object_id=str(key),
            object_repr=name[:200],
            action_flag=DELETION if gone else CHANGE,
            change_message=f"{done.capitalize()}.",
        )
        for key, name in rows
    )


def _report(
    page: admin.ModelAdmin[Any], request: HttpRequest, outcome: BulkResult[Any], *, done: str, chosen: int
) -> None:
    count, opts = len(outcome.done), page.opts
    noun = opts.verbose_name if count == 1 else opts.verbose_name_plural
    text = f"{count} {noun} {'was' if count == 1 else 'were'} {done}."
    left = dict(outcome.left)
    vanished = chosen - count - sum(left.values())
    if vanished:
        left["gone by now"] = vanished
    if left:
        reasons = "; ".join(f"{number} {'is' if number == 1 else 'are'} {why}" for why, number in left.items())
        text += f" Not changed: {reasons}."
    page.message_user(request, text, messages.SUCCESS if count else messages.WARNING)


def ask(
    page: admin.ModelAdmin[Any],
    request: HttpRequest,
    queryset: QuerySet[Any],
    form_class: type[F],
    *,
    title: str,
    button: str,
) -> F | TemplateResponse:
    """Return the valid form, or the page that asks for it, which the action returns."""
    form = form_class(request.POST if ASKED in request.POST else None)
    if form.is_bound and form.is_valid():
        return form
    context = {
        **page.admin_site.each_context(request),
        "title": title,
        "button": button,
        "form": form,
        "opts": page.opts,
        "rows": queryset,
        "action": request.POST["action"],
        "checkbox": ACTION_CHECKBOX_NAME,
        "asked": ASKED,
        "media": page.media + form.media,
    }
    return TemplateResponse(request, "staff/ask.html", context)
