"""The shared base of the OAuth backends: requests through the egress guard, and failures as typed errors."""

from __future__ import annotations

import time
from typing import Any

import requests
from django.conf import settings
from social_core.backends.oauth import BaseOAuth2
from social_core.exceptions import (
    AuthAssociationError,
    AuthCanceled,
    AuthCredentialError,
    AuthInputError,
    AuthSessionError,
    ErrorStage,
    SocialAuthBaseException,
)
from social_core.utils import http_error
from social_django.strategy import DjangoStrategy

from core.db import release_connection
from core.egress import EgressGuard
from core.http import BodyTooLarge, DeadlineExceeded, GuardedSession
from core.outbound import guard, trust_store
from core.turns import paused

TOTAL_SEC = 25.0  # for all requests of one backend: a thread of the web process waits for them
REQUEST_SEC = 15.0
MAX_RESPONSE = 16 * 1024 * 1024  # a page of a hundred projects with all their deployments is some megabytes


class ProviderFailed(Exception):
    """The provider is down, slow, limits us, or its response is malformed. The text is a sentence without secrets."""


class OAuthRefused(Exception):
    """Linking failed for a reason on the user's side. The text is a sentence for a page."""


class PipelineStrategy(DjangoStrategy):
    def authenticate(self, backend: Any, **context: Any) -> Any:
        """Run the backend's pipeline. Django's `authenticate` would ask every way of signing in."""
        return backend.authenticate(self.request, strategy=self, storage=self.storage, backend=backend, **context)


class GuardedBackend(BaseOAuth2[Any]):
    """Create one per action: TOTAL_SEC, for all of its requests, starts now."""

    REDIRECT_STATE = False
    SEND_USER_AGENT = False  # the session sends ours
    max_body: int | None = None  # MAX_RESPONSE
    title: str = ""
    shares: str
    """The permissions that the user grants."""

    def __init__(self, strategy: Any, redirect_uri: str | None = None) -> None:
        super().__init__(strategy, redirect_uri)
        self._until = time.monotonic() + TOTAL_SEC

    @classmethod
    def setting_of(cls, name: str) -> str:
        """Return a setting of the provider, for example GITHUB_URL for `URL`."""
        return str(getattr(settings, f"{cls.name.upper()}_{name}"))

    @classmethod
    def is_configured(cls) -> bool:
        return bool(cls.setting_of("CLIENT_ID") and cls.setting_of("CLIENT_SECRET"))

    def get_key_and_secret(self) -> tuple[str, str]:
        return self.setting_of("CLIENT_ID"), self.setting_of("CLIENT_SECRET")

    def egress(self) -> EgressGuard:
        return guard()

    def seconds_left(self) -> float:
        return self._until - time.monotonic()

    def finish(self, **context: Any) -> Any:
        """Redeem the code of the callback and return the result of the pipeline. Raises OAuthRefused, ProviderFailed.

        `context` is passed to the steps of the pipeline.
        """
        try:
            return self.complete(**context)
        except AuthCanceled:
            raise OAuthRefused(f"{self.title} was not allowed to share {self.shares}.") from None
        except AuthCredentialError:
            raise OAuthRefused(f"{self.title} no longer accepts this code. Start again.") from None
        except AuthAssociationError:
            raise OAuthRefused(f"This {self.title} account is linked to another Pulsekeeper account.") from None
        except (AuthInputError, AuthSessionError):
            raise OAuthRefused(
                f"This response from {self.title} does not belong to a request that was started here. Start again."
            ) from None
        except SocialAuthBaseException as error:
            raise self.failure(error) from None

    def request(
        self, url: str, *, method: str = "GET", stage: ErrorStage = "user_info", **given: Any
    ) -> requests.Response:
        """Send a request for social-auth. Raises ProviderFailed, or social-auth's error for a 4xx."""
        response = self.send(method, url, **given)
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise http_error(self, error, stage=stage) from None
        return response

    def send(self, method: str, url: str, **given: Any) -> requests.Response:
        """Return a response of 200 to 299, or of 400 to 499 except 429. Raises ProviderFailed."""
        release_connection()
        left = min(REQUEST_SEC, self.seconds_left())
        if left <= 0:
            raise self.failed("took too long to answer")
        session = GuardedSession(
            self.egress(), ca_file=trust_store(), total_sec=left, max_body=self.max_body or MAX_RESPONSE
        )
        try:
            # Redirects are not followed: secrets go only where the settings say.
            with paused():
                response = session.request(method, url, allow_redirects=False, **given)
        except DeadlineExceeded:
            raise self.failed("took too long to answer") from None
        except BodyTooLarge:
            raise self.failed("sent too large an answer") from None
        except requests.RequestException:
            raise self.failed("cannot be reached") from None
        status = response.status_code
        if status == 429:
            raise self.failed("limits requests; try again later")
        if not 200 <= status < 300 and not 400 <= status < 500:
            raise self.failed(f"answered {status}")
        return response

    def json_of(self, response: requests.Response) -> Any:
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise self.malformed() from None

    def failed(self, what: str) -> ProviderFailed:
        return ProviderFailed(f"{self.title} {what}.")

    def malformed(self) -> ProviderFailed:
        return self.failed("sent an invalid answer")

    def failure(self, error: SocialAuthBaseException) -> ProviderFailed:
        # Only the kind of the error: the provider's text may contain what was sent.
        if error.code == "invalid_setting":
            return self.failed("does not take this deployment's client id and secret")
        if error.status_code is not None:
            return self.failed(f"answered {error.status_code}")
        return self.malformed()
