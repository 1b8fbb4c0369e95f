"""Sign-in with GitHub and Google, and the list of all providers."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from signin.social.base import SignInBackend, uid_of
from signin.social.openid import OpenID


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
        uid = uid_of(self.get(f"{settings.GITHUB_API_URL}/user", access_token), "id")
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
        return {"id": uid_of(person, "sub"), "email": person["email"] if verified else None}


BACKENDS: dict[str, type[SignInBackend]] = {backend.name: backend for backend in (OpenID, GitHub, Google)}


def configured() -> list[type[SignInBackend]]:
    """Return the backends that people may sign in with: those whose keys the operator has set."""
    allowed = [OpenID] if settings.OIDC_ONLY else BACKENDS.values()
    return [backend for backend in allowed if backend.is_configured()]
