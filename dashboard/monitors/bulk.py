"""Change settings of the selected monitors: the form, a preview of what changes where, and the undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.safestring import SafeString

from alerts.models import AlertChannel
from alerts.selectors import list_channels
from alerts.services import choose_monitors
from core.api.converters import is_public_id
from core.errors import ApiError, ValidationFailed
from core.forms import conditional
from core.text import counted
from dashboard.forms import (
    ChosenField,
    CommasField,
    LongChoices,
    PageForm,
    Picker,
    PlainRenderer,
    choices_of,
    project_choices,
)
from dashboard.monitors.forms import form_field
from dashboard.monitors.tags import offered
from dashboard.pages import PageRequest, action, count_request, page, render_page
from dashboard.security_log import change_in_words
from locations.selectors import usable_by
from monitors import bulk_edits, types
from monitors.bulk_edits import Change, Outcome, Planned
from monitors.dependencies import FIELD, possible_parents
from monitors.models import BulkEdit, Monitor
from monitors.selectors import list_monitors, named, shown_id
from monitors.types.tags import settle_tags
from projects.access import Caller, writable

MAX_SELECTED = 5_000
"""The page contains their ids."""
MAX_NAMED = 100
"""Number of monitors that the preview names in each list."""
MAX_COMPLAINTS = 20
KEEP, NONE = "", "none"
TIMING = ("interval_sec", "timeout_ms", "slow_ms", "fail_threshold", "recover_threshold", "confirmation_sec", "quorum")
SWITCHES = ("check_ssl", "check_domain")
_SWITCH = [(KEEP, "Keep"), ("on", "On"), ("off", "Off")]


class BulkForm(PageForm):
    """What to change. Empty fields keep the settings of each monitor."""

    default_renderer = PlainRenderer
    monitors = forms.CharField(widget=forms.HiddenInput, max_length=40 * MAX_SELECTED)
    next = forms.CharField(widget=forms.HiddenInput, required=False)
    add_tags = CommasField(label="Add tags", required=False, help_text="Separated by commas.")
    remove_tags = CommasField(label="Remove tags", required=False, help_text="Separated by commas.")
    replace_tags = forms.BooleanField(
        label="Replace all tags", required=False, help_text="Only the tags to add remain; without any, none."
    )
    add_parents = conditional(
        ChosenField(
            label="Depend on",
            widget=Picker,
            help_text="While one of these is down, alerts of the selected monitors are held.",
        )
    )
    replace_parents = forms.BooleanField(
        label="Replace all dependencies", required=False, help_text="Only these remain; without any, none."
    )

    def __init__(self, data: QueryDict | None = None, *, caller: Caller, initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        self.caller = caller
        settings = types.settings()
        for name in TIMING:
            self.fields[name] = form_field(settings[name])
            self.fields[name].widget.attrs["placeholder"] = "keep"
            self.fields[name].help_text = ""
        for name in SWITCHES:
            self.fields[name] = forms.ChoiceField(label=settings[name].label, choices=_SWITCH, required=False)
        projects = [(KEEP, "Keep"), (NONE, "None: personal"), *project_choices(caller)]
        self.fields["project_id"] = conditional(
            forms.ChoiceField(
                label="Project",
                choices=projects,
                required=False,
                help_text="Another owner's project gets monitors without header values and request bodies.",
            )
        )
        found = [(one.public_id, one.title) for one in usable_by(caller).order_by("pk")]
        choices = {"locations": ("Check from", found)}
        chosen = writable(caller, list_channels(caller).prefetch_related(None))
        chosen = chosen.filter(scope=AlertChannel.Scope.CHOSEN).order_by("name")
        channels = [(one.public_id, one.name) for one in chosen]
        choices |= {"add_channels": ("Notify", channels), "remove_channels": ("Do not notify", channels)}
        self.listed = [name for name, (_, listed) in choices.items() if listed and name != "locations"]
        """The fields of channels that have choices."""
        for name, (label, listed) in choices.items():
            self.fields[name] = forms.MultipleChoiceField(
                label=label, choices=listed, required=False, widget=forms.CheckboxSelectMultiple
            )
        if len(found) < 2:
            del self.fields["locations"], self.fields["quorum"]
        for name in ("add_tags", "remove_tags"):
            self.fields[name].widget.attrs |= {"list": "tag-names", "autocomplete": "off"}
        self.fields["add_parents"].choices = self._possible_parents  # type: ignore[attr-defined]

    def _possible_parents(self) -> LongChoices:
        """Return the monitors that all selected ones can depend on."""
        found = dict(self._selected(self["monitors"].value() or "").values_list("pk", "owner"))
        visible = list_monitors(self.caller)
        return LongChoices(
            choices_of(self.caller, possible_parents(visible, owners=set(found.values()), children=found))
        )

    def clean(self) -> None:
        if not self.errors and not (self.given() or self.channels() or self._lists):
            self.add_error(None, "Fill in at least one field.")
        for name in ("add_tags", "remove_tags"):
            try:
                settle_tags(self.cleaned_data.get(name, ()))
            except ValidationFailed as error:
                self.add_error(name, error.reason.partition(": ")[2].capitalize())

    @property
    def _lists(self) -> bool:
        names = ("add_tags", "remove_tags", "replace_tags", "add_parents", "replace_parents")
        return any(self.cleaned_data.get(name) for name in names)

    def given(self) -> dict[str, Any]:
        """Return the fields of a PATCH."""
        sent = self.cleaned_data
        given = {name: sent[name] for name in TIMING if sent.get(name) is not None}
        given |= {name: sent[name] == "on" for name in SWITCHES if sent.get(name)}
        if sent.get("project_id"):
            given["project_id"] = None if sent["project_id"] == NONE else sent["project_id"]
        if sent.get("locations"):
            given["locations"] = sent["locations"]
        return given

    def change(self) -> Change:
        sent, given = self.cleaned_data, self.given()
        if sent["replace_tags"]:
            given["tags"] = []
        if sent["replace_parents"]:
            given[FIELD] = []
        return Change(
            given=given,
            add_tags=settle_tags(sent["add_tags"]),
            remove_tags=settle_tags(sent["remove_tags"]),
            add_parents=[public_id for public_id in sent["add_parents"] if is_public_id(public_id)],
        )

    def refuse(self, field: str | None, reason: str) -> None:
        """Put the error of a parent beside the list of parents."""
        if field is not None and field.startswith(FIELD):
            field, reason = "add_parents", reason.removeprefix(f"{field}: ")
        super().refuse(field, reason)

    def channels(self) -> dict[str, bool]:
        """Return the channels to change, by id: whether they shall choose the monitors."""
        removed = dict.fromkeys(self.cleaned_data.get("remove_channels", ()), False)
        return removed | dict.fromkeys(self.cleaned_data.get("add_channels", ()), True)

    def selected(self) -> list[int]:
        """Return the keys of the selected monitors that the caller can still change."""
        return list(self._selected(self.cleaned_data["monitors"]).order_by("pk").values_list("pk", flat=True))

    def _selected(self, text: str) -> QuerySet[Monitor]:
        ids = [public_id for public_id in text.split(",") if is_public_id(public_id)]
        return writable(self.caller, Monitor.objects.filter(named(ids[:MAX_SELECTED])))

    def hidden(self) -> SafeString:
        """Return all fields as hidden inputs."""
        return SafeString("".join(field.as_hidden() for field in self))


class Shown(NamedTuple):
    """A monitor in the preview, with its changes: labels and values as HTML."""

    planned: Planned
    changes: Sequence[tuple[str, str]]


def show_form(request: PageRequest, public_ids: Sequence[str], *, back: str) -> HttpResponse:
    """Show the form for these monitors."""
    form = BulkForm(caller=request.caller, initial={"monitors": ",".join(public_ids), "next": back})
    return _form(request, form, count=len(public_ids))


@action
def edit(request: PageRequest) -> HttpResponse:
    """Preview the change, or make it with `step=apply`, or with `step=form` return to the form."""
    form, step = BulkForm(request.POST, caller=request.caller), request.POST.get("step")
    count = len(request.POST.get("monitors", "").split(","))
    if step == "form":
        form.is_valid()
        return _form(request, form, count=count)

    def prepare() -> list[Planned]:
        with bulk_edits.editing(request.caller):
            return bulk_edits.plan(request.caller, form.selected(), form.change())

    planned = form.save(request, prepare, limit="manifest")
    if planned is None:
        return _form(request, form, count=count)
    if step != "apply":
        return _preview(request, form, planned)
    with bulk_edits.editing(request.caller):
        found = bulk_edits.start_edit(request.caller, now=request.now)
        outcomes = bulk_edits.run(request.caller, planned, form.change(), now=request.now, edit=found)
        complaints = [*_change_channels(request, found, form.channels(), [one.key for one in planned])]
    _report(request, outcomes, complaints, "Changed")
    return _to_edit(found.public_id, back=_back(form["next"].value()))


@page
def edited(request: PageRequest, edit_id: str) -> HttpResponse:
    """Show an edit, and the button that undoes it."""
    found = bulk_edits.get_edit(request.caller, edit_id, now=request.now)
    columns = [f"monitor__{name}" for name in ("public_id", "name", "type", "owner", "project")]
    items = bulk_edits.items_of(request.caller, found).select_related("monitor").only(*columns)
    return render_page(
        request,
        "monitors/bulk_done",
        edit=found,
        back=_back(request.GET.get("next")),
        until=found.created_at + bulk_edits.UNDO_TIME,
        shown=[
            (shown_id(item.monitor, request.caller), item.monitor.name)
            for item in items.order_by("monitor__name")[:MAX_NAMED]
        ],
        count=items.count(),
        can_undo=bool(found.channels) or items.exists(),
    )


@action
def undo(request: PageRequest, edit_id: str) -> HttpResponse:
    """Undo an edit. Monitors that were changed since stay, each with a message."""
    count_request(request, "manifest")
    found = bulk_edits.get_edit(request.caller, edit_id, now=request.now)
    with bulk_edits.editing(request.caller):
        complaints = [*_restore_channels(request, found)]
        outcomes = bulk_edits.undo(request.caller, found, now=request.now)
    _report(request, outcomes, complaints, "Restored")
    return _to_edit(edit_id, back=_back(request.POST.get("next")))


def _form(request: PageRequest, form: BulkForm, *, count: int) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.is_bound and form.errors else HTTPStatus.OK
    recent = BulkEdit.objects.filter(user=request.caller.user, created_at__gt=request.now - bulk_edits.UNDO_TIME)
    return render_page(
        request,
        "monitors/bulk_form",
        status=status,
        form=form,
        count=count,
        back=_back(form["next"].value()),
        timing=[form[name] for name in TIMING if name in form.fields],
        switches=[form[name] for name in SWITCHES],
        channels=[form[name] for name in form.listed],
        offered_tags=offered(request.caller),
        recent=recent.order_by("-pk"),
    )


def _preview(request: PageRequest, form: BulkForm, planned: Sequence[Planned]) -> HttpResponse:
    names = {location.public_id: location.title for location in usable_by(request.caller)}
    names |= dict(project_choices(request.caller))
    changed = [one for one in planned if one.error is None and one.changes]
    failed = [one for one in planned if one.error is not None]
    channels = dict(list_channels(request.caller).prefetch_related(None).values_list("public_id", "name"))
    return render_page(
        request,
        "monitors/bulk_preview",
        form=form,
        back=_back(form["next"].value()),
        changed=[Shown(one, _in_words(one, names)) for one in changed[:MAX_NAMED]],
        changed_count=len(changed),
        further=len(changed[MAX_NAMED:]),
        failed=[(one, _sentence(one.error)) for one in failed[:MAX_NAMED]],
        failed_count=len(failed),
        further_failed=len(failed[MAX_NAMED:]),
        unchanged_count=len(planned) - len(changed) - len(failed),
        channels=[(channels[key], adds) for key, adds in form.channels().items() if key in channels],
        total=len(planned),
    )


def _in_words(planned: Planned, names: Mapping[str, str]) -> list[tuple[str, str]]:
    return [change_in_words(change, names) for change in planned.changes]


def _back(given: str | None) -> str:
    """Return the address of the list with its filters."""
    return given if given is not None and given.startswith("/monitors") else reverse("monitors")


def _to_edit(edit_id: str, *, back: str) -> HttpResponse:
    return redirect(f"{reverse('monitors_edited', args=[edit_id])}?{urlencode({'next': back})}")


def _change_channels(
    request: PageRequest, found: BulkEdit, channels: Mapping[str, bool], keys: Sequence[int]
) -> Iterator[str]:
    """Change which channels choose the monitors, and yield what was refused. Each channel is one transaction."""
    for public_id, adds in channels.items():
        try:
            with transaction.atomic():
                chosen = choose_monitors(request.caller, public_id, **{"add" if adds else "remove": keys})
                if chosen.added or chosen.removed:
                    found.channels = [
                        *found.channels, {"id": public_id, "added": chosen.added, "removed": chosen.removed}
                    ]  # fmt: skip
                    found.save(update_fields=["channels"])
        except ApiError as error:
            yield error.reason.removeprefix("channels: ")
        else:
            verb = "now notifies of" if adds else "no longer notifies of"
            if count := len(chosen.added) + len(chosen.removed):
                messages.success(request, f"{chosen.name} {verb} {counted(count, 'monitor')}.")
            if chosen.refused:
                yield f"{chosen.name} cannot choose {counted(chosen.refused, 'monitor')} outside of its project."


def _restore_channels(request: PageRequest, found: BulkEdit) -> Iterator[str]:
    """Undo the changes of channels, and yield what was refused."""
    for each in list(found.channels):
        try:
            with transaction.atomic():
                choose_monitors(request.caller, each["id"], add=each["removed"], remove=each["added"])
                found.channels = [other for other in found.channels if other != each]
                found.save(update_fields=["channels"])
        except ApiError as error:
            yield f"An alert channel: {error.reason.removeprefix('channels: ')}"


def _report(request: PageRequest, outcomes: Sequence[Outcome], complaints: Sequence[str], past: str) -> None:
    """Show messages: the number of changed monitors, and each that was refused, as far as there is room."""
    done = sum(one.is_changed for one in outcomes)
    refused = [one for one in outcomes if one.error is not None]
    if done or not (refused or complaints):
        messages.success(request, f"{past} {counted(done, 'monitor')}.")
    lines = [*complaints, *(f"{one.name} unchanged: {_sentence(one.error)}" for one in refused)]
    for line in lines[:MAX_COMPLAINTS]:
        messages.warning(request, line)
    if further := Counter(_sentence(one.error) for one in refused[max(0, MAX_COMPLAINTS - len(complaints)) :]):
        for reason, count in further.most_common(MAX_COMPLAINTS):
            messages.warning(request, f"{counted(count, 'more monitor')} unchanged: {reason}")


def _sentence(error: ApiError | None) -> str:
    """Return the reason, with the label of a setting instead of its name in the API."""
    if error is None:
        return ""
    if isinstance(error, ValidationFailed) and error.field is not None:
        name = error.field.partition("[")[0]
        setting = types.settings().get(name)
        label = "Dependencies" if name == FIELD else name if setting is None else setting.label
        return f"{label}: {error.reason.removeprefix(f'{error.field}: ')}"
    return error.reason or error.code
