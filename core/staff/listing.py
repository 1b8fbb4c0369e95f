"""Admin lists whose cost does not grow with the table.

Django's own lists count all rows, sort by any column and search within texts: each reads a whole table.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

MOST_LISTED = 1_000
"""Rows that can be paged through. Others are found by a search or a filter."""
MOST_RELATED = 200
"""Rows of a related table that a search uses."""

_CONTAINS = "__icontains"


def is_capped(queryset: QuerySet[Any]) -> bool:
    """Return whether the list is shorter than the queryset."""
    return queryset.order_by()[: MOST_LISTED + 1].count() > MOST_LISTED


class CappedPaginator(Paginator[Any]):
    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[:MOST_LISTED].count()


class StaffChangeList(ChangeList):
    is_capped = False

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.is_capped = self.result_count >= MOST_LISTED

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


def describe(fields: tuple[str, ...]) -> str:
    """Return the help text of the search field."""
    begins = [_words(field) for field in fields if not field.endswith(_CONTAINS)]
    contains = [_words(field.removesuffix(_CONTAINS)) for field in fields if field.endswith(_CONTAINS)]
    parts = ["begins with: " + ", ".join(begins)] if begins else []
    parts += ["contains: " + ", ".join(contains)] if contains else []
    return "; ".join(parts).capitalize()


def _words(path: str) -> str:
    return path.replace("public_id", "id").replace("__", " ").replace("_", " ")
