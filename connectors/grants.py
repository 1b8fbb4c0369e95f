"""List the projects of a linked account, and renew its tokens when they expired or are refused.

A refresh token may work once, and a provider may revoke the grant if it sees one twice. So one request at a time
renews the tokens of a connector. It takes a lease in the row, because no lock and no database connection is held while
waiting for the network. Other requests wait for its result.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from uuid import uuid4

from django.db.models import Q

from connectors.models import Connector
from connectors.providers import BACKENDS
from connectors.providers.backend import GrantRevoked, ProviderBackend, ProviderProject
from connectors.providers.guarded import ProviderFailed
from connectors.selectors import backend_of, get_connector
from core.db import release_connection
from core.errors import ProviderError, ReconnectRequired
from core.turns import paused
from core.waiting import limit_waiting
from projects.access import Caller

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)  # longer than all requests to a provider together
POLL_SEC = 0.1


def fetch_projects(caller: Caller, word: str, *, now: datetime) -> tuple[Connector, dict[str, ProviderProject]]:
    """Return all projects of the linked account by reference. Raises NotFound, ReconnectRequired, ProviderError."""
    caller.require_session()
    source = BACKENDS[backend_of(word)]()
    try:
        with limit_waiting(caller.account):
            return _fetch(caller, word, source, now=now)
    except ProviderFailed as error:
        logger.warning("%s: %s", source.name, error)
        raise ProviderError(str(error)) from None


def _fetch(
    caller: Caller, word: str, source: ProviderBackend, *, now: datetime
) -> tuple[Connector, dict[str, ProviderProject]]:
    renewed = False
    while True:
        # Read again each time: it may have been linked again or disconnected while waiting for the network.
        connector = get_connector(caller, word)
        if connector.revoked_at is not None:
            raise ReconnectRequired
        tokens = connector.tokens
        if renewed or not source.has_run_out(tokens, now=now):
            try:
                return connector, source.projects(tokens)
            except GrantRevoked:
                unchanged = Connector.objects.filter(pk=connector.pk, tokens_version=connector.tokens_version)
                if renewed and unchanged.update(revoked_at=now):
                    raise ReconnectRequired from None
        if not renewed:
            renewed = _renew(connector, source, now=now)


def _renew(connector: Connector, source: ProviderBackend, *, now: datetime) -> bool:
    """Return whether this request renewed the tokens. Otherwise another one did, or the connector has changed.

    Raises ReconnectRequired, and ProviderFailed if another request takes too long.
    """
    unchanged = Connector.objects.filter(pk=connector.pk, tokens_version=connector.tokens_version)
    until = now + LEASE
    if not unchanged.filter(Q(renewing_until=None) | Q(renewing_until__lte=now)).update(renewing_until=until):
        while unchanged.filter(renewing_until__gt=now).exists():
            release_connection()
            if source.seconds_left() <= 0:
                raise ProviderFailed(f"{source.title} took too long to renew its tokens.")
            with paused():
                time.sleep(POLL_SEC)
        return False
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
