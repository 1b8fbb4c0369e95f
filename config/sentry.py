"""Errors, and a share of the traces, for Sentry.

An error is what is logged as one: every crash of a view, a task or a thread is (`core.api.errors`, Django, Celery). So
nothing stands in the way of a request that is well, and of pings least of all. Traces want to wrap every request;
where none are asked for, nothing is wrapped.
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

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

_LAST_WORDS_SEC = 2  # for what is not told yet when a process ends

# What Django, Celery and the SDK attach of requests, tasks and the process.
_ATTACHED = frozenset({"request", "data", "args", "kwargs", "sys.argv", "celery-job"})


def begin(process: str) -> None:
    rate = settings.SENTRY_TRACES_SAMPLE_RATE
    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        environment=settings.SENTRY_ENVIRONMENT,
        release=settings.SENTRY_RELEASE,
        default_integrations=False,  # they would tell of command lines, modules and the addresses of requests
        auto_enabling_integrations=False,
        integrations=[*_of_errors(), *(_of_traces(process) if rate else ())],
        traces_sampler=_share if rate else None,
        send_default_pii=False,
        max_request_body_size="never",
        include_local_variables=False,
        max_breadcrumbs=0,
        auto_session_tracking=False,
        send_client_reports=False,
        enable_backpressure_handling=False,
        shutdown_timeout=_LAST_WORDS_SEC,
        before_send=_without_secrets,
        before_send_transaction=_without_secrets,
    )
    sentry_sdk.set_tag("process", process)
    ignore_logger("opentelemetry.*")  # that traces cannot be told is no error of ours
    ignore_logger("django.security.DisallowedHost")  # strangers, who would fill the quota


def _of_errors() -> list[Integration]:
    return [
        LoggingIntegration(level=None, event_level=logging.ERROR, sentry_logs_level=None),
        ExcepthookIntegration(),
        ThreadingIntegration(),
        AtexitIntegration(callback=lambda _pending, _timeout: None),  # which would print to the terminal
        DedupeIntegration(),
    ]


def _of_traces(process: str) -> list[Integration]:
    from sentry_sdk.integrations.celery import CeleryIntegration

    if process != "web":
        return [CeleryIntegration()]
    from sentry_sdk.integrations.django import DjangoIntegration

    return [CeleryIntegration(), DjangoIntegration(middleware_spans=False, signals_spans=False)]


def _share(context: dict[str, Any]) -> float:
    """Of pings none: there are thousands of them a second, and each is one statement."""
    path = context.get("wsgi_environ", {}).get("PATH_INFO", "")
    if path.startswith("/v1/heartbeats/") and path.endswith("/ping"):
        return 0.0
    return float(settings.SENTRY_TRACES_SAMPLE_RATE)


def _without_secrets(event: Event, _hint: Hint) -> Event:
    """Named by our ids, and with nothing of a request but what it asked for."""
    found: dict[str, Any] = dict(event)
    ids = {name: value for name, value in {**logs.context(), **logs.trace_ids()}.items() if value}
    found["tags"] = {**(found.get("tags") or {}), **ids}
    found["extra"] = {
        name: value for name, value in (found.get("extra") or {}).items() if name not in _ATTACHED
    }
    if said := found.get("logentry"):  # and not what it is made of: Celery's has the arguments of the task
        found["logentry"] = {name: said.get(name) for name in ("message", "formatted")}
    if request := found.pop("request", None):
        found["request"] = {name: request.get(name) for name in ("method", "url")}
    masked: Event = mask_all(found)
    return masked
