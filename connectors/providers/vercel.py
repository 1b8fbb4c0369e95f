"""Vercel: installing an integration is what gives its token, which lasts until the integration is removed.

https://vercel.com/docs/integrations/create-integration (external flow), https://vercel.com/docs/rest-api
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from connectors.providers.backend import MAX_PROJECTS, PAGE_SIZE, ProviderBackend, first_text, text_of
from connectors.providers.base import GrantRevoked, ProviderProject


class Vercel(ProviderBackend):
    name = "vercel"
    title = "Vercel"

    def is_configured(self) -> bool:
        return super().is_configured() and bool(settings.VERCEL_SLUG)

    def get_key_and_secret(self) -> tuple[str, str]:
        return settings.VERCEL_CLIENT_ID, settings.VERCEL_CLIENT_SECRET

    def authorization_url(self) -> str:
        return f"{settings.VERCEL_URL}/integrations/{settings.VERCEL_SLUG}/new"

    def auth_params(self, state: str | None = None) -> dict[str, str]:
        """It knows client and redirect URL by the slug, and takes no PKCE."""
        return {"state": state or ""}

    def access_token_url(self) -> str:
        return f"{settings.VERCEL_API_URL}/v2/oauth/access_token"

    def tokens_of(self, answer: Mapping[str, Any], *, now: datetime) -> dict[str, Any]:
        team_id = answer.get("team_id")
        if not isinstance(team_id, str | None):
            raise self.nonsense()
        return {**super().tokens_of(answer, now=now), "team_id": team_id}

    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        team_id = tokens["team_id"]
        path = "/v2/user" if team_id is None else f"/v2/teams/{team_id}"
        try:
            answer = self.json_of(self.ask(f"{settings.VERCEL_API_URL}{path}", tokens))
        except GrantRevoked:
            return None  # an integration may list projects without reading whose they are
        account = answer.get("user") if team_id is None and isinstance(answer, dict) else answer
        if not isinstance(account, dict):
            raise self.nonsense()
        return first_text(account.get("name"), account.get("username"), account.get("slug"))

    def pages(self, tokens: Mapping[str, Any]) -> Iterator[list[Any]]:
        params: dict[str, Any] = {"limit": PAGE_SIZE}
        if tokens["team_id"] is not None:
            params["teamId"] = tokens["team_id"]
        for _ in range(MAX_PROJECTS // PAGE_SIZE):
            answer = self.json_of(self.ask(f"{settings.VERCEL_API_URL}/v9/projects", tokens, params))
            try:
                page, following = answer["projects"], answer["pagination"]["next"]
            except (KeyError, TypeError):
                raise self.nonsense() from None
            if not isinstance(page, list) or not isinstance(following, int | str | None):
                raise self.nonsense()
            yield page
            if following is None:
                return
            params["until"] = following

    def project_of(self, listed: Mapping[str, Any]) -> ProviderProject:
        host = _production_host(listed)
        return ProviderProject(
            external_ref=text_of(listed, "id"),
            name=first_text(listed["name"]) or text_of(listed, "id"),
            url=f"https://{host}" if host else "",
        )


def _production_host(listed: Mapping[str, Any]) -> str | None:
    """A custom domain before one of Vercel's own; of these the shortest, which stays with every deployment."""
    production = (listed.get("targets") or {}).get("production") or {}
    hosts = [host for host in production.get("alias") or [] if not host.startswith("*.")]
    custom = [host for host in hosts if not host.endswith(".vercel.app")]
    return custom[0] if custom else min(hosts, key=len, default=None)
