"""Send errors and a sample of traces to Sentry.

Errors are taken from the log, which has every crash of a view, task or thread. So error reporting costs successful
requests nothing. Requests are wrapped only for traces, if they are enabled.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import sentry_sdk
from django.conf import settings
from sentry_sdk.integrations import Integration
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.excepthook import ExcepthookIntegration
from sentry_sdk.integrations.logging import LoggingIntegration, ignore_logger
from sentry_sdk.integrations.threading import ThreadingIntegration

from core import logs
from core.masking import mask_all
from core.postgresql.availability import is_outage

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

_SHUTDOWN_SEC = 2  # to send pending events when a process ends

# Extra data that Django, Celery and the SDK attach.
_ATTACHED = frozenset({"request", "data", "args", "kwargs", "sys.argv", "celery-job"})


def begin(process: str) -> None:
    rate = settings.SENTRY_TRACES_SAMPLE_RATE
    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        environment=settings.SENTRY_ENVIRONMENT,
        release=settings.SENTRY_RELEASE,
        default_integrations=False,  # they send command lines, modules and client addresses
        auto_enabling_integrations=False,
        integrations=[*_error_integrations(), *(_trace_integrations(process) if rate else ())],
        traces_sampler=_sample_rate if rate else None,
        send_default_pii=False,
        max_request_body_size="never",
        include_local_variables=False,
        max_breadcrumbs=0,
        auto_session_tracking=False,
        send_client_reports=False,
        enable_backpressure_handling=False,
        shutdown_timeout=_SHUTDOWN_SEC,
        before_send=_prepare_error,
        before_send_transaction=_remove_secrets,
    )
    sentry_sdk.set_tag("process", process)
    ignore_logger("opentelemetry.*")  # failures of the trace exporter
    ignore_logger("django.security.DisallowedHost")  # caused by scanners, which would use up the quota


def _error_integrations() -> list[Integration]:
    return [
        LoggingIntegration(level=None, event_level=logging.ERROR, sentry_logs_level=None),
        ExcepthookIntegration(),
        ThreadingIntegration(),
        AtexitIntegration(callback=lambda _pending, _timeout: None),  # it would print to the terminal
        DedupeIntegration(),
    ]


def _trace_integrations(process: str) -> list[Integration]:
    from sentry_sdk.integrations.celery import CeleryIntegration

    if process != "web":
        return [CeleryIntegration()]
    from sentry_sdk.integrations.django import DjangoIntegration

    return [CeleryIntegration(), DjangoIntegration(middleware_spans=False, signals_spans=False)]


def _sample_rate(context: dict[str, Any]) -> float:
    """Return the sample rate. It is 0 for pings, because there are thousands per second."""
    path = context.get("wsgi_environ", {}).get("PATH_INFO", "")
    if path.startswith("/v1/heartbeats/"):
        return 0.0
    return float(settings.SENTRY_TRACES_SAMPLE_RATE)


def _prepare_error(event: Event, hint: Hint) -> Event | None:
    """Remove secrets. Drop failures because PostgreSQL is away, which would use up the quota."""
    if (crash := hint.get("exc_info")) and is_outage(crash[1]):
        return None
    return _remove_secrets(event, hint)


def _remove_secrets(event: Event, _hint: Hint) -> Event:
    """Add our ids, and remove everything but method and address of a request."""
    data: dict[str, Any] = dict(event)
    ids = {name: value for name, value in {**logs.context(), **logs.trace_ids()}.items() if value}
    data["tags"] = {**(data.get("tags") or {}), **ids}
    data["extra"] = {name: value for name, value in (data.get("extra") or {}).items() if name not in _ATTACHED}
    if entry := data.get("logentry"):  # without its parameters: those of Celery are the arguments of the task
        data["logentry"] = {name: entry.get(name) for name in ("message", "formatted")}
    if request := data.pop("request", None):
        data["request"] = {name: request.get(name) for name in ("method", "url")}
    masked: Event = mask_all(data)
    return masked
