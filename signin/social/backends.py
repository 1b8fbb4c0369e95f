"""Sign-in with GitHub and Google: the user's id and verified e-mail address. No token is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.urls import reverse
from social_core.backends.oauth import BaseOAuth2PKCE
from social_core.exceptions import SocialAuthBaseException
from social_django.models import DjangoStorage

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
    shares = "your identity"

    @classmethod
    def of(cls, request: HttpRequest) -> SignInBackend:
        path = reverse("social_callback", kwargs={"provider": cls.name})
        return cls(Strategy(DjangoStorage, request), f"{settings.BASE_URL}{path}")

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


def _uid(answer: Mapping[str, Any], key: str) -> str:
    """Return an id, which is a number or text. Raises ValueError for anything else."""
    value = answer[key]
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 < len(str(value)) <= LONGEST_UID:
        raise ValueError(key)
    return str(value)


class GitHub(SignInBackend):
    """https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps"""

    name = "github"
    title = "GitHub"
    DEFAULT_SCOPE = ["user:email"]  # noqa: RUF012  (as social-auth declares it)

    def authorization_url(self) -> str:
        return f"{settings.GITHUB_URL}/login/oauth/authorize"

    def access_token_url(self) -> str:
        return f"{settings.GITHUB_URL}/login/oauth/access_token"

    def identify(self, access_token: str) -> dict[str, Any]:
        uid = _uid(self.get(f"{settings.GITHUB_API_URL}/user", access_token), "id")
        emails = self.get(f"{settings.GITHUB_API_URL}/user/emails", access_token)
        verified = (row["email"] for row in emails if row["primary"] is True and row["verified"] is True)
        return {"id": uid, "email": next(verified, None)}


class Google(SignInBackend):
    """https://developers.google.com/identity/openid-connect/openid-connect"""

    name = "google"
    title = "Google"
    DEFAULT_SCOPE = ["openid", "email"]  # noqa: RUF012  (as social-auth declares it)

    def authorization_url(self) -> str:
        return f"{settings.GOOGLE_URL}/o/oauth2/v2/auth"

    def access_token_url(self) -> str:
        return f"{settings.GOOGLE_TOKEN_URL}/token"

    def identify(self, access_token: str) -> dict[str, Any]:
        person = self.get(f"{settings.GOOGLE_API_URL}/v1/userinfo", access_token)
        verified = person.get("email_verified") is True
        return {"id": _uid(person, "sub"), "email": person["email"] if verified else None}


BACKENDS: dict[str, type[SignInBackend]] = {backend.name: backend for backend in (GitHub, Google)}


def configured() -> list[type[SignInBackend]]:
    """Return the backends whose keys the operator has set."""
    return [backend for backend in BACKENDS.values() if backend.is_configured()]
