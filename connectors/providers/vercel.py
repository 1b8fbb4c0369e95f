"""Vercel: installing an integration is what gives its token, which lasts until the integration is removed.

https://vercel.com/docs/integrations/create-integration (external flow), https://vercel.com/docs/rest-api,
https://vercel.com/docs/rest-api/vercel-api-integrations (the code, teams, disabled integrations)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import requests
from django.conf import settings

from connectors.providers.backend import PAGE_SIZE, GrantRevoked, NotPermitted, ProviderBackend, first_text
from connectors.providers.guarded import ProviderFailed


class Vercel(ProviderBackend):
    name = "vercel"
    title = "Vercel"
    needs = "the integration needs the permission Project (read), and access to the projects"

    @classmethod
    def is_configured(cls) -> bool:
        return super().is_configured() and bool(settings.VERCEL_SLUG)

    def authorization_url(self) -> str:
        return f"{settings.VERCEL_URL}/integrations/{settings.VERCEL_SLUG}/new"

    def auth_params(self, state: str | None = None) -> dict[str, str]:
        """Vercel knows the client and the redirect URL by the slug, and does not support PKCE."""
        return {"state": state or ""}

    def access_token_url(self) -> str:
        return f"{settings.VERCEL_API_URL}/v2/oauth/access_token"

    def tokens_of(self, answer: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
        team_id = answer.get("team_id")
        if not isinstance(team_id, str | None):
            raise self.malformed()
        return {**super().tokens_of(answer, now=now), "team_id": team_id}

    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        team_id = tokens["team_id"]
        path = "/v2/user" if team_id is None else f"/v2/teams/{quote(team_id, safe='')}"
        try:
            answer = self.json_of(self.ask(f"{settings.VERCEL_API_URL}{path}", tokens))
        except NotPermitted:
            return None  # an integration may list projects without permission to read the account
        account = answer.get("user") if team_id is None and isinstance(answer, dict) else answer
        if not isinstance(account, dict):
            raise self.malformed()
        return first_text(account.get("name"), account.get("username"), account.get("slug"))

    def page(self, tokens: Mapping[str, Any], cursor: str | None) -> tuple[list[Any], str | None]:
        params: dict[str, Any] = {"limit": PAGE_SIZE}
        if tokens["team_id"] is not None:
            params["teamId"] = tokens["team_id"]
        if cursor is not None:
            params["until"] = cursor
        answer = self.json_of(self.ask(f"{settings.VERCEL_API_URL}/v9/projects", tokens, params))
        try:
            page, following = answer["projects"], answer["pagination"]["next"]
        except (KeyError, TypeError):
            raise self.malformed() from None
        if not isinstance(page, list) or not isinstance(following, int | str | None):
            raise self.malformed()
        return page, str(following) if following else None

    def denial(self, response: requests.Response) -> ProviderFailed | GrantRevoked:
        """A revoked token is also a 403; `invalidToken` distinguishes it from a missing permission."""
        error = _error_of(response)
        if error.get("invalidToken") is True:
            return self.revoked()
        if error.get("code") == "integration_configuration_disabled":
            return self.not_permitted("has disabled this integration; transfer it there, or link it again")
        return super().denial(response)

    def url_of(self, listed: Mapping[str, Any]) -> str:
        """Return the first custom domain, else the shortest of Vercel's own, which stays the same in deployments."""
        production = (listed.get("targets") or {}).get("production") or {}
        hosts = [host for host in map(first_text, production.get("alias") or []) if host and host[0] != "*"]
        custom = [host for host in hosts if not host.endswith(".vercel.app")]
        host = custom[0] if custom else min(hosts, key=len, default=None)
        return f"https://{host}" if host else ""


def _error_of(response: requests.Response) -> dict[str, Any]:
    """Return {"code", "message", …}, or an empty dict for another format."""
    try:
        error = response.json()["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
