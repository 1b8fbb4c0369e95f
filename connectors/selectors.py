"""CheckRecord what people have linked, and what they imported from there. All of it is one person's own."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db.models import QuerySet

from connectors.models import Connector, Import
from core.errors import NotFound
from projects.access import Caller


def backend_of(word: str) -> str:
    """The name of the provider that this deployment calls `word` in its paths (decision 37)."""
    found: str | None = settings.CONNECTORS.get(word)
    if found is None:
        raise NotFound("There is no such provider.")
    return found


def word_of(backend: str) -> str:
    return next(word for word, name in settings.CONNECTORS.items() if name == backend)


def list_connectors(caller: Caller) -> QuerySet[Connector]:
    caller.require_session()
    return Connector.objects.filter(user=caller.user, provider__in=settings.CONNECTORS.values())


def get_connector(caller: Caller, word: str) -> Connector:
    caller.require_session()
    connector = Connector.objects.filter(user=caller.user, provider=backend_of(word)).first()
    if connector is None:
        raise NotFound("This provider is not connected.")
    return connector


def imported_refs(connector: Connector, *, among: Collection[str]) -> set[str]:
    """Those of the provider's projects that are monitors of this person's already."""
    imports = Import.objects.filter(user=connector.user_id, provider=connector.provider)
    return set(imports.filter(external_ref__in=among).values_list("external_ref", flat=True))
