"""URLs of the admin's pages for all registered models; tests and benchmarks/admin.py use them."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.http import urlencode


def pages_of(model: type[Model], page: Any) -> list[str]:
    """Return the URLs of the list, another order, searches with and without a match, each filter, and a row's page."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    listing = reverse(f"{name}_changelist")
    first = model._default_manager.order_by("-pk")[0]
    found = [listing, f"{listing}?o=1"]
    if page.search_fields:
        terms = ("shop", "user1", "no such thing", str(getattr(first, "public_id", first)))
        found += [f"{listing}?{urlencode({'q': term})}" for term in terms]
    for each in page.list_filter:
        field = each[0] if isinstance(each, tuple) else each
        if isinstance(each, tuple) and each[1].__name__ == "AutocompleteFilter":
            found.append(f"{listing}?{field}__id__exact={getattr(first, f'{field}_id') or 1}")
        elif isinstance(each, tuple):
            found.append(f"{listing}?{field}__isempty=1")
        elif isinstance(field, str):
            found.append(f"{listing}?{field}__exact={_value(first, field)}")
    found.append(reverse(f"{name}_change", args=[first.pk]))
    return found


def _value(row: Model, path: str) -> Any:
    found: Any = row
    for part in path.split("__"):
        found = getattr(found, part)
    if isinstance(found, Model):
        return found.pk
    return int(found) if isinstance(found, bool) else found
