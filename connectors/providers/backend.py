"""The base of the provider backends: tokens, listing projects, and failures."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import requests
from social_core.exceptions import AuthCredentialError, SocialAuthBaseException
from social_django.models import DjangoStorage

from connectors.providers.guarded import GuardedBackend, PipelineStrategy, ProviderFailed

logger = logging.getLogger(__name__)

PAGE_SIZE = 100
MAX_PAGES = 100
_REFRESH_BEFORE = timedelta(minutes=1)
_LONGEST_REFERENCE = 200


@dataclass(frozen=True, slots=True)
class ProviderProject:
    """`url` is "" if the project has no address."""

    external_ref: str
    name: str
    url: str
    already_imported: bool = False


class NotPermitted(ProviderFailed):
    """The tokens are valid, but lack a permission. The text names what to grant."""


class GrantRevoked(Exception):
    """The provider no longer accepts the tokens and cannot renew them."""


class Strategy(PipelineStrategy):
    """`session` replaces a browser's session, `data` is the query of the callback."""

    def __init__(self, session: dict[str, Any] | None = None, data: Mapping[str, str] | None = None) -> None:
        super().__init__(DjangoStorage)
        self.session = {} if session is None else session  # type: ignore[assignment]  # (any mutable mapping)
        self._data = dict(data or {})

    def get_request_data(self, merge: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        return self._data


class ProviderBackend(GuardedBackend, ABC):
    """A link belongs to a user who is signed in here, so social-auth only associates.

    The state and the PKCE verifier are then in the strategy's session, bound to the user.
    """

    ASSOCIATION_ONLY = True
    shares = "your projects"
    needs: str = ""
    """The permissions needed to list projects, as the rest of a sentence."""

    def __init__(self, strategy: Strategy | None = None, redirect_uri: str | None = None) -> None:
        super().__init__(strategy or Strategy(), redirect_uri)

    # Methods of each provider.

    @abstractmethod
    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        """Return what the provider calls the account, or None."""

    @abstractmethod
    def page(self, tokens: Mapping[str, Any], cursor: str | None) -> tuple[list[Any], str | None]:
        """Return the page at `cursor`, and the cursor of the next page or None."""

    @abstractmethod
    def url_of(self, listed: Mapping[str, Any]) -> str:
        """Return the URL of a project, or "". Raises KeyError, TypeError, ValueError or AttributeError if malformed."""

    def tokens_of(self, answer: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
        """Return the tokens to store from the token response."""
        lifetime = answer.get("expires_in")
        refresh_token = answer.get("refresh_token")
        if not isinstance(lifetime, int | None) or not isinstance(refresh_token, str | None):
            raise self.failed("answered with invalid tokens")
        expires_at = None if lifetime is None else int(now.timestamp()) + lifetime
        return {"access_token": answer["access_token"], "refresh_token": refresh_token, "expires_at": expires_at}

    def user_data(self, access_token: str, *args: Any, **context: Any) -> dict[str, Any]:
        """Return the tokens and the account's name for the pipeline."""
        tokens = self.tokens_of(context["response"], now=context["now"])
        return {"tokens": tokens, "account_name": self.account_name(tokens)}

    # Methods for callers.

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

    def project_of(self, listed: Mapping[str, Any]) -> ProviderProject:
        """Raise KeyError, TypeError, ValueError or AttributeError if the item is malformed."""
        reference = listed["id"]
        if not isinstance(reference, str) or not 0 < len(reference) <= _LONGEST_REFERENCE:
            raise ValueError("id")
        if reference != _storable(reference):  # the column must store it unchanged
            raise ValueError("id")
        return ProviderProject(reference, first_text(listed["name"]) or reference, self.url_of(listed))

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
                raise self.failed("returned pages that link in a circle")
            cursors.add(cursor)
            if self.seconds_left() <= 0:
                raise self.failed("took too long to list its projects")
        else:
            logger.warning("%s: only the first %d pages of a list were read", self.name, MAX_PAGES)
        if odd:
            logger.warning("%s: %d projects of a list make no sense and are left out", self.name, odd)
        return found

    def ask(self, url: str, tokens: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> requests.Response:
        """Send a GET request to the API with the account's token. Raises ProviderFailed, GrantRevoked."""
        headers = {"Authorization": f"Bearer {tokens['access_token']}", "Accept": "application/json"}
        response = self.send("GET", url, headers=headers, params=dict(params or {}))
        if not response.ok:
            raise self.denial(response)
        return response

    def denial(self, response: requests.Response) -> ProviderFailed | GrantRevoked:
        """Return the error for a response of 400 to 499."""
        if response.status_code == 401:
            return self.revoked()
        if response.status_code == 403:
            return self.not_permitted(f"does not allow this; {self.needs}")
        return self.failed(f"answered {response.status_code}")

    def not_permitted(self, what: str) -> NotPermitted:
        return NotPermitted(f"{self.title} {what}.")

    def revoked(self) -> GrantRevoked:
        return GrantRevoked(f"{self.title} no longer accepts this link.")


def first_text(*values: object) -> str | None:
    """Return the first text that is not empty."""
    for value in values:
        if isinstance(value, str) and (text := _storable(value).strip()):
            return text
    return None


def _storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which JSON can contain and PostgreSQL cannot store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
