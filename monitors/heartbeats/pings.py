"""The public ping endpoint of heartbeats, by far the most frequent request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from rest_framework.permissions import AllowAny

from core.addresses import network_of
from core.api.errors import json_error
from core.api.viewsets import OkSerializer, ServiceViewSet, operation
from core.clock import utc_now
from core.errors import NotFound, TooManyRequests
from core.throttles import PINGS, seconds_to_wait
from monitors import metrics
from monitors.heartbeats import signals

OK = b'{"ok":true}'


class Ping(NamedTuple):
    """A ping to record. `meta` is the META of a request, or a WSGI environ."""

    meta: Mapping[str, Any]
    monitor_id: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """The first, cheap attempt to record a ping. `kept`: it was recorded. Otherwise `wait` is the number of seconds by
    which it exceeded the throttle, or `error` is the exception."""

    at: datetime
    kept: bool = False
    wait: float | None = None
    error: Exception | None = None


def attempt_all(pings: Sequence[Ping]) -> list[Attempt]:
    """Throttle pings and record the simple ones in one statement. Return an attempt for each, in the same order."""
    now = utc_now()
    waits = [seconds_to_wait(PINGS, network_of(ping.meta)) for ping in pings]
    metrics.PINGS.add(sum(wait is not None for wait in waits), "throttled")
    passed = [(ping.monitor_id, now) for ping, wait in zip(pings, waits, strict=True) if wait is None]
    try:
        kept = iter(signals.keep_up(passed) if passed else ())
    except Exception as error:  # noqa: BLE001 - raised by `answer`, once for each request
        return [Attempt(now, wait=wait, error=error if wait is None else None) for wait in waits]
    return [Attempt(now, wait=wait) if wait is not None else Attempt(now, kept=next(kept)) for wait in waits]


def answer(monitor_id: str, tried: Attempt) -> HttpResponse:
    """Complete the attempt and return the response. Raises the attempt's error."""
    if tried.error is not None:
        raise tried.error
    if tried.wait is not None:
        return json_error(TooManyRequests(wait=tried.wait))
    if not (tried.kept or signals.record_under_lock(monitor_id, now=tried.at)):
        return json_error(NotFound())
    return HttpResponse(OK, content_type="application/json")


def ping(request: HttpRequest, monitor_id: str) -> HttpResponse:
    """Record a ping of any method. The id is the secret; the body is not read."""
    (tried,) = attempt_all([Ping(request.META, monitor_id)])
    return answer(monitor_id, tried)


class PingViewSet(ServiceViewSet):
    """Only for the URL and openapi.json: `config.middleware` answers before DRF."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @operation(id="ping_heartbeat", answer=OkSerializer, is_public=True)
    def ping(self, monitor_id: str) -> HttpResponse:
        """Ping a heartbeat."""
        return ping(self.request._request, monitor_id)

    @operation(id="ping_heartbeat_by_get", answer=OkSerializer, is_public=True)
    def ping_by_get(self, monitor_id: str) -> HttpResponse:
        """Ping a heartbeat."""
        return ping(self.request._request, monitor_id)
