"""The base of every admin page: bounded lists, and related rows below a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.forms import Media
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from core.staff.filters import media_of
from core.staff.listing import MOST_LISTED, CappedPaginator, StaffChangeList, describe, is_capped, search

M = TypeVar("M", bound=Model)

_LOOKUPS = ("exact", "isempty", "isnull", "id", "pk")  # suffixes, in the order they are removed


@dataclass(frozen=True, slots=True)
class Section:
    """Some related rows as text. `more` is the URL of the list of all of them."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
    more: str = ""


class StaffAdmin(admin.ModelAdmin[M]):
    """Searches `search_fields` by their beginnings (`core.staff.listing.search`). Lists are sorted by key, the newest
    first, and by other columns only if `sortable_by` has them.
    """

    paginator = CappedPaginator
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count every row for every choice of every filter
    ordering = ("-pk",)
    sortable_by = ()
    change_form_template = "staff/change_form.html"

    @property
    def search_help_text(self) -> str:  # type: ignore[override]
        return describe(tuple(self.search_fields))

    @property
    def media(self) -> Media:
        return super().media + Media(css={"all": ["pulsekeeper/staff.css"]}) + media_of(self.list_filter)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return StaffChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        term, fields = search_term.strip(), tuple(self.get_search_fields(request))
        return (search(queryset, fields, term) if term and fields else queryset), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow lookups of `list_filter` and of keys: others could be used to guess values that no page shows."""
        path = lookup
        for end in _LOOKUPS:
            path = path.removesuffix(f"__{end}")
        offered = {_name_of(each) for each in self.list_filter} | {self.opts.pk.name}
        offered |= {each.name for each in self.opts.fields if each.is_relation}
        return path in offered

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any) -> HttpResponse | None:
        if request.POST.get("select_across") == "1" and is_capped(queryset):
            text = f"More than {MOST_LISTED:,} rows are selected: search or filter for fewer. Nothing was done."
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset, *args)

    def has_act_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run actions, on models that no form changes."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.delete_{self.opts.model_name}")

    def sections(self, request: HttpRequest, row: M) -> Sequence[Section]:
        """Return the related rows below the row's own page, limited to what fits a page."""
        return ()

    def render_change_form(
        self,
        request: HttpRequest,
        context: Any,
        add: bool = False,  # noqa: FBT001, FBT002  (Django's)
        change: bool = False,  # noqa: FBT001, FBT002
        form_url: str = "",
        obj: M | None = None,
    ) -> HttpResponse:
        if obj is not None:
            actions = {
                name: action[2]
                for name, action in self.get_actions(request).items()
                if action is not None and name != "delete_selected"
            }
            context |= {"sections": self.sections(request, obj), "row_actions": actions}
        return super().render_change_form(request, context, add, change, form_url, obj)


def _name_of(list_filter: Any) -> str:
    """Return the first part of a filter's query parameters."""
    if isinstance(list_filter, tuple | list):
        return str(list_filter[0])
    return list_filter if isinstance(list_filter, str) else str(list_filter.parameter_name)


class ReadOnlyAdmin(StaffAdmin[M]):
    """Shows rows without changing them: services do that."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


def list_of(model: type[Model], **filters: Any) -> str:
    """Return the URL of the filtered list of a model's rows."""
    return f"{reverse(f'admin:{model._meta.app_label}_{model._meta.model_name}_changelist')}?{urlencode(filters)}"
