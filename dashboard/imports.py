"""Import monitors from the export of another product: upload, preview, choose, import, undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect

from alerts.transports import KINDS
from checks.evidence import shown_address
from core.errors import ApiError, NotFound
from core.forms import conditional
from core.templatetags.pulsekeeper import duration
from core.text import counted
from dashboard.forms import ChosenField, MultilineField, PageForm, project_choices
from dashboard.pages import PageRequest, action, count_request, errors_as_messages, page, render_page
from manifests import uploads
from manifests.models import LIFETIME, Upload
from monitors import types
from projects.access import Caller
from pulsekeeper.importers.mapped import Imported, Note, Outcome
from pulsekeeper.importers.sources import SOURCES
from pulsekeeper.manifest.changes import MAX_BODY

TITLES = {
    "uptime-kuma": "Uptime Kuma",
    "healthchecks": "Healthchecks",
    "uptimerobot": "UptimeRobot",
    "gatus": "Gatus",
}
FILES = {
    "uptime-kuma": "the backup of version 1 (Settings, Backup, Export), or the list of monitors of version 2 as JSON",
    "healthchecks": "the response of /api/v3/checks/",
    "uptimerobot": "the response of GET /monitors (v3) or getMonitors (v2)",
    "gatus": "its configuration as YAML",
}
GROUPS = "groups"
MAX_TEXT = 200_000  # bytes; the settings limit the fields of a form


def _limited(size: int, message: str) -> dict[str, Any]:
    return {"data-max-bytes": size, "data-too-large": message}


class UploadForm(PageForm):
    source = forms.ChoiceField(
        label="Product",
        choices=[(name, f"{TITLES[name]}: {FILES[name]}") for name in SOURCES],
        widget=forms.RadioSelect,
        error_messages={"required": "Choose the product."},
    )
    file = conditional(
        forms.FileField(
            allow_empty_file=True,
            help_text="Up to 1 MiB.",
            widget=forms.FileInput(attrs=_limited(MAX_BODY, "Larger than 1 MiB: use the command pulsekeeper import.")),
        )
    )
    text = conditional(
        MultilineField(
            label="Or paste the text",
            strip=False,
            help_text="Up to 200 KB; upload longer exports as a file.",
            widget=forms.Textarea(
                attrs={"rows": 6, "spellcheck": "false", "autocomplete": "off", "class": "code"}
                | _limited(MAX_TEXT, "Longer than 200 KB: upload it as a file.")
            ),
        )
    )

    def __init__(self, data: Any, files: Any, *, caller: Caller) -> None:
        super().__init__(data, files, initial={"project_id": GROUPS})
        choices = [(GROUPS, "Groups become projects"), ("", "None (personal)"), *project_choices(caller)]
        self.fields["project_id"] = conditional(forms.ChoiceField(choices=choices, label="Project"))

    def clean(self) -> None:
        if bool(self.cleaned_data.get("file")) == bool(self.cleaned_data.get("text")):
            self.add_error("file", "Choose a file or paste its text, one of both.")

    @property
    def content(self) -> bytes:
        file, text = self.cleaned_data["file"], self.cleaned_data["text"]
        content: bytes = file.read() if file else text.encode()
        return content

    @property
    def place(self) -> dict[str, Any]:
        chosen = self.cleaned_data["project_id"]
        return {} if chosen == GROUPS else {"project_id": chosen or None}


class ChoiceForm(PageForm):
    """The chosen monitors and alert channels, by their positions in the export."""

    monitors = ChosenField(coerce=int, error_messages={"required": "Select at least one monitor."})
    channels = ChosenField(coerce=int, required=False)


@dataclass(frozen=True, slots=True)
class Row:
    """An entry of the preview. `can_choose`: it would be created, if the plan has room, or select new monitors."""

    index: int
    imported: Imported
    details: str
    can_choose: bool
    is_chosen: bool


@page
def new(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = UploadForm(request.POST or None, request.FILES or None, caller=caller)

    def store() -> Upload:
        source = form.cleaned_data["source"]
        return uploads.upload(caller, source=source, data=form.content, place=form.place, now=request.now)

    found = form.save(request, store, limit="manifest")
    if found is not None:
        return redirect("import", found.public_id)
    return render_page(request, "imports/new", form=form)


@page
def show(request: PageRequest, import_id: str) -> HttpResponse:
    """Show the preview; a POST imports the chosen monitors. After the import, show its result."""
    found = uploads.get_upload(request.caller, import_id, now=request.now)
    if found.imported_at is None:
        form = ChoiceForm(request.POST or None)

        def run() -> Upload:
            given = form.cleaned_data
            return uploads.run(
                request.caller, import_id, set(given["monitors"]), set(given["channels"]), now=request.now
            )

        if form.save(request, run, limit="manifest") is None:
            return _preview(request, found, form)
    return redirect("import", import_id) if request.method == "POST" else _result(request, found)


@action
def undo(request: PageRequest, import_id: str) -> HttpResponse:
    count_request(request, "manifest")
    with errors_as_messages(request):
        uploads.undo(request.caller, import_id, now=request.now)
    return redirect("import", import_id)


def _preview(request: PageRequest, found: Upload, form: ChoiceForm) -> HttpResponse:
    rows: list[Row] = []
    channels: list[Row] = []
    problem: ApiError | None = None
    try:
        count_request(request, "manifest")
        imported = uploads.preview(request.caller, found, now=request.now)
    except NotFound:
        raise
    except ApiError as error:
        problem = error
    else:
        rows = [
            _row(index, each, _sent(form, "monitors"), details=_details(each))
            for index, each in enumerate(imported.monitors)
        ]
        channels = [
            _row(index, each, _sent(form, "channels"), details=_channel_details(each))
            for index, each in enumerate(imported.channels)
        ]
    counts = Counter(row.imported.outcome for row in rows)
    created = [row.imported for row in rows if row.imported.outcome is Outcome.CREATED]
    return render_page(
        request,
        "imports/preview",
        upload=found,
        title=TITLES[found.source],
        form=form,
        rows=rows,
        channels=channels,
        problem=problem,
        created=counts[Outcome.CREATED],
        existing=counts[Outcome.EXISTING],
        skipped=counts[Outcome.SKIPPED],
        private=sum(row.imported.is_private for row in rows),
        projects=sorted({each.project for each in created if each.project is not None}),
        repeated=_repeated(created),
    )


def _sent(form: ChoiceForm, field: str) -> set[str] | None:
    """Return what was sent, or None if nothing was."""
    return {str(value) for value in form[field].value() or ()} if form.is_bound else None


def _row(index: int, imported: Imported, sent: set[str] | None, *, details: str) -> Row:
    would_be = imported.outcome is Outcome.CREATED or (imported.channel is not None and imported.channel.monitors > 0)
    can_choose = would_be or any(note.field == "plan" for note in imported.notes)
    return Row(index, imported, details, can_choose, would_be if sent is None else str(index) in sent)


def _channel_details(imported: Imported) -> str:
    """Return kind, hint and number of new monitors of a channel, without secrets."""
    channel = imported.channel
    if channel is None:
        return ""
    return " · ".join([KINDS[channel.kind].label, channel.hint, counted(channel.monitors, "new monitor")])


def _details(imported: Imported) -> str:
    """Return type, address and interval of a monitor, without secrets."""
    monitor = imported.monitor
    if monitor is None:
        return ""
    when = f"{monitor.schedule} ({monitor.timezone})" if monitor.schedule else f"every {duration(monitor.interval_sec)}"
    parts = [types.get(monitor.type).label, shown_address(monitor.url) if monitor.url else "", when]
    return " · ".join(filter(None, parts))


def _repeated(created: Sequence[Imported]) -> list[tuple[Note, int]]:
    """Return the most frequent notes, such as about tags, with the number of their monitors."""
    return Counter(note for each in created for note in each.notes).most_common(10)


def _result(request: PageRequest, found: Upload) -> HttpResponse:
    title = TITLES[found.source]
    assert found.imported_at is not None
    if found.undone_at is not None:
        removed, kept = found.content["removed"], uploads.kept(found)
        return render_page(request, "imports/undone", upload=found, title=title, removed=removed, kept=kept)
    lists: dict[str, Any] = {outcome.value: [] for outcome in Outcome}
    outcomes = uploads.outcomes(found)
    for each in outcomes.monitors:
        lists[each.outcome].append((each, _details(each)))
    return render_page(
        request,
        "imports/done",
        upload=found,
        title=title,
        until=found.imported_at + LIFETIME,
        channels=[(each, _channel_details(each)) for each in outcomes.channels],
        **lists,
    )
