"""Linking an account at a provider. API callers have no browser session, so social-auth's session is stored with the
state, encrypted. The state identifies the user who started, once, within ten minutes."""

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
from connectors.providers.base import OAuthRefused

MAX_META = 200
LIFETIME = timedelta(minutes=10)
"""Of an OAuth flow in progress, and of the secret that undoes a link."""


def redirect_uri(slug: str) -> str:
    """Return the callback URL that is registered at the provider."""
    return f"{settings.BASE_URL}/connectors/{slug}/callback"


def undo_digest(secret: str) -> bytes:
    return _digest("connector-undo", secret)


def _digest(purpose: str, secret: str) -> bytes:
    return salted_hmac(f"pulsekeeper.{purpose}", secret, algorithm="sha256").digest()


def start(user: User, provider_name: str, *, slug: str, now: datetime) -> str:
    """Return the URL of the consent page of a configured provider."""
    session: dict[str, Any] = {}
    backend = BACKENDS[provider_name](Strategy(session), redirect_uri(slug))
    backend.prepare_auth(cast("Any", user))  # its protocol has a username, which nothing reads
    url = backend.auth_url()
    OAuthState.objects.create(
        digest=_digest("oauth-states", backend.get_association_state()),
        user=user,
        provider=provider_name,
        expires_at=now + LIFETIME,
        session=session,
    )
    return url


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


def finish(
    provider_name: str,
    query: Mapping[str, str],
    *,
    slug: str,
    signed_in: User | None,
    now: datetime,
    undo: str | None = None,
) -> Connector:
    """Return the linked connector of the user who started. Raises OAuthRefused, ProviderFailed, GrantRevoked.

    `signed_in` is the user of the browser's session, if any: it has to be the one who started.
    `undo` is a secret that removes the link for 10 minutes. Waits for the network, so call it outside transactions.
    The state is used up in every case.
    """
    backend_class = BACKENDS[provider_name]
    state = _take_state(query.get("state", ""), provider=provider_name, now=now)
    if state is None:
        raise OAuthRefused(f"This link of {backend_class.title} was used before, has expired or was not started here.")
    if signed_in is not None and signed_in.pk != state.user_id:
        raise OAuthRefused(
            "You are signed in here with another account than the one that started this. "
            "Sign out, or start again from the account that you are signed in with."
        )
    if not query.get("code") and not query.get("error"):
        raise OAuthRefused(f"{backend_class.title} returned without its code.")
    backend = backend_class(Strategy(state.session, query), redirect_uri(slug))
    return cast("Connector", backend.finish(user=state.user, now=now, undo=undo).social_user)


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
        undo_digest=None if undo is None else undo_digest(undo),
        undo_until=None if undo is None else now + LIFETIME,
    )
    replaced = ["meta", "tokens", "tokens_version", "revoked_at", "renewing_until", "undo_digest", "undo_until"]
    with transaction.atomic():
        Connector.objects.bulk_create(
            [connector], update_conflicts=True, unique_fields=["user", "provider"], update_fields=replaced
        )
        record(user, Action.CONNECTOR_LINKED, connector)
    return {"social": connector}


def record(user: User, action: Action, connector: Connector) -> None:
    audit.services.record(action, actor=user, target_name=connector.meta, details={"provider": connector.provider})
