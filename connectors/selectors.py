"""Read linked providers and imports. They belong to one account each."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db.models import QuerySet

from connectors.models import Connector, Import
from core.errors import NotFound
from projects.access import Caller


def backend_of(word: str) -> str:
    """Return the name of the provider that this deployment calls `word` in its paths. Raises NotFound."""
    found: str | None = settings.CONNECTORS.get(word)
    if found is None:
        raise NotFound("Provider not found.")
    return found


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
    """Return the references that this account has imported already."""
    imports = Import.objects.filter(user=connector.user_id, provider=connector.provider)
    return set(imports.filter(external_ref__in=among).values_list("external_ref", flat=True))
