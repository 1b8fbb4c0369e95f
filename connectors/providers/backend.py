"""What the providers' backends share: requests through the egress guard, the tokens, and who is at fault."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import requests
from social_core.exceptions import (
    AuthCanceled,
    AuthCredentialError,
    AuthInputError,
    AuthSessionError,
    SocialAuthBaseException,
)

from connectors.providers.base import (
    Account,
    GrantRevoked,
    NotPermitted,
    OAuthRefused,
    ProviderFailed,
    ProviderProject,
)
from connectors.providers.guarded import GuardedBackend
from connectors.providers.strategy import Strategy

logger = logging.getLogger(__name__)

PAGE_SIZE = 100
MAX_PAGES = 100
_REFRESH_BEFORE = timedelta(minutes=1)
_LONGEST_REFERENCE = 200


class ProviderBackend(GuardedBackend):
    """A link belongs to somebody who is signed in here, so social-auth only associates.

    The state and the PKCE verifier are then in the strategy's session, bound to the user.
    """

    ASSOCIATION_ONLY = True
    needs: str = ""
    """What has to be granted for listing projects, as the rest of a sentence."""

    def __init__(self, strategy: Strategy | None = None, redirect_uri: str | None = None) -> None:
        super().__init__(strategy or Strategy(), redirect_uri)

    # Of the provider.

    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        raise NotImplementedError

    def page(self, tokens: Mapping[str, Any], cursor: str | None) -> tuple[list[Any], str | None]:
        """What is listed from `cursor` on, and the cursor of what follows, if anything does."""
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
            raise self.failure(error) from None
        tokens = self.tokens_of(answer, now=now)
        return Account(tokens, self.account_name(tokens))

    def has_run_out(self, tokens: Mapping[str, Any], *, now: datetime) -> bool:
        expires_at = tokens.get("expires_at")
        return expires_at is not None and (now + _REFRESH_BEFORE).timestamp() >= expires_at

    def renewed(self, tokens: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
        if not tokens.get("refresh_token"):
            raise self.revoked()
        try:
            answer = self.refresh_token(tokens["refresh_token"])
        except AuthCredentialError:
            raise self.revoked() from None
        except SocialAuthBaseException as error:
            raise self.failure(error) from None
        new = self.tokens_of(answer, now=now)
        new["refresh_token"] = new["refresh_token"] or tokens["refresh_token"]
        return {**tokens, **new}

    def projects(self, tokens: Mapping[str, Any]) -> dict[str, ProviderProject]:
        found: dict[str, ProviderProject] = {}
        odd, cursor, cursors = 0, None, set()
        for _ in range(MAX_PAGES):
            page, cursor = self.page(tokens, cursor)
            for listed in page:
                try:
                    project = self.project_of(listed)
                except (KeyError, TypeError, ValueError, AttributeError):
                    odd += 1
                    continue
                found.setdefault(project.external_ref, project)  # pages shift while they are read
            if cursor is None:
                break
            if cursor in cursors:
                raise self.failed("leads from page to page in a circle")
            cursors.add(cursor)
            if self.seconds_left() <= 0:
                raise self.failed("took too long to list its projects")
        else:
            logger.warning("%s: only the first %d pages of a list were read", self.name, MAX_PAGES)
        if odd:
            logger.warning("%s: %d projects of a list make no sense and are left out", self.name, odd)
        return found

    # Requests.

    def ask(
        self, url: str, tokens: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> requests.Response:
        """Of the API, as the account. Raises ProviderFailed, GrantRevoked."""
        headers = {"Authorization": f"Bearer {tokens['access_token']}", "Accept": "application/json"}
        response = self.send("GET", url, headers=headers, params=dict(params or {}))
        if not response.ok:
            raise self.denial(response)
        return response

    def denial(self, response: requests.Response) -> ProviderFailed | GrantRevoked:
        """Why the API does not answer the account, by an answer of 400 to 499."""
        if response.status_code == 401:
            return self.revoked()
        if response.status_code == 403:
            return self.not_permitted(f"does not allow this; {self.needs}")
        return self.failed(f"answered {response.status_code}")

    # Failures.

    def not_permitted(self, what: str) -> NotPermitted:
        return NotPermitted(f"{self.title} {what}.")

    def revoked(self) -> GrantRevoked:
        return GrantRevoked(f"{self.title} does not take this link any more.")


def reference_of(listed: Mapping[str, Any], key: str) -> str:
    """What names a project, as long as a column of ours can hold it unchanged. Raises KeyError, ValueError."""
    value = listed[key]
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_REFERENCE or value != _storable(value):
        raise ValueError(key)
    return value


def first_text(*values: object) -> str | None:
    """The first that says something, whatever its length."""
    for value in values:
        if isinstance(value, str) and (text := _storable(value).strip()):
            return text
    return None


def _storable(text: str) -> str:
    """Without what JSON can spell and PostgreSQL cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
