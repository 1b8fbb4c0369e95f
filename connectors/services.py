"""Linking a provider, undoing that, and letting go of it. The network is awaited outside of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import salted_hmac

import audit.services
from accounts.models import User
from audit.actions import Action
from connectors import oauth
from connectors.models import Connector
from connectors.providers import provider
from connectors.selectors import backend_of, get_connector
from core.errors import NotFound, ProviderNotConfigured
from core.ids import random_text
from projects.access import Caller

MAX_META = 200
UNDO_LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Linked:
    """`undo` is the secret that undoes it, for a browser of which nobody knows whose it is."""

    connector: Connector
    undo: str | None = field(repr=False)


def start(caller: Caller, word: str, *, now: datetime) -> str:
    """The address at which the caller lets us in."""
    caller.require_session()
    backend = backend_of(word)
    if not provider(backend).is_configured():
        raise ProviderNotConfigured
    return oauth.start(caller.user, backend, slug=word, now=now)


def link(word: str, query: Mapping[str, str], *, signed_in: User | None, now: datetime) -> Linked:
    """What comes back from the provider, as a connector. Raises OAuthRefused, ProviderFailed, GrantRevoked.

    Stored by one statement, so that of two links at once one is whole and the other replaces it.
    """
    backend = backend_of(word)
    user, account = oauth.finish(backend, query, slug=word, signed_in=signed_in, now=now)
    undo = random_text(32) if signed_in is None else None
    connector = Connector(
        user=user,
        provider=backend,
        created_at=now,
        meta=None if account.name is None else account.name[:MAX_META],
        undo_digest=None if undo is None else _undo_digest(undo),
        undo_until=None if undo is None else now + UNDO_LIFETIME,
    )
    connector.tokens = dict(account.tokens)
    with transaction.atomic():
        Connector.objects.bulk_create(
            [connector],
            update_conflicts=True,
            unique_fields=["user", "provider"],
            update_fields=[
                "meta",
                "tokens",
                "tokens_version",
                "revoked_at",
                "renewing_until",
                "undo_digest",
                "undo_until",
            ],
        )
        _record(user, Action.CONNECTOR_LINKED, connector)
    return Linked(connector, undo)


def undo_link(word: str, secret: str, *, now: datetime) -> Connector:
    """Forget the grant that `link` gave this secret for, unless it was linked anew since. Raises NotFound."""
    links = Connector.objects.filter(
        provider=backend_of(word), undo_digest=_undo_digest(secret), undo_until__gt=now
    )
    connector = links.select_related("user").first()
    with transaction.atomic():
        if connector is None or not links.delete()[0]:
            raise NotFound(
                "There is nothing to undo: it was undone before, replaced by a later link, or is more than ten minutes "
                "old."
            )
        _record(connector.user, Action.CONNECTOR_UNLINKED, connector)
    return connector


def disconnect(caller: Caller, word: str) -> None:
    """The grant is forgotten. Monitors that came of it stay, and are known should it be linked again."""
    connector = get_connector(caller, word)
    with transaction.atomic():
        connector.delete()
        _record(caller.user, Action.CONNECTOR_UNLINKED, connector)


def _record(user: User, action: Action, connector: Connector) -> None:
    audit.services.record(
        action, actor=user, target_name=connector.meta, details={"provider": connector.provider}
    )


def _undo_digest(secret: str) -> bytes:
    return salted_hmac("pulsekeeper.connector-undo", secret, algorithm="sha256").digest()
