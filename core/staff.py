"""The base of all admin pages: bounded lists, related rows below a row, and actions by services.

Django's own lists count all rows, sort by any column and search within texts: each reads a whole table. Only
`config.urls` loads this module: workers do not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.contrib.admin.widgets import AutocompleteSelect
from django.contrib.contenttypes.models import ContentType
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.forms import Media, ModelChoiceField
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from core.bulk import BulkResult
from core.errors import ApiError

F = TypeVar("F", bound=forms.Form)
M = TypeVar("M", bound=Model)

ASKED = "_asked"
MOST_LISTED = 1_000
"""Rows that can be paged through. Others are found by a search or a filter."""
MOST_RELATED = 200
"""Rows of a related table that a search uses."""

_CONTAINS = "__icontains"
_LOOKUPS = ("exact", "isempty", "isnull", "id", "pk")  # suffixes, in the order they are removed
_RESET = ("p", "all")  # query parameters of the position in the list, which a new filter resets


class CappedPaginator(Paginator[Any]):
    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:MOST_LISTED].count()


class StaffChangeList(ChangeList):
    @property
    def is_capped(self) -> bool:
        """Return whether the list may be shorter than the queryset."""
        return self.result_count >= MOST_LISTED

    def get_ordering_field(self, field_name: Any) -> Any:
        """Return None for columns that are not in `sortable_by`, also if the query string names them."""
        return super().get_ordering_field(field_name) if field_name in (self.sortable_by or ()) else None


def search(queryset: QuerySet[Any], fields: tuple[str, ...], term: str) -> QuerySet[Any]:
    """Return rows where one of `fields` begins with the term, or contains it if the field ends in `__icontains`."""
    found = Q(pk__in=[])
    for field in fields:
        found |= _matching(queryset.model, field, term)
    return queryset.filter(found)


def _matching(model: type[Model], field: str, term: str) -> Q:
    """Return the condition. Keys of related rows are queried first: a condition over two tables can use no index."""
    path = field.removesuffix(_CONTAINS)
    first, _, rest = path.partition("__")
    if rest:
        related: Any = model._meta.get_field(first).related_model
        inner = rest + field[len(path) :]
        keys = related._base_manager.filter(_matching(related, inner, term)).values_list("pk", flat=True)
        return Q(**{f"{first}__in": list(keys[:MOST_RELATED])})
    if field.endswith(_CONTAINS):
        return Q(**{field: term})
    # Ids and addresses are stored in lower case.
    return Q(**{f"{path}__startswith": term}) | Q(**{f"{path}__startswith": term.lower()})


class AutocompleteFilter(admin.FieldListFilter):
    """Filters by a foreign key with an autocomplete field: Django's filter would list all rows."""

    template = "staff/autocomplete_filter.html"
    field: Any

    def __init__(
        self, field: Any, request: HttpRequest, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        self.lookup = f"{field_path}__{field.target_field.name}__exact"
        super().__init__(field, request, params, model, model_admin, field_path)
        self._site = model_admin.admin_site
        target = self._site._registry.get(field.remote_field.model)
        self._may = target is not None and target.has_view_permission(request)

    def expected_parameters(self) -> list[str | None]:
        return [self.lookup]

    def has_output(self) -> bool:
        return self._may

    @property
    def value(self) -> Any:
        given = self.used_parameters.get(self.lookup)
        return given[-1] if isinstance(given, list) else given

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        return super().queryset(request, queryset) if self.value else None

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield one choice: the context of the template's form."""
        widget = AutocompleteSelect(self.field, self._site, attrs={"data-placeholder": "All"})
        rows = self.field.remote_field.model._default_manager.all()
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


@dataclass(frozen=True, slots=True)
class Section:
    """Some related rows as text. `more` is the URL of the list of all of them."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]] = ()
    more: str = ""


class StaffAdmin(admin.ModelAdmin[M]):
    """Searches `search_fields` by their beginnings (`search`). Lists are sorted by key, the newest
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
        named: dict[str, list[str]] = {"begins with": [], "contains": []}
        for field in self.search_fields:
            words = field.removesuffix(_CONTAINS).replace("public_id", "id").replace("__", " ").replace("_", " ")
            named["contains" if field.endswith(_CONTAINS) else "begins with"].append(words)
        return "; ".join(f"{how}: {', '.join(fields)}" for how, fields in named.items() if fields).capitalize()

    @property
    def media(self) -> Media:
        media = super().media + Media(css={"all": ["pulsekeeper/staff.css"]})
        if any(isinstance(each, tuple) and each[1] is AutocompleteFilter for each in self.list_filter):
            media += AutocompleteSelect(None, None).media  # type: ignore[arg-type]
        return media

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
        first = queryset.order_by()[: MOST_LISTED + 1]
        if request.POST.get("select_across") == "1" and first.count() > MOST_LISTED:
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

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if (obj := kwargs.get("obj")) is not None:
            actions = {
                name: action[2]
                for name, action in self.get_actions(request).items()
                if action is not None and name != "delete_selected"
            }
            context |= {"sections": self.sections(request, obj), "row_actions": actions}
        return super().render_change_form(request, context, *args, **kwargs)


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
    kind = ContentType.objects.get_for_model(page.model, for_concrete_model=False)
    try:
        with transaction.atomic():
            outcome = do(keys)
            LogEntry.objects.bulk_create(
                LogEntry(
                    user_id=request.user.pk or 0,  # always staff, which the stubs do not know
                    content_type=kind,
                    object_id=str(row.pk),
                    object_repr=named(row)[:200],
                    action_flag=DELETION if gone else CHANGE,
                    change_message=f"{done.capitalize()}.",
                )
                for row in outcome.done
            )
    except ApiError as error:
        page.message_user(request, f"Nothing was done: {error.reason}", messages.ERROR)
        return None
    _report(page, request, outcome, done=done, chosen=len(keys))
    return outcome


def _report(
    page: admin.ModelAdmin[Any], request: HttpRequest, outcome: BulkResult[Any], *, done: str, chosen: int
) -> None:
    count, opts = len(outcome.done), page.opts
    noun = opts.verbose_name if count == 1 else opts.verbose_name_plural
    text = f"{count} {noun} {'was' if count == 1 else 'were'} {done}."
    left = dict(outcome.left)
    vanished = chosen - count - sum(left.values())
    if vanished:
        left["already deleted"] = vanished
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
