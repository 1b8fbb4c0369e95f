"""The public endpoints of heartbeats' jobs, by far the most frequent requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.urls import path, register_converter
from django.urls.converters import StringConverter
from rest_framework.permissions import AllowAny

from core import throttles
from core.addresses import Client, client_of
from core.api.errors import json_error
from core.api.query import Param
from core.api.viewsets import OkSerializer, ServiceViewSet, operation
from core.clock import utc_now
from core.errors import ApiError, NotFound, TooManyRequests
from core.postgresql.availability import is_outage
from core.throttles import PINGS
from monitors import metrics
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.incoming import EXIT_STATUS, MAX_BODY_BYTES, Signal, Target, signal_of, target_of
from monitors.heartbeats.runs import MICROSECOND

OK = b'{"ok":true}'


class Request(NamedTuple):
    """A request that signals something. `meta` is the META of a request, or a WSGI environ."""

    meta: Mapping[str, Any]
    client: Client
    target: Target
    body: bytes = b""


@dataclass(slots=True)
class Attempt:
    """The state of processing a signal. `kept`: True if it was recorded, False if the heartbeat does not exist, None if
    it is not recorded yet. `error`: why it cannot be recorded."""

    signal: Signal | None = None
    kept: bool | None = None
    error: Exception | None = None

    @property
    def is_pending(self) -> bool:
        return self.kept is None and self.error is None


def attempt_all(requests: Sequence[Request]) -> list[Attempt]:
    """Throttle signals and record the simple ones in one statement. Return an attempt for each, in the same order."""
    now = utc_now()
    waits = throttles.waits(PINGS, [request.client.network for request in requests])
    # In the order of their arrival: one of a run's start and its end comes first.
    attempts = [
        _read(request, wait, now=now + number * MICROSECOND)
        for number, (request, wait) in enumerate(zip(requests, waits, strict=True))
    ]
    simple = [each for each in attempts if each.signal and each.signal.is_plain]
    _keep_up(simple)
    if left := [each for each in simple if each.is_pending]:
        # Second pings of heartbeats that are up, whose jobs end together. More than two take the full path.
        kept = {_heartbeat(each) for each in simple if each.kept}
        _keep_up([each for each in left if _heartbeat(each) in kept])
    return attempts


def _keep_up(simple: Sequence[Attempt]) -> None:
    if not simple:
        return
    try:
        answers = heartbeats.keep_up([each.signal for each in simple if each.signal])
    except Exception as error:  # noqa: BLE001 - raised by `answer`, once for each request
        for each in simple:
            each.error = error
    else:
        for each, is_kept in zip(simple, answers, strict=True):
            each.kept = is_kept or None


def _heartbeat(attempt: Attempt) -> str | None:
    return attempt.signal and attempt.signal.target.monitor_id


def complete_all(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Record pending signals in one transaction. What another transaction has locked stays pending.

    So do all if one of them fails. If the connection was lost they may be recorded: then no one tries again.
    """
    try:
        answers = heartbeats.record_all([each.signal for each in attempts if each.signal], skip_locked=True)
    except Exception as error:  # noqa: BLE001 - raised by `answer`, for each request that causes it
        return [Attempt(each.signal, error=error) for each in attempts] if is_outage(error) else list(attempts)
    return [Attempt(each.signal, kept) for each, kept in zip(attempts, answers, strict=True)]


def _read(request: Request, wait: float | None, *, now: datetime) -> Attempt:
    if wait is not None:
        metrics.PINGS.add(1, "throttled")
        return Attempt(error=TooManyRequests(wait=wait))
    try:
        return Attempt(
            signal_of(request.meta, request.target, request.body, at=now, remote_addr=request.client.address)
        )
    except ApiError as error:
        return Attempt(error=error)


def answer(tried: Attempt) -> HttpResponse:
    """Complete the attempt and return the response. Raises the attempt's error unless it is the client's."""
    if isinstance(tried.error, ApiError):
        return json_error(tried.error)
    if tried.error is not None:
        raise tried.error
    assert tried.signal is not None
    if not (heartbeats.record(tried.signal) if tried.is_pending else tried.kept):
        return json_error(NotFound())
    return HttpResponse(OK, content_type="application/json")


def receive(request: HttpRequest, target: Target) -> HttpResponse:
    """Record a signal of any method. The id is the secret."""
    body = request.read(MAX_BODY_BYTES) if request.method == "POST" else b""
    (tried,) = attempt_all([Request(request.META, client_of(request.META), target, body)])
    return answer(tried)


class SignalConverter(StringConverter):
    regex = f"start|fail|log|{EXIT_STATUS}"


register_converter(SignalConverter, "signal")


class _RunId(Param):
    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "uuid"}


_RID = _RunId("rid", "Identifies a run at its start and end. An end without it belongs to the last start without one.")


class PingViewSet(ServiceViewSet):
    """Only for the URLs and openapi.json: `config.middleware` answers before DRF."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get_parent(self, **_: str) -> None:
        """Look up nothing: recording the signal does."""

    @operation(id="ping_heartbeat", answer=OkSerializer, params=(_RID,), is_public=True)
    def ping(self, monitor_id: str, rid: str | None) -> HttpResponse:
        """Ping a heartbeat.

        The job succeeded. The first 10,000 bytes of the body are kept, of any type, and at most 1,000,000 bytes
        of bodies for each heartbeat and hour.
        """
        return self._receive()

    @operation(id="ping_heartbeat_by_get", answer=OkSerializer, params=(_RID,), is_public=True)
    def ping_by_get(self, monitor_id: str, rid: str | None) -> HttpResponse:
        """Ping a heartbeat."""
        return self._receive()

    @operation(id="signal_heartbeat", answer=OkSerializer, params=(_RID,), is_public=True)
    def signal(self, monitor_id: str, signal: str, rid: str | None) -> HttpResponse:
        """Signal the start, the failure, a log entry or the exit status of a job.

        `start` expects the end of the run within `max_duration_sec`, or `grace_sec` where that is null.
        `fail` and an exit status from 1 to 255 bring the heartbeat down at once, exit status 0 is a ping. `log` changes
        nothing. The first 10,000 bytes of the body are kept, and at most 1,000,000 bytes for each heartbeat and hour.
        """
        return self._receive()

    @operation(id="signal_heartbeat_by_get", answer=OkSerializer, params=(_RID,), is_public=True)
    def signal_by_get(self, monitor_id: str, signal: str, rid: str | None) -> HttpResponse:
        """Signal the start, the failure, a log entry or the exit status of a job."""
        return self._receive()

    def _receive(self) -> HttpResponse:
        request = self.request._request
        target = target_of(request.method, request.path_info)
        assert target is not None
        return receive(request, target)


_PING = PingViewSet.as_view({"post": "ping", "get": "ping_by_get"})
_SIGNAL = PingViewSet.as_view({"post": "signal", "get": "signal_by_get"})
urlpatterns = [
    path("heartbeats/<id:monitor_id>/ping", _PING),
    path("heartbeats/<id:monitor_id>/ping/<signal:signal>", _SIGNAL),
]
