"""Sign-in with the OpenID provider of this deployment (docs/adr/0056): who someone is, and in which groups.

social-core validates ID tokens. This module restricts what it trusts, and what a slow or broken provider can cost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.functional import classproperty
from social_core.backends.open_id_connect import OpenIdConnectAuth
from social_core.exceptions import AuthResponseError, SocialAuthBaseException
from social_core.utils import cache

from accounts.models import User
from connectors.providers.guarded import OAuthRefused, ProviderFailed
from core.egress import EgressGuard
from signin.social.base import SignInBackend

logger = logging.getLogger(__name__)

CACHED_SEC = 3600  # discovery and keys, in each web process; an unknown key is looked up at once
MAX_BODY = 1024 * 1024
MAX_REQUESTS = 8
"""Requests to the provider at the same time, of a web process: fewer than `core.waiting.MAX_STRANGERS`."""
MAX_UID = 255  # of the column
MAX_URL = 255  # of the column in which social-auth stores the authorization endpoint
FRESH_SEC = 300
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# The provider is a setting, so it may be in any network. Addresses that serve credentials of clouds stay refused.
_EVERYWHERE = EgressGuard(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
_places = threading.BoundedSemaphore(MAX_REQUESTS)


class NotAdmitted(OAuthRefused):
    """The provider knows the person, but none of their groups may sign in. `user`: the account of the identity."""

    def __init__(self, text: str, *, user: User | None) -> None:
        super().__init__(text)
        self.user = user


def uses_groups() -> bool:
    return bool(settings.OIDC_ALLOWED_GROUPS or settings.OIDC_STAFF_GROUPS or settings.OIDC_PROJECT_ROLES)


class OpenID(SignInBackend, OpenIdConnectAuth[Any]):
    """`groups`: those of the person, after `finish`. None if no setting uses groups."""

    name = "oidc"
    ID_KEY = "sub"
    DEFAULT_USE_PKCE = True
    JWT_ALGORITHMS = ["RS256", "PS256", "ES256"]  # noqa: RUF012  (as social-auth declares it)
    max_body = MAX_BODY
    groups: list[str] | None = None

    @classproperty
    def title(cls) -> str:  # noqa: N805
        return str(settings.OIDC_NAME)

    @classmethod
    def is_configured(cls) -> bool:
        return bool(settings.OIDC_ISSUER) and super().is_configured()

    def egress(self) -> EgressGuard:
        return _EVERYWHERE

    def send(self, method: str, url: str, **given: Any) -> requests.Response:
        if not _places.acquire(blocking=False):
            raise self.failed("is slow to answer; try again later")
        try:
            return super().send(method, url, **given)
        finally:
            _places.release()

    def failure(self, error: SocialAuthBaseException) -> ProviderFailed:
        # Not the text of the error, which may contain tokens.
        logger.warning(
            "sign-in by OpenID Connect failed: %s, claim %s, stage %s, status %s",
            error.code, getattr(error, "claim", None), error.stage, error.status_code,
        )  # fmt: skip
        return super().failure(error)

    def oidc_endpoint(self) -> str:
        return str(settings.OIDC_ISSUER.rstrip("/"))

    @cache(ttl=CACHED_SEC)
    def get_openid_configuration(self, url: str) -> dict[str, Any]:
        """Return the discovery document. Raises ProviderFailed unless it is that of OIDC_ISSUER."""
        found = self.json_of(self.request(url, stage="begin"))
        if not isinstance(found, dict):
            raise self.malformed()
        if found.get("issuer") != settings.OIDC_ISSUER:
            logger.error("OIDC_ISSUER is %r, but the provider says %r", settings.OIDC_ISSUER, found.get("issuer"))
            raise self.failed("is not set up correctly: the issuer differs from OIDC_ISSUER")
        schemes = ("https",) if settings.OIDC_ISSUER.startswith("https:") else ("https", "http")
        for name in (*NEEDED, *(["userinfo_endpoint"] if "userinfo_endpoint" in found else [])):
            if not _is_url(found.get(name), schemes):
                logger.error("%s of the provider is not a valid address", name)
                raise self.malformed()
        return found

    @cache(ttl=CACHED_SEC)
    def get_jwks_keys_for_uri(self, uri: str) -> list[dict[str, Any]]:
        return self.get_remote_jwks_keys(uri)

    def get_scope(self) -> list[str]:
        """Return the scopes to request. Groups need no scope at some providers, `profile` or their own at others."""
        if not uses_groups():
            return ["openid", "email"]
        known = self.oidc_config().get("scopes_supported")
        known = known if isinstance(known, list) else []
        return ["openid", "email", *(name for name in ("profile", settings.OIDC_GROUPS_CLAIM) if name in known)]

    def start(self) -> HttpResponse:
        """Return a page that leads to the provider. Raises ProviderFailed.

        Not a redirect: browsers apply `form-action` of our pages to all redirects that follow a form, and the provider
        may redirect to any host, for example to another provider.
        """
        try:
            url = self.auth_url()
        except SocialAuthBaseException as error:
            raise self.failure(error) from None
        request = cast("Any", self.strategy).request
        return render(request, "accounts/leaving.html", {"title": self.title, "url": url})

    def finish(self, **context: Any) -> Any:
        issuer = self.data.get("iss")  # RFC 9207
        if issuer is not None and issuer != settings.OIDC_ISSUER:
            raise OAuthRefused(f"This response is not from {self.title}. Start again.")
        return super().finish(**context)

    def request_access_token(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """Redeem the code and validate the ID token. Raises ProviderFailed, also for keys and claims of wrong types."""
        try:
            return super().request_access_token(*args, **kwargs)
        except SocialAuthBaseException:  # a ValueError, too
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise self.malformed() from None

    def user_data(self, access_token: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if kwargs["begun"].get("again"):
            self._require_fresh()
        return super().user_data(access_token)

    def _require_fresh(self) -> None:
        """Require that the person has just entered their credentials. Not all providers know `max_age`."""
        at = (self.id_token or {}).get("auth_time")
        if at is not None and not (isinstance(at, int | float) and time.time() - at <= FRESH_SEC):
            raise OAuthRefused(
                f"{self.title} did not ask for your credentials again. Sign out there, then start again."
            )

    def identify(self, access_token: str) -> dict[str, Any]:
        claims = dict(self.id_token or {})
        sources = [claims]
        needed = ["email", *([settings.OIDC_GROUPS_CLAIM] if uses_groups() else [])]
        url = self.oidc_config().get("userinfo_endpoint")
        if url is not None and not all(name in claims for name in needed):
            sources.append(self.get(url, access_token))
            if sources[1]["sub"] != claims["sub"]:
                raise ValueError("sub")
        self.groups = self._groups(sources) if uses_groups() else None
        return {"identity": self._identity(claims["sub"]), "email": _verified_address(sources)}

    def _identity(self, subject: str) -> str:
        """Return the key of the identity: two providers may give the same subject to different people."""
        identity = f"{settings.OIDC_ISSUER} {subject}"
        if not subject or "\0" in subject or len(identity) > MAX_UID:
            raise ValueError("sub")
        return identity

    def get_user_id(self, details: Any, response: Mapping[str, Any]) -> str:
        return str(response["identity"])

    def get_user_groups(self, response: Any) -> list[str] | None:
        return self.groups

    def links_of(self, user: User) -> Any:
        """Return the identities of this issuer: those of a former provider do not count."""
        return super().links_of(user).filter(uid__startswith=f"{settings.OIDC_ISSUER} ")

    def _groups(self, sources: Sequence[Mapping[str, Any]]) -> list[str]:
        claim = settings.OIDC_GROUPS_CLAIM
        for source in sources:
            if claim in source:
                value = source[claim]
                groups = [value] if isinstance(value, str) else value or []
                if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
                    logger.error("the claim %r of the provider is not a list of names", claim)
                    raise AuthResponseError(self, claim=claim, code="invalid_claim", stage="user_info")
                return groups
            if "hasgroups" in source or claim in (source.get("_claim_names") or {}):
                logger.error("the provider has left out the claim %r, because the list is too long", claim)
                raise OAuthRefused(f"{self.title} leaves out your groups, because there are too many.")
        # Many providers leave the claim out for people without groups.
        logger.info("the provider sent no claim %r: the person counts as being in no group", claim)
        return []


def _is_url(value: Any, schemes: Sequence[str]) -> bool:
    if not isinstance(value, str) or len(value) > MAX_URL:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in schemes and bool(parts.hostname)
    except ValueError:
        return False


def _verified_address(sources: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the address of the first source that has one, if that source says it is verified."""
    for source in sources:
        if "email" in source:
            # Entra has no `email_verified`; it says the same of addresses in domains that the tenant has proven.
            verified = source.get("email_verified", source.get("xms_edov") in (True, 1, "1", "true"))
            return source["email"] if verified is True else None
    return None
