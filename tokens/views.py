"""Sessions, the account, and project tokens."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from accounts.models import User
from accounts.serializers import AccountSerializer
from accounts.services import change_password
from core.api.query import Pages
from core.api.viewsets import OkSerializer, ServiceViewSet, operation
from core.credentials import lookup_of
from core.errors import EmailUnverified, InvalidCredentials, LimitReached, ProjectRequired, ProjectsShared
from core.throttles import PasswordThrottle, SignInThrottle
from tokens import serializers, services
from tokens.models import ProjectToken, Session

MAX_SIGN_IN_BYTES = 16 * 1024
"""Strangers send it, and 256 KiB of JSON take 50 ms."""


class SessionViewSet(ServiceViewSet):
    noun = "session"
    lookup_url_kwarg = "session_id"
    serializer_class = serializers.SessionSerializer
    session_only = True

    def get_serializer_context(self) -> dict[str, Any]:
        context = super().get_serializer_context()
        if getattr(self, "swagger_fake_view", False):  # the schema has no request to authenticate
            return context
        return context | {"lookup": lookup_of(str(self.request.auth), prefix=services.SESSION_PREFIX)}

    @operation(pages=Pages(newest_first=True))
    def list(self) -> QuerySet[Session]:
        """List the sessions of the API.

        Of the caller's own account. Browsers that are signed in to the dashboard are listed there.
        """
        return services.list_sessions(self.caller, now=self.now)

    @operation(
        body=serializers.SessionInputSerializer,
        max_bytes=MAX_SIGN_IN_BYTES,
        answer=serializers.SessionCreatedSerializer,
        errors=(InvalidCredentials, EmailUnverified),
        throttles=(SignInThrottle,),
        is_public=True,
        is_idempotent=False,
    )
    def create(self, data: dict[str, Any]) -> dict[str, Any]:
        """Sign in.

        With a second factor, `code` is required: 401 `mfa_required`.
        """
        session, plaintext = services.sign_in(**data, now=self.now)
        return {"token": plaintext, "expires_at": session.expires_at, "user": session.user}

    @operation("current", method="delete", detail=False, id="delete_current_session", answer=OkSerializer)
    def current(self) -> None:
        """Sign out."""
        services.sign_out(str(self.request.auth))

    @operation()
    def destroy(self, session_id: str) -> None:
        """End a session."""
        services.end_session(self.caller, session_id)


class AccountViewSet(ServiceViewSet):
    """The caller's account. Not in `accounts`, because callers are defined in this higher layer."""

    noun = "account"
    is_singleton = True
    serializer_class = AccountSerializer
    session_only = True

    @operation()
    def retrieve(self) -> User:
        """Read the account, its plan and its usage."""
        user: User = self.caller.user
        return user

    @operation(body=serializers.AccountPatchSerializer, throttles=(PasswordThrottle,))
    def partial_update(self, data: dict[str, Any]) -> User:
        """Change the password.

        Ends all sessions of the account, including this one.
        """
        return change_password(self.caller.user, current=data["current_password"], new=data["password"])

    @operation(body=serializers.AccountDeletionSerializer, errors=(ProjectsShared,), throttles=(PasswordThrottle,))
    def destroy(self, data: dict[str, Any]) -> None:
        """Delete the account.

        With its monitors, alert channels, maintenance windows, connectors, tokens and projects. Refused with 409
        `projects_shared` as long as other people are members of its projects.
        """
        services.delete_account(self.caller, password=data["password"])


class TokenViewSet(ServiceViewSet):
    noun = "token"
    lookup_url_kwarg = "token_id"
    serializer_class = serializers.TokenSerializer
    session_only = True

    @operation()
    def list(self) -> QuerySet[ProjectToken]:
        """List project tokens."""
        return services.list_tokens(self.caller)

    @operation(
        body=serializers.TokenInputSerializer,
        answer=serializers.TokenCreatedSerializer,
        errors=(ProjectRequired, LimitReached),
    )
    def create(self, data: dict[str, Any]) -> ProjectToken:
        """Create a project token."""
        token, self.secret = services.create_token(self.caller, **data, now=self.now)
        return token

    @operation(id="revoke_token")
    def destroy(self, token_id: str) -> None:
        """Revoke a project token."""
        services.revoke_token(self.caller, token_id)
