"""Form fields to choose projects and monitors."""

from __future__ import annotations

from typing import Any

from django import forms

from monitors.selectors import list_monitors
from projects import access
from projects.access import Caller

Choices = list[tuple[str, str]]


def project_choices(caller: Caller) -> Choices:
    projects = access.accessible_projects(caller).order_by("name", "pk")
    return list(projects.values_list("public_id", "name"))


def monitor_choices(caller: Caller) -> Choices:
    """Return ids and names of the monitors, with their projects, sorted by name."""
    monitors = list_monitors(caller).select_related(None)
    rows = monitors.values_list("public_id", "name", "url", "project__name")
    found = [
        (public_id, f"{name or url or public_id}{f' · {project}' if project else ''}")
        for public_id, name, url, project in rows
    ]
    return sorted(found, key=lambda choice: choice[1].casefold())


class ProjectField(forms.ChoiceField):
    """A project id, or None for the empty choice, labelled `none`."""

    def __init__(self, *, projects: Choices, none: str, **kwargs: Any) -> None:
        super().__init__(choices=[("", none), *projects], required=False, **kwargs)

    def clean(self, value: Any) -> Any:
        return super().clean(value) or None


class _Picker(forms.CheckboxSelectMultiple):
    """Checkboxes in a scrolling list with a search field (lists.js)."""

    template_name = "dashboard/widgets/picker.html"


class MonitorsField(forms.MultipleChoiceField):
    widget = _Picker

    def __init__(self, *, monitors: Choices, **kwargs: Any) -> None:
        super().__init__(choices=monitors, required=False, **kwargs)
