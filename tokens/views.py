"""Signing in and out, and project tokens."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

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
    AccountPatchSerializer,
    AccountSerializer,
    SessionCreatedSerializer,
    SessionInputSerializer,
    TokenCreatedSerializer,
    TokenInputSerializer,
    TokenSerializer,
)


class SessionList(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = (SignInThrottle, SignInEmailThrottle)

    @extend_schema(
        operation_id="create_session",
        summary="Sign in",
        request=SessionInputSerializer,
        responses={201: SessionCreatedSerializer, 401: ErrorSerializer, 429: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        given = body_of(request, SessionInputSerializer)
        session, plaintext = services.sign_in(email=given["email"], password=given["password"], now=utc_now())
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


class Account(APIView):
    """Here, not in accounts: who asks is known from this floor upwards."""

    throttle_classes = (CallerThrottle, PasswordThrottle)

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
