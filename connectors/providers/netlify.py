"""Netlify: an OAuth application. Its documentation gives tokens no lifetime; one that comes with them is heeded.

https://docs.netlify.com/api-and-cli-guides/api-guides/get-started-with-api, https://open-api.netlify.com
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from social_core.backends.oauth import BaseOAuth2PKCE

from connectors.providers.backend import PAGE_SIZE, ProviderBackend, first_text


class Netlify(ProviderBackend, BaseOAuth2PKCE[Any]):
    """Sends PKCE, which a server that does not know it ignores (RFC 7636, 5)."""

    name = "netlify"
    title = "Netlify"
    needs = "the account that links it needs access to the sites of the team"

    def authorization_url(self) -> str:
        return f"{settings.NETLIFY_URL}/authorize"

    def access_token_url(self) -> str:
        return f"{settings.NETLIFY_API_URL}/oauth/token"

    def account_name(self, tokens: Mapping[str, Any]) -> str | None:
        account = self.json_of(self.ask(f"{settings.NETLIFY_API_URL}/api/v1/user", tokens))
        if not isinstance(account, dict):
            raise self.malformed()
        return first_text(account.get("full_name"), account.get("email"))

    def page(self, tokens: Mapping[str, Any], cursor: str | None) -> tuple[list[Any], str | None]:
        number = int(cursor or 1)
        params = {"page": number, "per_page": PAGE_SIZE}
        response = self.ask(f"{settings.NETLIFY_API_URL}/api/v1/sites", tokens, params)
        page = self.json_of(response)
        if not isinstance(page, list):
            raise self.malformed()
        return page, str(number + 1) if "next" in response.links else None

    def url_of(self, listed: Mapping[str, Any]) -> str:
        if domain := first_text(listed.get("custom_domain")):
            return f"https://{domain}"
        found = first_text(listed.get("ssl_url"), listed.get("url")) or ""
        return urlsplit(found)._replace(scheme="https").geturl() if found else ""
