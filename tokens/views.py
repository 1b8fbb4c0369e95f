"""Signing in and out, and project tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from accounts.serializers import AccountSerializer
from core.api.pagination import Page, page_parameters
from core.api.schema import ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from core.errors import ProjectRequired
from core.throttles import CallerThrottle, PasswordThrottle, SignInEmailThrottle, SignInThrottle
from projects import idempotency
from projects.access import caller_of
from projects.idempotency import Made
from projects.schema import IDEMPOTENCY_KEY
from tokens import services
from tokens.serializers import (
    AccountDeletionSerializer,
    AccountPatchSerializer,
    SessionCreatedSerializer,
    SessionInputSerializer,
    SessionSerializer,
    TokenCreatedSerializer,
    TokenInputSerializer,
    TokenSerializer,
)


class SessionList(APIView):
    """Signing in is for everybody, the list for whoever has done so."""

    @property
    def _signing_in(self) -> bool:
        return self.request is not None and self.request.method == "POST"

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [] if self._signing_in else super().get_authenticators()

    def get_permissions(self) -> Sequence[Any]:
        return [AllowAny()] if self._signing_in else super().get_permissions()

    def get_throttles(self) -> list[BaseThrottle]:
        return [SignInThrottle(), SignInEmailThrottle()] if self._signing_in else super().get_throttles()

    @extend_schema(
        operation_id="list_sessions",
        summary="List the sessions of the API",
        description="Of one's own account. Browsers that are signed in to the dashboard are listed there.",
        parameters=page_parameters(),
        responses={200: SessionSerializer(many=True), 403: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        page = Page(request, services.list_sessions(caller_of(request), now=utc_now()), newest_first=True)
        context = {"lookup": services.session_lookup(str(request.auth))}
        return page.response(SessionSerializer(page.rows, many=True, context=context).data)

    @extend_schema(
        operation_id="create_session",
        summary="Sign in",
        description="With the second factor on, `code` is asked for by 401 `mfa_required`.",
        request=SessionInputSerializer,
        responses={
            201: SessionCreatedSerializer,
            401: ErrorSerializer,
            403: ErrorSerializer,
            429: ErrorSerializer,
        },
    )
    def post(self, request: Request) -> Response:
        given = body_of(request, SessionInputSerializer)
        session, plaintext = services.sign_in(
            email=given["email"], password=given["password"], code=given.get("code"), now=utc_now()
        )
        shown = {"token": plaintext, "expires_at": session.expires_at, "user": session.user}
        return Response(SessionCreatedSerializer(shown).data, status=201)


class CurrentSession(APIView):
    @extend_schema(
        operation_id="delete_current_session",
        summary="Sign out",
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request) -> Response:
        caller_of(request).require_session()
        services.sign_out(str(request.auth))
        return Response(OK)


class SessionDetail(APIView):
    @extend_schema(
        operation_id="delete_session",
        summary="End a session",
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request, session_id: str) -> Response:
        services.end_session(caller_of(request), session_id)
        return Response(OK)


class Account(APIView):
    """Here, not in accounts: who asks is known from this floor upwards."""

    throttle_classes = (CallerThrottle, PasswordThrottle)
    delete_has_body = True

    @extend_schema(
        operation_id="get_account",
        summary="Read the account, its plan and what it uses of it",
        responses={200: AccountSerializer, 403: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        return Response(AccountSerializer(caller.user).data)

    @extend_schema(
        operation_id="update_account",
        summary="Change the password",
        description="Ends every session of the account, this one included.",
        request=AccountPatchSerializer,
        responses={200: AccountSerializer, 403: ErrorSerializer},
    )
    def patch(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        given = body_of(request, AccountPatchSerializer)
        user = services.change_password(caller, current=given["current_password"], new=given["password"])
        return Response(AccountSerializer(user).data)

    @extend_schema(
        operation_id="delete_account",
        summary="Delete the account",
        description="With its monitors, alert channels, maintenance windows, connectors, tokens and projects. Refused "
        "with 409 `projects_shared` as long as other people are members of its projects.",
        request=AccountDeletionSerializer,
        responses={200: OkSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def delete(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        services.delete_account(caller, password=body_of(request, AccountDeletionSerializer)["password"])
        return Response(OK)


class TokenList(APIView):
    @extend_schema(
        operation_id="list_tokens",
        summary="List project tokens",
        parameters=page_parameters(),
        responses={200: TokenSerializer(many=True), 403: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        page = Page(request, services.list_tokens(caller))
        return page.response(TokenSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="create_token",
        summary="Create a project token",
        parameters=[IDEMPOTENCY_KEY],
        request=TokenInputSerializer,
        responses={
            201: TokenCreatedSerializer,
            400: ErrorSerializer,
            403: ErrorSerializer,
            409: ErrorSerializer,
        },
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        if isinstance(request.data, dict) and not request.data.get("project_id"):
            raise ProjectRequired
        given = body_of(request, TokenInputSerializer)
        now = utc_now()

        def make() -> Made:
            token, plaintext = services.create_token(
                caller,
                project_id=given["project_id"],
                name=given["name"],
                ttl_seconds=given.get("ttl_seconds"),
                now=now,
            )
            return Made(token.public_id, TokenSerializer(token).data | {"token": plaintext})

        return Response(idempotency.once(request, caller, make, now=now).answer, status=201)


class TokenDetail(APIView):
    @extend_schema(
        operation_id="revoke_token",
        summary="Revoke a project token",
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request, token_id: str) -> Response:
        caller = caller_of(request)
        caller.require_session()
        services.revoke_token(caller, token_id)
        return Response(OK)
