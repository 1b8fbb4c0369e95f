"""What backends of social-auth share here: requests through the egress guard, and who is at fault where one fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import requests
from social_core.backends.oauth import BaseOAuth2
from social_core.exceptions import ErrorStage, SocialAuthBaseException
from social_core.utils import http_error

from connectors.providers.base import ProviderFailed
from core.db import release_connection
from core.http import BodyTooLarge, DeadlineExceeded, GuardedSession
from core.outbound import guard, trust_store

TOTAL_SEC = 25.0  # for all that one backend asks: a thread of the web process waits for it
REQUEST_SEC = 15.0
MAX_ANSWER = 16 * 1024 * 1024  # a page of a hundred projects with all their deployments is some megabytes


class GuardedBackend(BaseOAuth2[Any]):
    """Made for one action: its time, TOTAL_SEC for everything that it asks, counts from here."""

    REDIRECT_STATE = False
    SEND_USER_AGENT = False  # the session says who asks
    title: str = ""

    def __init__(self, strategy: Any, redirect_uri: str | None = None) -> None:
        super().__init__(strategy, redirect_uri)
        self._until = time.monotonic() + TOTAL_SEC

    def seconds_left(self) -> float:
        return self._until - time.monotonic()

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
        """What social-auth asks by. Raises ProviderFailed, or social-auth's reading of a 4xx."""
        response = self.send(method, url, headers=headers, data=data, json=json, auth=auth, params=params)
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise http_error(self, error, stage=stage) from None
        return response

    def send(self, method: str, url: str, **given: Any) -> requests.Response:
        """An answer of 200 to 299, or of 400 to 499 but 429. Raises ProviderFailed."""
        release_connection()
        left = min(REQUEST_SEC, self.seconds_left())
        if left <= 0:
            raise self.failed("took too long to answer")
        try:
            # Secrets go where the settings say, nowhere else: redirects are not followed.
            response = _session(left).request(method, url, allow_redirects=False, **given)
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
        return response

    def json_of(self, response: requests.Response) -> Any:
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise self.nonsense() from None

    def failed(self, what: str) -> ProviderFailed:
        return ProviderFailed(f"{self.title} {what}.")

    def nonsense(self) -> ProviderFailed:
        return self.failed("answered with what makes no sense")

    def failure(self, error: SocialAuthBaseException) -> ProviderFailed:
        # Of the error only its kind: the provider's words may hold what it was sent.
        if error.code == "invalid_setting":
            return self.failed("does not take this deployment's client id and secret")
        if error.status_code is not None:
            return self.failed(f"answered {error.status_code}")
        return self.nonsense()


def _session(total_sec: float) -> GuardedSession:
    return GuardedSession(
        guard(),
        ca_file=trust_store(),
        total_sec=total_sec,
        max_body=MAX_ANSWER,
    )
