"""Linking a provider, using the grant, and letting go of it. The network is awaited outside of transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime

from connectors import oauth
from connectors.models import Connector
from connectors.providers import provider
from connectors.providers.base import GrantRevoked, ProviderFailed, ProviderProject
from connectors.selectors import backend_of, get_connector
from core.db import release_connection
from core.errors import ProviderError, ProviderNotConfigured, ReconnectRequired
from projects.access import Caller

logger = logging.getLogger(__name__)

MAX_META = 200


def start(caller: Caller, word: str, *, now: datetime) -> str:
    """The address at which the caller lets us in."""
    caller.require_session()
    backend = backend_of(word)
    if not provider(backend).is_configured():
        raise ProviderNotConfigured
    return oauth.start(caller.user, backend, slug=word, now=now)


def link(word: str, query: Mapping[str, str], *, now: datetime) -> Connector:
    """What comes back from the provider, as a connector. Raises OAuthRefused, ProviderFailed, GrantRevoked.

    One statement, so that of two links at once one is whole and the other replaces it.
    """
    backend = backend_of(word)
    user, account = oauth.finish(backend, query, slug=word, now=now)
    connector = Connector(
        user=user,
        provider=backend,
        created_at=now,
        meta=None if account.name is None else storable(account.name)[:MAX_META],
    )
    connector.tokens = dict(account.tokens)
    Connector.objects.bulk_create(
        [connector],
        update_conflicts=True,
        unique_fields=["user", "provider"],
        update_fields=["meta", "sealed_tokens", "revoked_at"],
    )
    return connector


def disconnect(caller: Caller, word: str) -> None:
    """The grant is forgotten. Monitors that came of it stay, and are known should it be linked again."""
    get_connector(caller, word).delete()


def fetch_projects(
    caller: Caller, word: str, *, now: datetime
) -> tuple[Connector, dict[str, ProviderProject]]:
    """All projects of the linked account, by reference. Raises ReconnectRequired, ProviderError."""
    while True:
        connector = get_connector(caller, word)
        if connector.revoked_at is not None:
            raise ReconnectRequired
        try:
            return connector, _fetch(connector, now=now)
        except GrantRevoked:
            if _note_revoked(connector, now=now):
                raise ReconnectRequired from None
            # Another request has renewed the tokens, or the person linked anew, while ours were on their way.
        except ProviderFailed as error:
            logger.warning("%s: %s", connector.provider, error)
            raise ProviderError(str(error)) from None


def _fetch(connector: Connector, *, now: datetime) -> dict[str, ProviderProject]:
    source, tokens = provider(connector.provider), connector.tokens
    release_connection()
    renewed = source.refreshed(tokens, now=now)
    if dict(renewed) != tokens:
        _keep(connector, renewed)
        release_connection()
    return _by_ref(source.projects(renewed))


def _keep(connector: Connector, tokens: Mapping[str, object]) -> None:
    """Store renewed tokens, at once: the provider may have ended the old ones. Not over those of a later link."""
    before = connector.sealed_tokens
    connector.tokens = dict(tokens)
    Connector.objects.filter(pk=connector.pk, sealed_tokens=before).update(
        sealed_tokens=connector.sealed_tokens
    )


def _note_revoked(connector: Connector, *, now: datetime) -> bool:
    """Whether the tokens that were refused are still the stored ones; gone or replaced, there is nothing to note."""
    tried = Connector.objects.filter(pk=connector.pk, sealed_tokens=connector.sealed_tokens)
    return tried.update(revoked_at=now) > 0


def _by_ref(projects: Iterable[ProviderProject]) -> dict[str, ProviderProject]:
    found = (
        ProviderProject(storable(project.external_ref), storable(project.name), storable(project.url))
        for project in projects
    )
    return {project.external_ref: project for project in found}


def storable(text: str) -> str:
    """Without what JSON can spell and PostgreSQL cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
