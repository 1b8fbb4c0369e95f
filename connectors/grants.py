"""Using a grant: what a linked account lists, with tokens that are renewed where they ran out or are refused.

A token for renewing may be good once, and a provider that sees it twice may end the whole grant. So one request at
a time has the tokens of a connector renewed; the right to it is a lease in its row, since neither a lock nor a
connection of the database is held while the network is awaited. The others wait for what it brings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import uuid4

from django.db.models import Q

from connectors.models import Connector
from connectors.providers import provider
from connectors.providers.backend import ProviderBackend
from connectors.providers.base import GrantRevoked, ProviderFailed, ProviderProject
from connectors.selectors import backend_of, get_connector
from core.db import release_connection
from core.errors import ProviderError, ReconnectRequired
from core.waiting import waiting_place
from projects.access import Caller

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)  # longer than a provider is waited for
POLL_SEC = 0.1


def fetch_projects(
    caller: Caller, word: str, *, now: datetime
) -> tuple[Connector, dict[str, ProviderProject]]:
    """All projects of the linked account, by reference. Raises NotFound, ReconnectRequired, ProviderError."""
    caller.require_session()
    source = provider(backend_of(word))
    try:
        with waiting_place(caller.account):
            return _fetch(caller, word, source, now=now)
    except ProviderFailed as error:
        logger.warning("%s: %s", source.name, error)
        raise ProviderError(str(error)) from None


def _fetch(
    caller: Caller, word: str, source: ProviderBackend, *, now: datetime
) -> tuple[Connector, dict[str, ProviderProject]]:
    renewed = False
    while True:
        # Read anew each time: the person may have linked it anew, or disconnected it, while the network was awaited.
        connector = get_connector(caller, word)
        if connector.revoked_at is not None:
            raise ReconnectRequired
        tokens = connector.tokens
        if renewed or not source.has_run_out(tokens, now=now):
            try:
                return connector, source.projects(tokens)
            except GrantRevoked:
                if renewed and _note_revoked(connector, now=now):
                    raise ReconnectRequired from None
        if not renewed:
            renewed = _renew(connector, source, now=now)


def _renew(connector: Connector, source: ProviderBackend, *, now: datetime) -> bool:
    """Whether this request has had the tokens renewed; else another did, or the connector is not what it was."""
    unchanged = Connector.objects.filter(pk=connector.pk, tokens_version=connector.tokens_version)
    until = now + LEASE
    if not unchanged.filter(Q(renewing_until=None) | Q(renewing_until__lte=now)).update(renewing_until=until):
        _wait(source, lambda: unchanged.filter(renewing_until__gt=now).exists())
        return False
    # By the lease and not by the tokens: a key rotation may write these anew meanwhile.
    ours = Connector.objects.filter(pk=connector.pk, renewing_until=until)
    try:
        tokens = source.renewed(connector.tokens, now=now)
    except GrantRevoked:
        if ours.update(revoked_at=now, renewing_until=None):
            raise ReconnectRequired from None
        return False
    except BaseException:
        ours.update(renewing_until=None)
        raise
    return ours.update(tokens=dict(tokens), tokens_version=uuid4(), renewing_until=None) > 0


def _wait(source: ProviderBackend, is_renewing: Callable[[], bool]) -> None:
    """Until whoever renews the tokens is done. Raises ProviderFailed where that takes longer than this may."""
    while is_renewing():
        release_connection()
        if source.seconds_left() <= 0:
            raise ProviderFailed(f"{source.title} took too long to renew its tokens.")
        time.sleep(POLL_SEC)


def _note_revoked(connector: Connector, *, now: datetime) -> bool:
    """Whether the tokens that were refused are still the stored ones; gone or replaced, there is nothing to note."""
    tried = Connector.objects.filter(pk=connector.pk, tokens_version=connector.tokens_version)
    return tried.update(revoked_at=now) > 0
