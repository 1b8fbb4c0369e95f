"""The public ping of a heartbeat, the most frequent request by far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from core.addresses import network_of
from core.api.errors import json_error
from core.api.views import OkSerializer
from core.clock import utc_now
from core.errors import NotFound
from core.throttles import PINGS, seconds_to_wait
from monitors import metrics, pulses

OK = b'{"ok":true}'


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a ping, short of holding its heartbeat: `kept` says that this was enough, `wait` that it was too
    soon, in seconds, and `error` what went wrong."""

    at: datetime
    kept: bool = False
    wait: float | None = None
    error: Exception | None = None


def attempt(meta: Mapping[str, Any], monitor_id: str) -> Attempt:
    """Count a ping and take it in, if that is simple. `meta` is that of a request, or a WSGI environ."""
    now = utc_now()
    wait = seconds_to_wait(PINGS, network_of(meta))
    if wait is not None:
        metrics.PINGS.add(1, "throttled")
        return Attempt(now, wait=wait)
    try:
        return Attempt(now, kept=pulses.keep_up(monitor_id, now=now))
    except Exception as error:  # noqa: BLE001 - raised by `answer`, where there is somebody to tell of it
        return Attempt(now, error=error)


def answer(monitor_id: str, tried: Attempt) -> HttpResponse:
    """Do what is left to do after the attempt. Raises its error."""
    if tried.error is not None:
        raise tried.error
    if tried.wait is not None:
        return json_error(Throttled(tried.wait))
    if not (tried.kept or pulses.record_under_lock(monitor_id, now=tried.at)):
        return json_error(NotFound())
    return HttpResponse(OK, content_type="application/json")


def ping(request: HttpRequest, monitor_id: str) -> HttpResponse:
    """Take in a ping by whatever method. The id is the secret, and the body is not looked at."""
    return answer(monitor_id, attempt(request.META, monitor_id))


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
