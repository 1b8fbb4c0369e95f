"""The base of the backends for sign-in: the user's id and verified e-mail address. No token is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from social_core.backends.oauth import BaseOAuth2PKCE
from social_core.exceptions import SocialAuthBaseException
from social_django.models import DjangoStorage, UserSocialAuth

from accounts.models import User
from accounts.services import AddressTaken
from connectors.providers.guarded import GuardedBackend, OAuthRefused, PipelineStrategy

LONGEST_UID = 200
ATTEMPTS = 3


class Strategy(PipelineStrategy):
    def authenticate(self, backend: Any, **context: Any) -> Any:
        """Run the pipeline in one transaction. Repeat it if a concurrent request just created the account or link."""
        for _ in range(ATTEMPTS):
            try:
                with transaction.atomic():
                    return super().authenticate(backend, **context)
            except (IntegrityError, AddressTaken):
                continue
        raise OAuthRefused("Another sign-in is in progress. Start again.")


class SignInBackend(GuardedBackend, BaseOAuth2PKCE[Any]):
    """The state and the PKCE verifier are in the browser's session."""

    ID_KEY = "id"
    MAX_AGE: int | None = None
    """Seconds since the credentials were entered at the provider, at most. GitHub and Google know no such limit."""
    shares = "your identity"

    @classmethod
    def of(cls, request: HttpRequest) -> SignInBackend:
        path = reverse("social_callback", kwargs={"provider": cls.name})
        return cls(Strategy(DjangoStorage, request), f"{settings.BASE_URL}{path}")

    def links_of(self, user: User) -> QuerySet[UserSocialAuth]:
        """Return the identities of this provider that are linked to the account."""
        found: QuerySet[UserSocialAuth] = UserSocialAuth.objects.filter(user=user, provider=self.name)
        return found

    def identify(self, access_token: str) -> dict[str, Any]:
        """Return {"id", "email"}, without an address if none is verified. Raises KeyError, TypeError, ValueError."""
        raise NotImplementedError

    def user_data(self, access_token: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return self.identify(access_token)
        except SocialAuthBaseException:  # a ValueError, too
            raise
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.malformed() from None

    def get_user_details(self, response: Mapping[str, Any]) -> dict[str, Any]:
        return {"email": response["email"]}

    def get(self, url: str, access_token: str) -> Any:
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        return self.json_of(self.request(url, headers=headers))


def uid_of(answer: Mapping[str, Any], key: str) -> str:
    """Return an id, which is a number or text. Raises ValueError for anything else."""
    value = answer[key]
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 < len(str(value)) <= LONGEST_UID:
        raise ValueError(key)
    return str(value)
