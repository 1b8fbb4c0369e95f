"""What the providers' backends share: requests through the egress guard, the tokens, and who is at fault."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import requests
from django.conf import settings
from social_core.backends.oauth import BaseOAuth2
from social_core.exceptions import (
    AuthCanceled,
    AuthCredentialError,
    AuthInputError,
    AuthSessionError,
    ErrorStage,
    SocialAuthBaseException,
)
from social_core.utils import http_error

from checks.guard import guard
from checks.probes.trust import find_trust_store
from connectors.providers.base import Account, GrantRevoked, OAuthRefused, ProviderFailed, ProviderProject
from connectors.providers.strategy import Strategy
from core.db import release_connection
from core.http import BodyTooLarge, DeadlineExceeded, GuardedSession

REQUEST_SEC = 15.0
LISTING_SEC = 90.0
MAX_ANSWER = 16 * 1024 * 1024  # a page of a hundred projects with all their deployments is some megabytes
MAX_PROJECTS = 10_000
PAGE_SIZE = 100
_REFRESH_BEFORE = timedelta(minutes=1)
_LONGEST_TEXT = 200


class ProviderBackend(BaseOAuth2[Any]):
    """A link belongs to somebody who is signed in here, so social-auth only associates.

    The state and the PKCE verifier are then in the strategy's session, bound to the user.
    """

    ASSOCIATION_ONLY = True
    REDIRECT_STATE = False
    SEND_USER_AGENT = False  # the session says who asks
    title: str = ""

    def __init__(self, strategy: Strategy | None = None, redirect_uri: str | None = None) -> None:
        super().__init__(strategy or Strategy(), redirect_uri)

    # Of the provider.

    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        raise NotImplementedError

    def pages(self, tokens: Mapping[str, Any]) -> Iterator[list[Any]]:
        raise NotImplementedError

    def project_of(self, listed: Mapping[str, Any]) -> ProviderProject:
        """Raises KeyError, TypeError, ValueError where it makes no sense."""
        raise NotImplementedError

    def tokens_of(self, answer: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
        """What is kept of the answer with the tokens."""
        lifetime = answer.get("expires_in")
        refresh_token = answer.get("refresh_token")
        if not isinstance(lifetime, int | None) or not isinstance(refresh_token, str | None):
            raise self.failed("answered with tokens that make no sense")
        expires_at = None if lifetime is None else int(now.timestamp()) + lifetime
        return {
            "access_token": answer["access_token"],
            "refresh_token": refresh_token,
            "expires_at": expires_at,
        }

    # What the rest calls.

    def is_configured(self) -> bool:
        return all(self.get_key_and_secret())

    def link(self, user: Any, *, now: datetime) -> Account:
        """Redeem the code that the provider led back with. Raises OAuthRefused, ProviderFailed."""
        try:
            answer = cast("dict[str, Any]", self.auth_complete(user=user))
        except AuthCanceled:
            raise OAuthRefused(f"{self.title} was not allowed to share your projects.") from None
        except AuthCredentialError:
            raise OAuthRefused(f"{self.title} does not take this answer any more.") from None
        except (AuthInputError, AuthSessionError):
            raise OAuthRefused(f"This answer of {self.title} belongs to nothing that you began.") from None
        except SocialAuthBaseException as error:
            raise self._failure(error) from None
        tokens = self.tokens_of(answer, now=now)
        return Account(tokens, self.account_name(tokens))

    def refreshed(self, tokens: Mapping[str, Any], *, now: datetime) -> Mapping[str, Any]:
        expires_at = tokens.get("expires_at")
        if expires_at is None or (now + _REFRESH_BEFORE).timestamp() < expires_at:
            return tokens
        if not tokens.get("refresh_token"):
            raise self.revoked()
        try:
            answer = self.refresh_token(tokens["refresh_token"])
        except AuthCredentialError:
            raise self.revoked() from None
        except SocialAuthBaseException as error:
            raise self._failure(error) from None
        new = self.tokens_of(answer, now=now)
        new["refresh_token"] = new["refresh_token"] or tokens["refresh_token"]
        return {**tokens, **new}

    def projects(self, tokens: Mapping[str, Any]) -> Iterator[ProviderProject]:
        """Those that are not there twice: pages shift while they are read."""
        seen: set[str] = set()
        until = time.monotonic() + LISTING_SEC
        for page in self.pages(tokens):
            try:
                found = [self.project_of(listed) for listed in page]
            except (KeyError, TypeError, ValueError, AttributeError):
                raise self.nonsense() from None
            known = len(seen)
            for project in found:
                if project.external_ref in seen:
                    continue
                if len(seen) == MAX_PROJECTS:
                    return
                seen.add(project.external_ref)
                yield project
            if page and len(seen) == known:
                raise self.nonsense()  # the same page again
            if time.monotonic() > until:
                raise self.failed("took too long to list its projects")

    # Requests.

    def request(
        self,
        url: str,
        *,
        method: Literal["GET", "POST", "DELETE"] = "GET",
        headers: Mapping[str, str | bytes] | None = None,
        data: dict[str, Any] | None = None,
        json: dict[str, Any] | None = None,
        auth: Any = None,
        params: dict[str, Any] | None = None,
        timeout: float | None = None,
        stage: ErrorStage = "user_info",
    ) -> requests.Response:
        """An answer of 200 to 299. Raises ProviderFailed, or social-auth's reading of another 4xx."""
        release_connection()
        try:
            response = _session().request(
                method,
                url,
                headers=headers,
                data=data,
                json=json,
                auth=auth,
                params=params,
                allow_redirects=False,  # secrets go where the settings say, nowhere else
            )
        except DeadlineExceeded:
            raise self.failed("took too long to answer") from None
        except BodyTooLarge:
            raise self.failed("answered with more than can be read") from None
        except requests.RequestException:
            raise self.failed("cannot be reached") from None
        status = response.status_code
        if status == 429:
            raise self.failed("takes no more requests for now")
        if not 200 <= status < 300 and not 400 <= status < 500:
            raise self.failed(f"answered {status}")
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise http_error(self, error, stage=stage) from None
        return response

    def ask(
        self, url: str, tokens: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> requests.Response:
        """Of the API, as the account. Raises ProviderFailed, GrantRevoked."""
        headers = {"Authorization": f"Bearer {tokens['access_token']}", "Accept": "application/json"}
        try:
            return self.request(url, headers=headers, params=dict(params or {}))
        except SocialAuthBaseException as error:
            if error.status_code in (401, 403):
                raise self.revoked() from None
            raise self._failure(error) from None

    def json_of(self, response: requests.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise self.nonsense() from None

    # Failures.

    def failed(self, what: str) -> ProviderFailed:
        return ProviderFailed(f"{self.title} {what}.")

    def nonsense(self) -> ProviderFailed:
        return self.failed("answered with what makes no sense")

    def revoked(self) -> GrantRevoked:
        return GrantRevoked(f"{self.title} does not take this link any more.")

    def _failure(self, error: SocialAuthBaseException) -> ProviderFailed:
        # Of the error only its kind: the provider's words may hold what it was sent.
        if error.code == "invalid_setting":
            return self.failed("does not take this deployment's client id and secret")
        if error.status_code is not None:
            return self.failed(f"answered {error.status_code}")
        return self.nonsense()


def text_of(listed: Mapping[str, Any], key: str) -> str:
    """A text that a column of ours can hold. Raises KeyError, ValueError."""
    value = listed[key]
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT or "\0" in value:
        raise ValueError(key)
    return value


def first_text(*values: object) -> str | None:
    """The first that says something, cut to a length that a column can hold."""
    for value in values:
        if isinstance(value, str) and (text := value.replace("\0", "").strip()[:_LONGEST_TEXT]):
            return text
    return None


def _session() -> GuardedSession:
    return GuardedSession(
        guard(),
        ca_file=settings.SSL_CERT_FILE or find_trust_store(),
        total_sec=REQUEST_SEC,
        max_body=MAX_ANSWER,
    )
