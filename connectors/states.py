"""OAuth flows in progress: stored by digest with an encrypted session, and taken once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils.crypto import salted_hmac

from accounts.models import User
from connectors.models import OAuthState
from core.crypto import Ciphertext

LIFETIME = timedelta(minutes=10)


def keep(state: str, session: dict[str, Any], *, user: User, provider: str, now: datetime) -> None:
    OAuthState.objects.create(
        digest=_digest(state),
        user=user,
        provider=provider,
        expires_at=now + LIFETIME,
        session=session,
    )


def take(state: str, *, provider: str, now: datetime) -> tuple[User, dict[str, object]] | None:
    """Read and delete in one statement, so that one of two concurrent callbacks gets it.

    A state of another provider stays. Return None if it is unknown or expired, or the account is closed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM connectors_oauthstate WHERE digest = %s AND provider = %s "
            "RETURNING user_id, expires_at, session",
            [_digest(state), provider],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    user_id, expires_at, session = row
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or expires_at <= now:
        return None
    return user, Ciphertext(session).decrypt()


def delete_expired(now: datetime) -> int:
    """Return how many were deleted."""
    return OAuthState.objects.filter(expires_at__lte=now).delete()[0]


def _digest(state: str) -> bytes:
    return salted_hmac("pulsekeeper.oauth-states", state, algorithm="sha256").digest()
