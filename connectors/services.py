"""Linking a provider, undoing it, and disconnecting."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from accounts.models import User
from audit.actions import Action
from connectors import oauth
from connectors.models import Connector
from connectors.providers import provider
from connectors.selectors import backend_of, get_connector
from core.errors import NotFound, ProviderNotConfigured
from core.ids import random_text
from projects.access import Caller


def start(caller: Caller, word: str, *, now: datetime) -> str:
    """Return the URL of the provider's consent page."""
    caller.require_session()
    backend = backend_of(word)
    if not provider(backend).is_configured():
        raise ProviderNotConfigured
    return oauth.start(caller.user, backend, slug=word, now=now)


def link(word: str, query: Mapping[str, str], *, signed_in: User | None, now: datetime) -> tuple[Connector, str | None]:
    """Link the account that the provider returned with.

    If the browser is not signed in, also return a secret that removes the link again. Raises OAuthRefused,
    ProviderFailed, GrantRevoked.
    """
    undo = random_text(32) if signed_in is None else None
    return oauth.finish(backend_of(word), query, slug=word, signed_in=signed_in, now=now, undo=undo), undo


def undo_link(word: str, secret: str, *, now: datetime) -> Connector:
    """Remove the link that this secret was created for, unless a later link replaced it. Raises NotFound."""
    links = Connector.objects.filter(
        provider=backend_of(word), undo_digest=oauth.undo_digest(secret), undo_until__gt=now
    )
    connector = links.select_related("user").first()
    with transaction.atomic():
        if connector is None or not links.delete()[0]:
            raise NotFound(
                "There is nothing to undo: it was undone before, replaced by a later link, or is more than ten minutes "
                "old."
            )
        oauth.record(connector.user, Action.CONNECTOR_UNLINKED, connector)
    return connector


def disconnect(caller: Caller, word: str) -> None:
    """Delete the tokens. Imported monitors stay, and are recognized when the provider is linked again."""
    connector = get_connector(caller, word)
    with transaction.atomic():
        connector.delete()
        oauth.record(caller.user, Action.CONNECTOR_UNLINKED, connector)
