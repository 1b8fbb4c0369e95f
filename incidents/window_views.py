"""Endpoints of maintenance windows."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.idempotency import Created, create_once
from core.api.pagination import Page, page_parameters
from core.api.schema import IDEMPOTENCY_KEY, ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from incidents import selectors, windows
from incidents.serializers import WindowInputSerializer, WindowPatchSerializer, WindowSerializer
from projects.access import caller_of


class WindowList(APIView):
    @extend_schema(
        operation_id="list_maintenance_windows",
        summary="List maintenance windows",
        parameters=page_parameters(),
        responses=WindowSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_windows(caller_of(request)))
        return page.response(WindowSerializer(page.rows, many=True, context={"now": utc_now()}).data)

    @extend_schema(
        operation_id="create_maintenance_window",
        summary="Create a maintenance window",
        description="While it is on, alerts of its monitors are held back; checks, statuses and incidents go on.",
        parameters=[IDEMPOTENCY_KEY],
        request=WindowInputSerializer,
        responses={201: WindowSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        given = body_of(request, WindowInputSerializer)
        now = utc_now()

        def make() -> Created:
            window = windows.create_window(caller, given, now=now)
            return Created(window.public_id, WindowSerializer(window, context={"now": now}).data)

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class WindowDetail(APIView):
    @extend_schema(
        operation_id="get_maintenance_window",
        summary="Read a maintenance window",
        responses=WindowSerializer,
    )
    def get(self, request: Request, window_id: str) -> Response:
        window = selectors.get_window(caller_of(request), window_id)
        return Response(WindowSerializer(window, context={"now": utc_now()}).data)

    @extend_schema(
        operation_id="update_maintenance_window",
        summary="Change a maintenance window",
        request=WindowPatchSerializer,
        responses=WindowSerializer,
    )
    def patch(self, request: Request, window_id: str) -> Response:
        caller, now = caller_of(request), utc_now()
        selectors.get_window(caller, window_id)  # not found goes before what is wrong with the body
        given = body_of(request, WindowPatchSerializer)
        window = windows.update_window(caller, window_id, given, now=now)
        return Response(WindowSerializer(window, context={"now": now}).data)

    @extend_schema(
        operation_id="delete_maintenance_window",
        summary="Delete a maintenance window",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, window_id: str) -> Response:
        windows.delete_window(caller_of(request), window_id)
        return Response(OK)
