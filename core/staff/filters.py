"""Filters of lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AutocompleteSelect
from django.db.models import QuerySet
from django.forms import Media, ModelChoiceField
from django.http import HttpRequest

# Query parameters of the position in the list, which a new filter resets.
_RESET = ("p", "all")


class AutocompleteFilter(admin.FieldListFilter):
    """Filters by a foreign key with an autocomplete field: Django's filter would list all rows."""

    template = "staff/autocomplete_filter.html"

    def __init__(
        self, field: Any, request: HttpRequest, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        self.lookup = f"{field_path}__{field.target_field.name}__exact"
        super().__init__(field, request, params, model, model_admin, field_path)
        site = model_admin.admin_site
        self._field, self._site = field, site
        target = site._registry.get(field.remote_field.model)
        self._may = target is not None and target.has_view_permission(request)

    def expected_parameters(self) -> list[str | None]:
        return [self.lookup]

    def has_output(self) -> bool:
        return self._may

    @property
    def value(self) -> Any:
        given = self.used_parameters.get(self.lookup)
        return given[-1] if isinstance(given, list) else given

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return all rows if none was selected."""
        return (super().queryset(request, queryset) if self.value else None) or queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield one choice: the context of the template's form."""
        widget = AutocompleteSelect(self._field, self._site, attrs={"data-placeholder": "All"})
        rows = self._field.remote_field.model._default_manager.all()
        widget.choices = ModelChoiceField(rows, required=False).choices  # the widget reads the selected row from it
        yield {
            "select": widget.render(self.lookup, self.value, {"id": f"filter-{self.field_path}"}),
            "id": f"filter-{self.field_path}",
            "kept": [
                (name, value)
                for name, values in changelist.filter_params.items()
                if name != self.lookup and name not in _RESET
                for value in (values if isinstance(values, list) else [values])
            ],
            "without": changelist.get_query_string(remove=[self.lookup]),
            "selected": bool(self.value),
        }


def media_of(list_filter: Any) -> Media:
    """Return the media of Django's autocomplete widget, if a filter needs it."""
    for each in list_filter:
        if isinstance(each, tuple | list) and each[1] is AutocompleteFilter:
            return AutocompleteSelect(None, None).media  # type: ignore[arg-type]
    return Media()
