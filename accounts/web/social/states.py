"""Ways to a provider that were begun, as social-auth-core has them kept: each is taken once, by whoever is first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from social_core.storage import BaseStorage, NonceMixin

from accounts.models import SocialState


def _columns(server_url: str, timestamp: int, salt: str) -> dict[str, Any]:
    return {"provider": server_url, "state": salt, "begun_at": datetime.fromtimestamp(timestamp, UTC)}


class _States(NonceMixin):
    @classmethod
    def use(cls, server_url: str, timestamp: int, salt: str) -> bool:
        return SocialState.objects.get_or_create(**_columns(server_url, timestamp, salt))[1]

    @classmethod
    def consume(cls, server_url: str, timestamp: int, salt: str) -> bool:
        return bool(SocialState.objects.filter(**_columns(server_url, timestamp, salt)).delete()[0])


class Storage(BaseStorage):
    """Nothing else is stored by social-auth: what comes of a way is for us to keep."""

    nonce: Any = _States
