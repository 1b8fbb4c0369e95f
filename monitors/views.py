"""Endpoints of monitors. Views read the request and answer; services decide and write."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.idempotency import Created, create_once
from core.api.pagination import Page, page_parameters
from core.api.schema import IDEMPOTENCY_KEY, ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from core.errors import IdempotencyKeySpent, NotFound
from core.throttles import CallerThrottle, ProbeThrottle
from core.waiting import waiting_place
from monitors import selectors, services, types
from monitors.probing import interactive
from monitors.serializers import (
    CheckResultSerializer,
    MonitorInputSerializer,
    MonitorPatchSerializer,
    MonitorSerializer,
    MuteSerializer,
    shown,
)
from projects.access import Caller, caller_of


class MonitorList(APIView):
    throttle_classes = (CallerThrottle, ProbeThrottle)

    @extend_schema(
        operation_id="list_monitors",
        summary="List monitors",
        parameters=page_parameters(),
        responses=MonitorSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_monitors(caller_of(request)))
        return page.response(shown(page.rows))

    @extend_schema(
        operation_id="create_monitor",
        summary="Create a monitor",
        description="Answers once a worker made the first check, or, where none did in time, with null status.",
        parameters=[IDEMPOTENCY_KEY],
        request=MonitorInputSerializer,
        responses={201: MonitorSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        given = body_of(request, MonitorInputSerializer)
        # Before anything is stored: a request that finds no place leaves nothing behind.
        is_checked = not types.get(given.get("type", types.DEFAULT)).waits
        with waiting_place(caller.account) if is_checked else nullcontext():
            return self._create(request, caller, given)

    def _create(self, request: Request, caller: Caller, given: dict[str, Any]) -> Response:
        now = utc_now()

        def make() -> Created:
            return Created(services.create_monitor(caller, given, now=now).public_id)

        made = create_once(request, caller, make, now=now)
        try:
            monitor = selectors.get_monitor(caller, made.object_id)
        except NotFound:
            if made.repeated:
                raise IdempotencyKeySpent from None
            raise
        if made.repeated:
            # The first request may still be waiting for the first check, which belongs in the answer.
            interactive.await_first_check(monitor, claim=services.FIRST_CLAIM)
        elif not monitor.kind.waits and not interactive.first_check(monitor, claim=services.FIRST_CLAIM):
            services.release_first_claim(monitor, now=utc_now())
        return Response(shown([selectors.get_monitor(caller, monitor.public_id)])[0], status=201)


class MonitorTest(APIView):
    throttle_classes = (CallerThrottle, ProbeThrottle)

    @extend_schema(
        operation_id="test_monitor",
        summary="Check a draft once, saving nothing",
        request=MonitorInputSerializer,
        responses={200: CheckResultSerializer, 503: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        config = services.config_of(caller, body_of(request, MonitorInputSerializer))
        spec = services.test_spec(config)
        with waiting_place(caller.account):
            return Response(interactive.check_draft(spec))


class MonitorDetail(APIView):
    @extend_schema(operation_id="get_monitor", summary="Read a monitor", responses=MonitorSerializer)
    def get(self, request: Request, monitor_id: str) -> Response:
        return Response(shown([selectors.get_monitor(caller_of(request), monitor_id)])[0])

    @extend_schema(
        operation_id="update_monitor",
        summary="Change a monitor",
        description="Stored header values are dropped, unless they are given again in the same request, when the "
        "request would go to another server (scheme, host or port of `url`, or the Host header) or when `project_id` "
        "moves the monitor to another owner, which also drops `request_body` and needs the role owner or admin in the "
        "project that it leaves (403 `forbidden`). The answer says so: such a header has `value_dropped`.",
        request=MonitorPatchSerializer,
        responses={200: MonitorSerializer, 403: ErrorSerializer},
    )
    def patch(self, request: Request, monitor_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_monitor(caller, monitor_id)  # not found goes before what is wrong with the body
        given = body_of(request, MonitorPatchSerializer)
        monitor = services.update_monitor(caller, monitor_id, given, now=utc_now())
        return Response(shown([monitor])[0])

    @extend_schema(operation_id="delete_monitor", summary="Delete a monitor", responses={200: OkSerializer})
    def delete(self, request: Request, monitor_id: str) -> Response:
        services.delete_monitor(caller_of(request), monitor_id)
        return Response(OK)


class MonitorMute(APIView):
    @extend_schema(
        operation_id="mute_monitor",
        summary="Suppress down-detection and alerts of a monitor for a while",
        request=MuteSerializer,
        responses=MonitorSerializer,
    )
    def post(self, request: Request, monitor_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_monitor(caller, monitor_id)
        minutes = body_of(request, MuteSerializer)["minutes"]
        return Response(shown([services.mute_monitor(caller, monitor_id, minutes=minutes, now=utc_now())])[0])
