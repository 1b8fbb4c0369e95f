"""The account's data as one JSON file, written while it is read, because it may be larger than the memory.

Each app with account data has a module `account_export` with a function `sections`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import import_module
from operator import attrgetter
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.db.models import QuerySet
from django.utils.module_loading import module_has_submodule
from rest_framework.serializers import BaseSerializer
from social_django.models import UserSocialAuth

import audit.services
from accounts.models import User
from accounts.serializers import AccountSerializer
from accounts.services import addresses_of, target
from audit.actions import Action
from core.clock import to_ms
from core.db import chunks

FORMAT = 1
CHUNK = 64 * 1024

Rows = Iterable[Any]
Sections = dict[str, Rows]
"""Each list of the export by its name. Iterating reads the rows, chunk by chunk."""

NOT_INCLUDED = {
    "credentials": "Passwords and tokens are stored as digests, second factors are encrypted. They cannot be shown.",
    "secrets": "Values of request headers, addresses and secrets of alert channels, passwords of status pages and "
    "tokens of connectors are encrypted or digested. They are never shown, because they would grant access.",
    "checks": "Single checks and hourly roll-ups are too many for this file. GET /v1/monitors/<id>/checks returns them "
    "while they are kept. All status changes and daily uptimes are included.",
    "subscribers": "Addresses of subscribers belong to the subscribers. What you see of them is included.",
    "projects_of_others": "Data in projects of others belongs to their owners, except what you did and wrote there.",
}


def export(user: User, *, now: datetime) -> Iterator[str]:
    """Yield pieces of a JSON object of about CHUNK characters each. Record the export in the audit log first.

    The last member is `"complete": true`: a file without it was cut off.
    """
    audit.services.record(Action.ACCOUNT_EXPORTED, **target(user))
    return _in_chunks(_pieces(user, now=now))


def all_sections(user: User, *, now: datetime) -> Sections:
    """Return the lists of all apps, in the order of INSTALLED_APPS."""
    found: Sections = {}
    for app in apps.get_app_configs():
        if module_has_submodule(app.module, "account_export"):
            found |= import_module(f"{app.name}.account_export").sections(user, now=now)
    return found


def columns_of(queryset: QuerySet[Any], **columns: str) -> Rows:
    """Read these columns of the rows, each given as the lookup of its value, under their names in the file."""
    for rows in chunks(queryset.values_list("pk", *columns.values(), named=True)):
        yield from (dict(zip(columns, row[1:], strict=True)) for row in rows)


def serialized(
    queryset: QuerySet[Any],
    serializer: type[BaseSerializer[Any]],
    *,
    context: dict[str, Any] | None = None,
    **attributes: str,
) -> Rows:
    """Read the rows as the API shows them, after these attributes (dotted paths), under their names in the file."""
    for rows in chunks(queryset):
        for row, shown in zip(rows, serializer(rows, many=True, context=context or {}).data, strict=True):
            yield {name: attrgetter(path)(row) for name, path in attributes.items()} | shown


def _account(user: User) -> dict[str, Any]:
    return AccountSerializer(user).data | {
        "created_at": user.created_at,
        "last_sign_in_at": user.last_login,
        "has_password": user.has_usable_password(),
        "is_staff": user.is_staff,
        "staff_from_groups": user.staff_from_groups,
        "addresses": list(columns_of(EmailAddress.objects.filter(user=user), email="email", verified="verified")),
        "former_addresses": addresses_of(user)[1:],
        "second_factors": list(
            columns_of(
                Authenticator.objects.filter(user=user),
                type="type",
                created_at="created_at",
                last_used_at="last_used_at",
            )
        ),
        "social_accounts": list(
            columns_of(UserSocialAuth.objects.filter(user=user), provider="provider", id="uid", created_at="created")
        ),
    }


def _pieces(user: User, *, now: datetime) -> Iterator[str]:
    head = {"format": FORMAT, "exported_at": now, "not_included": NOT_INCLUDED, "account": _account(user)}
    yield _json(head)[:-1]
    for name, rows in all_sections(user, now=now).items():
        yield f",\n{_json(name)}: ["
        separator = "\n"
        for row in rows:
            yield separator + _json(row)
            separator = ",\n"
        yield "]"
    yield ',\n"complete": true}\n'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=to_ms)


def _in_chunks(pieces: Iterator[str]) -> Iterator[str]:
    """Join pieces by their size, not their number: a slow client has limited time for each chunk."""
    waiting, size = [], 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield "".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting)
