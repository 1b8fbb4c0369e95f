"""The forms of status pages, their notes and their logos."""

from __future__ import annotations

from typing import Any

from django import forms

from core.forms import ServiceForm
from dashboard.choosing import Choices, MonitorsField, ProjectField, monitor_choices, project_choices
from dashboard.once import OnceForm
from projects.access import Caller
from statuspages.logos import MAX_BYTES
from statuspages.models import NoteUpdate, PageMonitor, StatusPage
from statuspages.serializers import MAX_TEXT

THEME_NAMES = {
    StatusPage.Theme.AUTO: "Follow the reader's system",
    StatusPage.Theme.LIGHT: "Light",
    StatusPage.Theme.DARK: "Dark",
}
_PLAIN = ("name", "slug", "description", "published", "theme", "show_window_names")


class _PageForm(ServiceForm):
    name = forms.CharField(max_length=200, help_text="The heading of the page.")
    slug = forms.CharField(
        max_length=64, label="Address", help_text="The last part of the URL: /status/… (a-z, 0-9 and -)."
    )
    description = forms.CharField(max_length=MAX_TEXT, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    published = forms.BooleanField(
        required=False, initial=True, label="Published", help_text="Unpublished pages are not visible."
    )
    theme = forms.ChoiceField(
        label="Colours",
        choices=[(theme.value, name) for theme, name in THEME_NAMES.items()],
        widget=forms.RadioSelect,
        initial=StatusPage.Theme.AUTO.value,
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
        help_text="For example status.example.com, if your operator serves it.",
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

    def __init__(self, data: Any = None, *, caller: Caller, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.monitors: Choices = monitor_choices(caller)
        self.fields["add"] = MonitorsField(
            monitors=self.monitors,
            label="Monitors to show",
            help_text="You can change their public names later.",
        )
        self.fields["add_to"] = forms.CharField(
            max_length=200, required=False, label="Heading", help_text="Empty: no heading."
        )

    def _given(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        return {name: cleaned[name] for name in _PLAIN} | {
            "accent": cleaned["accent"] or None,
            "custom_domain": cleaned["custom_domain"] or None,
        }

    def _added(self) -> list[dict[str, str]]:
        """Return the added monitors, named without their project."""
        names = dict(self.monitors)
        return [{"monitor_id": one, "name": names[one].partition(" · ")[0][:200]} for one in self.cleaned_data["add"]]

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of monitors beside the selection."""
        if field is not None and field.startswith("groups"):
            field, reason = "add", reason.partition(": ")[2]
        super().refuse(field, reason)


class NewPageForm(_PageForm, OnceForm):
    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data, caller=caller)
        self.fields["project_id"] = ProjectField(
            projects=project_choices(caller),
            none="None (personal)",
            label="Project",
            help_text="Members of the project can change the page. It shows the project's monitors.",
        )

    def given(self) -> dict[str, Any]:
        """Return the body for the service."""
        given = self._given() | {"project_id": self.cleaned_data["project_id"]}
        if self.cleaned_data["password"]:
            given["password"] = self.cleaned_data["password"]
        if self.cleaned_data["add"]:
            given["groups"] = [{"name": self.cleaned_data["add_to"], "monitors": self._added()}]
        return given


class EditPageForm(_PageForm):
    """A page with a row per shown monitor: public name, heading, position and a checkbox to remove it."""

    remove_password = forms.BooleanField(required=False, label="Remove the password")

    def __init__(self, data: Any = None, *, caller: Caller, page: StatusPage) -> None:
        initial = {name: getattr(page, name) for name in _PLAIN}
        initial |= {"accent": page.accent or "", "custom_domain": page.custom_domain or ""}
        super().__init__(data, caller=caller, initial=initial)
        self.page = page
        self.shown: list[tuple[str, PageMonitor]] = [
            (group.name, item) for group in page.groups.all() for item in group.monitors.all()
        ]
        there = {item.monitor.public_id for _, item in self.shown}
        adding = self.fields["add"]
        assert isinstance(adding, MonitorsField)
        adding.choices = [choice for choice in self.monitors if choice[0] not in there]
        adding.label = "Monitors to add"
        self.fields["password"].help_text = (
            "Empty: keep the current password." if page.password_hash else "Required to read the page."
        )
        if not page.password_hash:
            del self.fields["remove_password"]
        for place, (heading, item) in enumerate(self.shown, start=1):
            key = item.monitor.public_id
            label = f"of {item.monitor.name}"
            self.fields[f"name-{key}"] = forms.CharField(max_length=200, initial=item.name, label=f"Name {label}")
            self.fields[f"group-{key}"] = forms.CharField(
                max_length=200, required=False, initial=heading, label=f"Heading {label}"
            )
            self.fields[f"place-{key}"] = forms.IntegerField(
                min_value=0, max_value=100_000, initial=place, label=f"Position {label}"
            )
            self.fields[f"gone-{key}"] = forms.BooleanField(required=False, label=f"Remove {item.monitor.name}")

    def rows(self) -> list[dict[str, Any]]:
        """Return the monitors with their fields, in the order of the table's columns."""
        columns = {"name": "Name on the page", "group": "Heading", "place": "Position", "gone": "Remove"}
        return [
            {
                "monitor": item.monitor,
                "fields": [
                    {"column": title, "bound": self[f"{part}-{item.monitor.public_id}"]}
                    for part, title in columns.items()
                ],
            }
            for _, item in self.shown
        ]

    def given(self) -> dict[str, Any]:
        """Return the body for the service. Groups are ordered by their first monitor."""
        cleaned = self.cleaned_data
        given = self._given()
        if cleaned["password"]:
            given["password"] = cleaned["password"]
        elif cleaned.get("remove_password"):
            given["password"] = None
        kept = []
        for _, item in self.shown:
            key = item.monitor.public_id
            if not cleaned[f"gone-{key}"]:
                shown = {"monitor_id": key, "name": cleaned[f"name-{key}"]}
                kept.append((cleaned[f"place-{key}"], cleaned[f"group-{key}"], shown))
        groups: dict[str, list[dict[str, str]]] = {}
        for _, heading, shown in sorted(kept, key=lambda one: one[0]):
            groups.setdefault(heading, []).append(shown)
        if cleaned["add"]:
            groups.setdefault(cleaned["add_to"], []).extend(self._added())
        return given | {"groups": [{"name": name, "monitors": items} for name, items in groups.items()]}


class UpdateForm(ServiceForm):
    status = forms.ChoiceField(choices=NoteUpdate.Status.choices)
    text = forms.CharField(max_length=MAX_TEXT, label="Text", widget=forms.Textarea(attrs={"rows": 3}))


class NoteForm(OnceForm):
    title = forms.CharField(max_length=200)
    status = forms.ChoiceField(choices=NoteUpdate.Status.choices)
    text = forms.CharField(
        max_length=MAX_TEXT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Published at once and sent to subscribers.",
    )


class LogoForm(ServiceForm):
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
