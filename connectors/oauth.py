"""The way to a provider and back. Callers of the API have no browser session, so what social-auth would keep in one
is kept with the state, encrypted: whoever comes back with the state is who began, once, within ten minutes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from django.conf import settings

from accounts.models import User
from connectors import states
from connectors.providers import BACKENDS
from connectors.providers.base import Account, OAuthRefused
from connectors.providers.strategy import Strategy


def redirect_uri(slug: str) -> str:
    """Where a provider leads back to, as its app is registered."""
    return f"{settings.BASE_URL}/connectors/{slug}/callback"


def start(user: User, provider_name: str, *, slug: str, now: datetime) -> str:
    """The address to open at the provider, which has to be configured."""
    session: dict[str, Any] = {}
    backend = BACKENDS[provider_name](Strategy(session=session), redirect_uri(slug))
    backend.prepare_auth(cast("Any", user))  # its protocol wants a username, which nothing reads
    url = backend.auth_url()
    states.keep(backend.get_association_state(), session, user=user, provider=provider_name, now=now)
    return url


def finish(
    provider_name: str, query: Mapping[str, str], *, slug: str, signed_in: User | None, now: datetime
) -> tuple[User, Account]:
    """Who began, and the account that was agreed to. Raises OAuthRefused, ProviderFailed, GrantRevoked.

    `signed_in` is whom the browser's session belongs to, if it has one: nobody gives an account of his to another.

    Awaits the network, so not to be called inside a transaction. Whatever comes of it, the state is used up.
    """
    backend_class = BACKENDS[provider_name]
    found = states.take(query.get("state", ""), provider=provider_name, now=now)
    if found is None:
        raise OAuthRefused(
            f"This link of {backend_class.title} was used before, ran out, or was never begun here."
        )
    user, session = found
    if signed_in is not None and signed_in.pk != user.pk:
        raise OAuthRefused(
            "You are signed in here with another account than the one that this was begun for. "
            "Sign out, or begin again from the account that you are signed in with."
        )
    if not query.get("code") and not query.get("error"):
        raise OAuthRefused(f"{backend_class.title} led back without its code.")
    backend = backend_class(Strategy(session=session, data=query), redirect_uri(slug))
    return user, backend.link(user, now=now)
