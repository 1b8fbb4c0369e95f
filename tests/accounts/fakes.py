"""GitHub and Google as servers on loopback, as strict as their documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.connectors.fakes import Answer, Fake, Refused, invalid


class FakeDoor(Fake):
    """`uid`, `email`: the account at the provider; `verified`: whether the provider has verified the address."""

    def __init__(self, *, uid: int = 4711, email: str = "ada@example.com", verified: bool = True) -> None:
        super().__init__(redirect_uri=f"http://testserver/account/with/{self.NAME}/callback")
        self.unauthorized = 401, {"message": "Bad credentials"}
        self.uid, self.email, self.verified = uid, email, verified

    def check_authorize(self, query: Mapping[str, str]) -> str:
        if query.get("client_id") != self.client_id:
            raise invalid("invalid_client", "No such application", status=401)
        if query.get("response_type") != "code" or not query.get("state"):
            raise invalid("invalid_request", "response_type must be code, with a state")
        if query.get("redirect_uri") != self.redirect_uri:
            raise invalid("redirect_uri_mismatch", "The redirect uri is not that of the application.")
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            raise invalid("invalid_request", "PKCE is needed")
        self.check_scope(set(query.get("scope", "").replace(",", " ").split()))
        return self.redirect_uri

    def check_scope(self, scope: set[str]) -> None:
        raise NotImplementedError

    def grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        if form.get("grant_type") != "authorization_code":
            raise invalid("unsupported_grant_type", "grant_type must be authorization_code")
        return super().grant(form)

    def token_answer(self) -> dict[str, Any]:
        return {"access_token": self.new_token(), "token_type": "bearer", "expires_in": 3600}


class FakeGitHub(FakeDoor):
    """Answers a bad code with 200 and an error in the body, as GitHub does."""

    NAME = "github"
    AUTHORIZE_PATH = "/login/oauth/authorize"
    TOKEN_PATH = "/login/oauth/access_token"

    def check_scope(self, scope: set[str]) -> None:
        if scope != {"user:email"}:
            raise invalid("invalid_scope", "more or less than is needed")

    def exchange(self, form: Mapping[str, str]) -> dict[str, Any]:
        try:
            return super().exchange(form)
        except Refused as refused:
            error = refused.answer.body["error"]
            named = {"invalid_grant": "bad_verification_code", "invalid_client": "incorrect_client_credentials"}
            return {"error": named.get(error, error), "error_description": "It is incorrect or expired."}

    def listed(self, path: str, query: Mapping[str, str]) -> Answer:
        if path == "/user":
            return Answer(200, {"id": self.uid, "login": "ada", "email": "public@elsewhere.example"}, {})
        if path != "/user/emails":
            raise Refused(404, {"message": "Not Found"})
        emails = [
            {"email": "older@elsewhere.example", "primary": False, "verified": True, "visibility": None},
            {"email": self.email, "primary": True, "verified": self.verified, "visibility": "private"},
        ]
        return Answer(200, emails, {})


class FakeGoogle(FakeDoor):
    NAME = "google"
    AUTHORIZE_PATH = "/o/oauth2/v2/auth"
    TOKEN_PATH = "/token"

    def configure(self, settings: Any) -> None:
        super().configure(settings)
        settings.GOOGLE_TOKEN_URL = self.api_url

    def check_scope(self, scope: set[str]) -> None:
        if scope != {"openid", "email"}:
            raise invalid("invalid_scope", "more or less than is needed")

    def listed(self, path: str, query: Mapping[str, str]) -> Answer:
        if path != "/v1/userinfo":
            raise Refused(404, {"error": "not_found"})
        return Answer(200, {"sub": str(self.uid), "email": self.email, "email_verified": self.verified}, {})
