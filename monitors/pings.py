"""The public ping of a heartbeat, the most frequent request by far."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from core.addresses import client_network
from core.api.errors import json_error
from core.api.views import OkSerializer
from core.clock import utc_now
from core.errors import NotFound
from core.throttles import PINGS, seconds_to_wait
from monitors import metrics, pulses

_OK = b'{"ok":true}'


def ping(request: HttpRequest, monitor_id: str) -> HttpResponse:
    """Take in a ping by whatever method. The id is the secret, and the body is not looked at."""
    wait = seconds_to_wait(PINGS, client_network(request))
    if wait is not None:
        metrics.PINGS.add(1, "throttled")
        return json_error(Throttled(wait))
    if not pulses.record_ping(monitor_id, now=utc_now()):
        return json_error(NotFound())
    return HttpResponse(_OK, content_type="application/json")


class HeartbeatPing(APIView):
    """The place of the ping among the endpoints. `config.middleware` calls `ping` before it comes to this."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = ()

    @extend_schema(
        operation_id="ping_heartbeat", summary="Ping a heartbeat", request=None, responses={200: OkSerializer}
    )
    def post(self, request: Request, monitor_id: str) -> HttpResponse:
        return ping(request._request, monitor_id)

    @extend_schema(
        operation_id="ping_heartbeat_by_get", summary="Ping a heartbeat", responses={200: OkSerializer}
    )
    def get(self, request: Request, monitor_id: str) -> HttpResponse:
        return ping(request._request, monitor_id)

    head = get
