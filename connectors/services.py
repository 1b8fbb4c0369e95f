"""Linking a provider by OAuth, undoing it, and disconnecting.

API callers have no browser session, so social-auth's session is stored with the state, encrypted. The state identifies
the user who started, once, within ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.utils.crypto import salted_hmac

import audit.services
from accounts.models import User
from audit.actions import Action
from connectors.models import Connector, OAuthState
from connectors.providers import BACKENDS
from connectors.providers.backend import ProviderBackend, Strategy
from connectors.providers.guarded import OAuthRefused
from connectors.selectors import backend_of, get_connector
from core.errors import NotFound, ProviderNotConfigured
from core.ids import random_text
from projects.access import Caller

MAX_META = 200
LIFETIME = timedelta(minutes=10)
"""Lifetime of an OAuth flow, and of the secret that undoes a link."""


def start(caller: Caller, word: str, *, now: datetime) -> str:
    """Return the URL of the provider's consent page."""
    caller.require_session()
    session: dict[str, Any] = {}
    backend = BACKENDS[backend_of(word)](Strategy(session), redirect_uri(word))
    if not backend.is_configured():
        raise ProviderNotConfigured
    backend.prepare_auth(cast("Any", caller.user))  # its protocol has a username, which nothing reads
    url = backend.auth_url()
    OAuthState.objects.create(
        digest=_digest("oauth-states", backend.get_association_state()),
        user=caller.user,
        provider=backend.name,
        expires_at=now + LIFETIME,
        session=session,
    )
    return url


def link(word: str, query: Mapping[str, str], *, signed_in: User | None, now: datetime) -> tuple[Connector, str | None]:
    """Link the account that the provider returned with, for the user who started.

    `signed_in` is the user of the browser's session, if any: it has to be the one who started. If the browser is signed
    out, also return a secret that removes the link again. Waits for the network, so call it outside transactions. The
    state is used up in every case. Raises OAuthRefused, ProviderFailed, GrantRevoked.
    """
    backend_class = BACKENDS[backend_of(word)]
    state = _take_state(query.get("state", ""), provider=backend_class.name, now=now)
    if state is None:
        raise OAuthRefused(f"This link of {backend_class.title} was already used, has expired or was not started here.")
    if signed_in is not None and signed_in.pk != state.user_id:
        raise OAuthRefused(
            "You are signed in here with another account than the one that started this. "
            "Sign out, or start again from the account that you are signed in with."
        )
    if not query.get("code") and not query.get("error"):
        raise OAuthRefused(f"{backend_class.title} returned without its code.")
    backend = backend_class(Strategy(state.session, query), redirect_uri(word))
    undo = random_text(32) if signed_in is None else None
    return backend.finish(user=state.user, now=now, undo=undo).social_user, undo


def save_connector(
    backend: ProviderBackend, user: User, response: Mapping[str, Any], now: datetime, undo: str | None, **_: Any
) -> dict[str, Any]:
    """Store the tokens: the last step of the pipeline of connectors.

    One statement, so that of two concurrent links one replaces the other as a whole.
    """
    name = response["account_name"]
    connector = Connector(
        user=user,
        provider=backend.name,
        created_at=now,
        meta=None if name is None else name[:MAX_META],
        tokens=response["tokens"],
        undo_digest=None if undo is None else _digest("connector-undo", undo),
        undo_until=None if undo is None else now + LIFETIME,
    )
    replaced = ["meta", "tokens", "tokens_version", "revoked_at", "renewing_until", "undo_digest", "undo_until"]
    with transaction.atomic():
        Connector.objects.bulk_create(
            [connector], update_conflicts=True, unique_fields=["user", "provider"], update_fields=replaced
        )
        _record(user, Action.CONNECTOR_LINKED, connector)
    return {"social": connector}


def undo_link(word: str, secret: str, *, now: datetime) -> Connector:
    """Remove the link that this secret was created for, unless a later link replaced it. Raises NotFound."""
    digest = _digest("connector-undo", secret)
    links = Connector.objects.filter(provider=backend_of(word), undo_digest=digest, undo_until__gt=now)
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
    """Delete the tokens. Imported monitors stay, and are recognized when the provider is linked again."""
    connector = get_connector(caller, word)
    with transaction.atomic():
        connector.delete()
        _record(caller.user, Action.CONNECTOR_UNLINKED, connector)


def redirect_uri(word: str) -> str:
    """Return the callback URL that is registered at the provider."""
    return f"{settings.BASE_URL}/connectors/{word}/callback"


def _take_state(state: str, *, provider: str, now: datetime) -> OAuthState | None:
    """Delete and return a state, so that one of two concurrent callbacks gets it.

    A state of another provider stays. Return None if it is unknown or expired, or the account is closed.
    """
    with transaction.atomic():
        states = OAuthState.objects.select_for_update(of=["self"]).select_related("user__plan")
        found = states.filter(digest=_digest("oauth-states", state), provider=provider).first()
        if found is None:
            return None
        found.delete()
    return found if found.user.is_active and found.expires_at > now else None


def _digest(purpose: str, secret: str) -> bytes:
    return salted_hmac(f"pulsekeeper.{purpose}", secret, algorithm="sha256").digest()


def _record(user: User, action: Action, connector: Connector) -> None:
    audit.services.record(action, actor=user, target_name=connector.meta, details={"provider": connector.provider})
