"""GitHub and Google as doors: who somebody is there, by an address that the provider has verified. No token is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from social_core.backends.oauth import BaseOAuth2PKCE
from social_core.exceptions import (
    AuthCanceled,
    AuthCredentialError,
    AuthInputError,
    AuthSessionError,
    SocialAuthBaseException,
)

from accounts.services import email_address
from accounts.web.social.states import Storage
from connectors.providers.base import OAuthRefused, ProviderFailed
from connectors.providers.guarded import GuardedBackend
from connectors.providers.strategy import Strategy
from core.errors import ValidationFailed

LONGEST_UID = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a provider. `email` is in lower case, and verified there."""

    provider: str
    uid: str
    email: str


class SignInBackend(GuardedBackend, BaseOAuth2PKCE[Any]):
    """The state and the PKCE verifier are in the browser's session."""

    REDIRECT_STATE = False

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(
            Strategy(session=request.session, data=request.GET.dict(), storage=Storage),
            f"{settings.BASE_URL}{reverse('social_callback', kwargs={'provider': self.name})}",
        )

    @classmethod
    def keys(cls) -> tuple[str, str]:
        raise NotImplementedError

    @classmethod
    def origin(cls) -> str:
        """Where the page of consent is."""
        raise NotImplementedError

    @classmethod
    def is_configured(cls) -> bool:
        return all(cls.keys())

    def get_key_and_secret(self) -> tuple[str, str]:
        return self.keys()

    def identify(self, access_token: str) -> tuple[str, str | None]:
        """The provider's id of the person, and the verified address, if there is one. Raises as `_read` does."""
        raise NotImplementedError

    def identity(self) -> Identity:
        """Redeem the code that the provider led back with. Raises OAuthRefused, ProviderFailed."""
        try:
            answer = cast("dict[str, Any]", self.auth_complete())
            uid, email = self.identify(answer["access_token"])
        except AuthCanceled:
            raise OAuthRefused(f"{self.title} was not allowed to tell who you are.") from None
        except AuthCredentialError:
            raise OAuthRefused(f"{self.title} does not take this answer any more. Begin again.") from None
        except (AuthInputError, AuthSessionError):
            raise OAuthRefused(
                f"This answer of {self.title} belongs to nothing that was begun in this browser. Begin again."
            ) from None
        except SocialAuthBaseException as error:
            raise self.failure(error) from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.nonsense() from None
        if email is None:
            raise OAuthRefused(
                f"{self.title} knows no verified e-mail address of yours. Verify one there, and begin again."
            )
        try:
            return Identity(self.name, uid, email_address(email))
        except ValidationFailed:
            raise self.nonsense() from None

    def _read(self, url: str, access_token: str) -> Any:
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        return self.json_of(self.request(url, headers=headers))


def _uid(answer: Mapping[str, Any], key: str) -> str:
    """An id, which is a number or a text. Raises ValueError for anything else."""
    value = answer[key]
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 < len(str(value)) <= LONGEST_UID:
        raise ValueError(key)
    return str(value)


class GitHub(SignInBackend):
    """https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps"""

    name = "github"
    title = "GitHub"
    DEFAULT_SCOPE = ["user:email"]  # noqa: RUF012  (as social-auth declares it)

    @classmethod
    def keys(cls) -> tuple[str, str]:
        return settings.GITHUB_CLIENT_ID, settings.GITHUB_CLIENT_SECRET

    @classmethod
    def origin(cls) -> str:
        return str(settings.GITHUB_URL)

    def authorization_url(self) -> str:
        return f"{settings.GITHUB_URL}/login/oauth/authorize"

    def access_token_url(self) -> str:
        return f"{settings.GITHUB_URL}/login/oauth/access_token"

    def identify(self, access_token: str) -> tuple[str, str | None]:
        uid = _uid(self._read(f"{settings.GITHUB_API_URL}/user", access_token), "id")
        emails = self._read(f"{settings.GITHUB_API_URL}/user/emails", access_token)
        verified = (row["email"] for row in emails if row["primary"] is True and row["verified"] is True)
        return uid, next(verified, None)


class Google(SignInBackend):
    """https://developers.google.com/identity/openid-connect/openid-connect"""

    name = "google"
    title = "Google"
    DEFAULT_SCOPE = ["openid", "email"]  # noqa: RUF012  (as social-auth declares it)

    @classmethod
    def keys(cls) -> tuple[str, str]:
        return settings.GOOGLE_CLIENT_ID, settings.GOOGLE_CLIENT_SECRET

    @classmethod
    def origin(cls) -> str:
        return str(settings.GOOGLE_URL)

    def authorization_url(self) -> str:
        return f"{settings.GOOGLE_URL}/o/oauth2/v2/auth"

    def access_token_url(self) -> str:
        return f"{settings.GOOGLE_TOKEN_URL}/token"

    def identify(self, access_token: str) -> tuple[str, str | None]:
        person = self._read(f"{settings.GOOGLE_API_URL}/v1/userinfo", access_token)
        return _uid(person, "sub"), person["email"] if person.get("email_verified") is True else None


BACKENDS: dict[str, type[SignInBackend]] = {backend.name: backend for backend in (GitHub, Google)}


def configured() -> list[type[SignInBackend]]:
    """Those whose keys the operator gave."""
    return [backend for backend in BACKENDS.values() if backend.is_configured()]


__all__ = ["BACKENDS", "Identity", "OAuthRefused", "ProviderFailed", "SignInBackend", "configured"]
