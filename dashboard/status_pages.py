"""Status pages for their editors: list, settings, notes and logo."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Prefetch
from django.db.models.functions import Left
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.text import slugify

from core.db import get_or_not_found
from core.text import copy_name
from core.waiting import limit_waiting
from dashboard.deletion import Deletable, deletion
from dashboard.forms import (
    CommasField,
    MonitorsField,
    ObjectForm,
    PageForm,
    ProjectField,
    Value,
    monitor_choices,
    project_choices,
    selected,
)
from dashboard.pages import (
    PageRequest,
    action,
    button,
    count_request,
    done,
    errors_as_messages,
    page,
    render_page,
)
from monitors.models import Monitor
from monitors.selectors import show_to
from projects.access import Caller
from statuspages import domains, selectors, services
from statuspages.logos import MAX_BYTES
from statuspages.models import NoteUpdate, PageGroup, PageMonitor, StatusPage
from statuspages.serializers import MAX_TEXT

NOTES = 20
MAX_NAME = 200
UPDATES, NOTE_CHARS = 5, 1_000
"""Newest updates of each note on the page for editors, and characters of each. The public page has the rest."""
MONITORS = 100
"""Names of shown monitors on the page for editors, and rows of its form."""
_NULLABLE = ("accent", "custom_domain")
_PLAIN = ("name", "slug", "description", "published", "theme", "show_window_names", "show_locations")


class StatusPageForm(ObjectForm):
    """The form of the page `stored`, with rows of fields for shown monitors, or of a new one.

    A copy of `source` stays in its project and shows the same monitors.
    The rows are those of `data`, or some from the position `first` on. Monitors without a row are not changed.
    """

    secret_fields = ("password",)
    name = forms.CharField(max_length=MAX_NAME, help_text="The heading of the page.")
    slug = forms.CharField(
        max_length=64,
        label="Address",
        help_text="The last part of the URL: /status/… (a-z, 0-9 and -). It works with a custom domain too.",
    )
    description = forms.CharField(max_length=MAX_TEXT, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    published = forms.BooleanField(
        required=False, initial=True, label="Published", help_text="Unpublished pages are not visible."
    )
    theme = forms.ChoiceField(
        label="Colours",
        choices=[("auto", "Follow the reader's system"), ("light", "Light"), ("dark", "Dark")],
        widget=forms.RadioSelect,
        initial="auto",
    )
    accent = forms.CharField(
        max_length=7,
        required=False,
        label="Accent colour",
        help_text="For example #2f6fed. It must be visible on light and dark. Empty: the default.",
    )
    custom_domain = forms.CharField(
        max_length=253,
        required=False,
        label="Custom domain",
        help_text="For example status.example.com, if your operator serves it. "
        "After saving, the page shows the DNS records to create and the configuration of the proxy.",
    )
    password = forms.CharField(
        min_length=8,
        max_length=200,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Required to read the page. Empty: the page is public.",
    )
    show_window_names = forms.BooleanField(
        required=False,
        label="Show the names of maintenance windows",
        help_text="Otherwise they appear as “Scheduled maintenance”.",
    )
    show_locations = forms.BooleanField(
        required=False,
        label="Show the locations of monitors",
        help_text="For each monitor with several locations: their names, and what each of them sees.",
    )
    remove_password = forms.BooleanField(required=False, label="Remove the password")

    def __init__(
        self,
        data: Any = None,
        *,
        caller: Caller,
        stored: StatusPage | None = None,
        source: StatusPage | None = None,
        first: int = 1,
    ) -> None:
        base = stored or source
        initial = None if base is None else {name: getattr(base, name) for name in (*_PLAIN, *_NULLABLE)}
        super().__init__(data, stored=stored, initial=initial)
        if source is not None:
            name, slug = copy_name(source.name, limit=MAX_NAME), services.slug_of_copy(source.slug)
            self.initial.update(name=name, slug=slug, custom_domain=None)
        self.shown: list[tuple[str, PageMonitor]] = []
        if base is not None:
            self.shown = [(group.name, item) for group in base.groups.all() for item in group.monitors.all()]
        for _, item in self.shown:
            show_to(caller, item.monitor)
        self.names = dict(monitor_choices(caller))
        shown = {item.monitor.public_id for _, item in self.shown}
        self.fields["add"] = MonitorsField(
            required=False,
            choices=[choice for choice in self.names.items() if choice[0] not in shown],
            label="Monitors to show" if base is None else "Monitors to add",
            help_text="You can change their public names later.",
        )
        tag_help = "Separated by commas. Monitors that have any of them are shown under their own names."
        self.fields["add_tags"] = CommasField(label="Tags to add", required=False, empty_value="", help_text=tag_help)
        groups = [] if base is None else list(base.groups.all())
        self.tagged = {f"tags-{number}": group for number, group in enumerate(groups) if group.monitor_tags}
        """The groups that have tags, by the names of their fields."""
        for name, group in self.tagged.items():
            self.fields[name] = CommasField(
                label=f"Tags under {group.name or 'no heading'}",
                required=False,
                empty_value="",
                initial=group.monitor_tags,
                help_text=tag_help,
            )
        self.fields["add_to"] = forms.CharField(
            max_length=200, required=False, label="Heading", help_text="Empty: no heading."
        )
        if stored is None:
            self.fields["slug"].required = False
            self.fields["slug"].help_text += " Empty: derived from the name."
        if base is None:
            self.fields["project_id"] = ProjectField(
                project_choices(caller),
                help_text="Members of the project can change the page. It shows the project's monitors.",
            )
        if base is not None and base.password_hash:
            self.fields["password"].help_text = "Empty: keep the current password."
        elif stored is not None:
            self.fields["password"].help_text = "Required to read the page."
        if base is None or not base.password_hash:
            del self.fields["remove_password"]
        found = [
            (position, heading, item)
            for position, (heading, item) in enumerate(self.shown, start=1)
            if (position >= first if data is None else f"name-{item.monitor.public_id}" in data)
        ]
        found = [] if stored is None else found
        self.edited = found[:MONITORS]
        for position, heading, item in self.edited:
            self.fields |= _row_fields(item, heading=heading, position=position)

    def clean(self) -> None:
        super().clean()
        if self.cleaned_data.get("slug") or not self.cleaned_data.get("name") or "slug" in self.errors:
            return
        slug = slugify(self.cleaned_data["name"]).replace("_", "-")[:64].strip("-")
        if not slug:
            self.add_error("slug", "Enter an address: the name has no letters from a to z.")
            return
        self.cleaned_data["slug"] = slug
        assert isinstance(self.data, QueryDict)
        self.data = self.data.copy()
        self.data["slug"] = slug  # shown if another field has an error, or another page this address

    def rows(self) -> list[tuple[Monitor, list[tuple[str, forms.BoundField]]]]:
        """Return the monitors with the titles and fields of the table's columns."""
        columns = {"name": "Name on the page", "group": "Heading", "place": "Position", "gone": "Remove"}
        return [
            (item.monitor, [(title, self[f"{part}-{item.monitor.public_id}"]) for part, title in columns.items()])
            for _, _, item in self.edited
        ]

    def parts(self) -> list[tuple[int, int]]:
        """Return the first and the last position of each part of the rows, or nothing if all are shown."""
        count = len(self.shown)
        starts = range(1, count + 1, MONITORS) if count > MONITORS else ()
        return [(first, min(first + MONITORS - 1, count)) for first in starts]

    def given(self) -> dict[str, Any]:
        """Return the body for the service. Groups are ordered by their first monitor."""
        cleaned = self.cleaned_data
        given = {name: cleaned[name] for name in (*_PLAIN, "project_id") if name in cleaned}
        given |= {name: cleaned[name] or None for name in _NULLABLE}
        if cleaned["password"] or cleaned.get("remove_password"):
            given["password"] = cleaned["password"] or None
        kept = []
        for position, (heading, item) in enumerate(self.shown, start=1):
            key = item.monitor.public_id
            if f"name-{key}" not in self.fields:
                kept.append((position, heading, {"monitor_id": key, "name": item.name}))
            elif not cleaned[f"gone-{key}"]:
                shown = {"monitor_id": key, "name": cleaned[f"name-{key}"]}
                kept.append((cleaned[f"place-{key}"], cleaned[f"group-{key}"], shown))
        groups: dict[str, list[dict[str, str]]] = {}
        for _, heading, shown in sorted(kept, key=lambda one: one[0]):
            groups.setdefault(heading, []).append(shown)
        for key in cleaned["add"]:
            name = self.names[key].partition(" · ")[0]  # without the project
            groups.setdefault(cleaned["add_to"], []).append({"monitor_id": key, "name": name[:200]})
        tags: dict[str, list[str]] = {}
        for name, group in self.tagged.items():
            tags.setdefault(group.name, []).extend(cleaned[name])
        tags.setdefault(cleaned["add_to"], []).extend(cleaned["add_tags"])
        found = [
            {"name": name, "monitors": groups.get(name, []), "monitor_tags": tags.get(name, [])}
            for name in dict.fromkeys([*groups, *(name for name, chosen in tags.items() if chosen)])
        ]
        return given | {"groups": found}

    def tag_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.tagged]

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of monitors beside the selection."""
        if field is not None and field.startswith("groups"):
            field, reason = "add_tags" if "monitor_tags" in field else "add", reason.partition(": ")[2]
        super().refuse(field, reason)


def _row_fields(item: PageMonitor, *, heading: str, position: int) -> dict[str, forms.Field]:
    key, name = item.monitor.public_id, item.monitor.name[:80]
    return {
        f"name-{key}": forms.CharField(max_length=200, initial=item.name, label=f"Name of {name}"),
        f"group-{key}": forms.CharField(max_length=200, required=False, initial=heading, label=f"Heading of {name}"),
        f"place-{key}": forms.IntegerField(
            min_value=0, max_value=100_000, initial=position, label=f"Position of {name}"
        ),
        f"gone-{key}": forms.BooleanField(required=False, label=f"Remove {name}"),
    }


class UpdateForm(PageForm):
    status = forms.ChoiceField(choices=NoteUpdate.Status.choices)
    text = forms.CharField(max_length=MAX_TEXT, label="Text", widget=forms.Textarea(attrs={"rows": 3}))


class NoteForm(ObjectForm):
    title = forms.CharField(max_length=200)
    status = forms.ChoiceField(choices=NoteUpdate.Status.choices)
    text = forms.CharField(
        max_length=MAX_TEXT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Published at once and sent to subscribers.",
    )


class LogoForm(PageForm):
    logo = forms.FileField(
        label="Logo",
        help_text="PNG, JPEG, WebP or GIF, up to 1 MiB and 4 megapixels.",
        widget=forms.FileInput(attrs={"accept": "image/png,image/jpeg,image/webp,image/gif"}),
    )

    def clean_logo(self) -> bytes:
        uploaded = self.cleaned_data["logo"]
        if uploaded.size > MAX_BYTES:
            raise forms.ValidationError("The file is larger than 1 MiB.")
        return bytes(uploaded.read())


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_pages(request.caller).prefetch_related(None).order_by("name", "pk")
    shown = selectors.showable().filter(page__in=found.order_by().values("pk"))
    counts = dict(shown.order_by().values_list("page").annotate(Count("pk")))
    tags: dict[int, list[str]] = defaultdict(list)
    groups = PageGroup.objects.filter(page__in=found.order_by().values("pk"), monitor_tag_keys__isnull=False).order_by(
        "pk"
    )
    for page_id, names in groups.values_list("page", "monitor_tags"):
        tags[page_id] += names
    pages = [(one, selected(counts.get(one.pk, 0), tags[one.pk], noun="monitor")) for one in found]
    return render_page(request, "status_pages/list", pages=pages)


@page
def create(request: PageRequest) -> HttpResponse:
    """Create a page, or a copy of the page `?from=`."""
    caller = request.caller
    source = selectors.get_page(caller, request.GET["from"]) if "from" in request.GET else None
    caller.require_write(source)
    form = StatusPageForm(request.POST or None, caller=caller, source=source)

    def make() -> StatusPage:
        given = form.given()
        if source is None:
            return services.create_page(caller, given, now=request.now)
        given["project_id"] = source.project and source.project.public_id
        return services.create_page(caller, given, now=request.now, copied_from=source.public_id)

    created = form.create(request, make)
    if created is not None:
        return done(request, "Status page created.", "status_page", created.object_id)
    return render_page(request, "status_pages/new", form=form, source=source)


@page
def show(request: PageRequest, page_id: str) -> HttpResponse:
    return _detail(request, _page(request.caller, page_id))


@page
def edit(request: PageRequest, page_id: str) -> HttpResponse:
    found = selectors.get_page(request.caller, page_id)
    request.caller.require_write(found)
    first = request.GET.get("first", "")
    form = StatusPageForm(
        request.POST or None,
        caller=request.caller,
        stored=found,
        first=int(first) if first.isascii() and first.isdigit() and len(first) < 9 else 1,
    )
    if form.save(request, lambda: services.update_page(request.caller, page_id, form.given(), if_match=form.if_match)):
        return done(request, "Status page saved.", "status_page", page_id)
    return render_page(request, "status_pages/edit", form=form, page=found)


def _deletable(found: StatusPage) -> Deletable:
    """Return the page, which must have its groups and monitors, with its settings."""
    values = []
    for name in (*_PLAIN, *_NULLABLE):
        stored, label = getattr(found, name), StatusPageForm.base_fields[name].label
        values.append(Value(name, str(label or name.capitalize()), _in_words(stored), stored))
    groups = [
        [group.name, [[item.monitor.public_id, item.name] for item in group.monitors.all()]]
        for group in found.groups.all()
    ]
    names = ", ".join(name for _, items in groups for _, name in items)
    return Deletable(found, found.name, [*values, Value("groups", "Monitors", names, groups)])


def _in_words(value: Any) -> str:
    return ("Yes" if value else "No") if isinstance(value, bool) else str(value or "")


delete = deletion(
    services.delete_page,
    lambda request, page_id: _deletable(selectors.get_page(request.caller, page_id)),
    "Status page deleted.",
    "status_pages",
)
remove_logo = button(services.remove_logo, "Logo removed.", "status_page", to_first_id=True)
delete_note = button(services.delete_note, "Note deleted.", "status_page", to_first_id=True)


@action
def verify_domain(request: PageRequest, page_id: str) -> HttpResponse:
    count_request(request, "create-and-test")
    with errors_as_messages(request), limit_waiting(request.caller.account):
        verified = domains.verify(request.caller, page_id)
        problem = domains.unreachable(verified) if verified.published else "The page is not published."
        if problem is None:
            messages.success(request, f"Domain verified. {verified.url} shows this page.")
        else:
            messages.warning(request, f"Domain verified. {verified.url} does not show this page yet: {problem}")
    return redirect("status_page", page_id)


@action
def set_logo(request: PageRequest, page_id: str) -> HttpResponse:
    found = _page(request.caller, page_id)
    request.caller.require_write(found)
    form = LogoForm(request.POST, request.FILES)
    if form.save(request, lambda: services.set_logo(request.caller, page_id, form.cleaned_data["logo"]), limit="logo"):
        return done(request, "Logo saved.", "status_page", page_id)
    return _detail(request, found, invalid=form)


@action
def create_note(request: PageRequest, page_id: str) -> HttpResponse:
    found = _page(request.caller, page_id)
    request.caller.require_write(found)
    form = NoteForm(request.POST)
    if form.create(request, lambda: services.create_note(request.caller, page_id, form.cleaned_data, now=request.now)):
        return done(request, "Note published.", "status_page", page_id)
    return _detail(request, found, invalid=form)


@action
def add_update(request: PageRequest, page_id: str, note_id: str) -> HttpResponse:
    caller = request.caller
    found = _page(caller, page_id)
    caller.require_write(found)
    form = UpdateForm(request.POST, prefix=note_id)
    if form.save(request, lambda: services.add_update(caller, page_id, note_id, form.cleaned_data, now=request.now)):
        return done(request, "Update published.", "status_page", page_id)
    return _detail(request, found, invalid=form)


def _page(caller: Caller, page_id: str) -> StatusPage:
    """Return the page without its groups and monitors, which may be a thousand."""
    return get_or_not_found(selectors.list_pages(caller).prefetch_related(None), public_id=page_id)


def _detail(request: PageRequest, found: StatusPage, *, invalid: PageForm | None = None) -> HttpResponse:
    """Render the page of a status page. A form with errors replaces its empty one."""

    def shown(empty: PageForm) -> PageForm:
        return invalid if type(invalid) is type(empty) and invalid.prefix == empty.prefix else empty

    newest = NoteUpdate.objects.order_by("-pk").defer("text").annotate(start=Left("text", NOTE_CHARS + 1))[:UPDATES]
    found_notes = selectors.list_notes(found).prefetch_related(None)
    found_notes = found_notes.prefetch_related(Prefetch("updates", newest, to_attr="newest")).order_by("-pk")[:NOTES]
    notes = [(note, None if note.resolved_at else shown(UpdateForm(prefix=note.public_id))) for note in found_notes]
    monitors = selectors.showable().filter(page=found)
    groups = PageGroup.objects.filter(page=found, monitor_tag_keys__isnull=False).order_by("pk")
    first = monitors.order_by("pk").values_list("group_id", "group__name", "name")[:MONITORS]
    return render_page(
        request,
        "status_pages/detail",
        status=422 if invalid else 200,
        page=found,
        deletable=_deletable(selectors.get_page(request.caller, found.public_id)),
        subscribers=selectors.list_subscribers(found).count(),
        notes=notes,
        note_chars=NOTE_CHARS,
        monitors=monitors.count(),
        tagged=[(group.name, group.monitor_tags) for group in groups if group.monitor_tags],
        most_named=MONITORS,
        first=[(name, [item[2] for item in items]) for (_, name), items in groupby(first, key=lambda item: item[:2])],
        address_record=domains.address_record(found),
        note_form=shown(NoteForm()),
        logo_form=shown(LogoForm()),
    )
