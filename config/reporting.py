"""Start Sentry and OpenTelemetry if they are configured. Otherwise they are not even imported."""

from __future__ import annotations

from typing import Literal

from celery import signals

Process = Literal["web", "worker", "beat"]


def connect() -> None:
    """Start reporting when a worker or beat starts. `config.rsgi` starts it for the web server. Can be repeated."""
    signals.celeryd_init.connect(lambda **_: begin("worker"), weak=False, dispatch_uid="reporting")
    signals.beat_init.connect(lambda **_: begin("beat"), weak=False, dispatch_uid="reporting")


def begin(process: Process) -> None:
    """Start to report errors and traces of this process, if configured."""
    from django.conf import settings

    if settings.SENTRY_DSN:
        from config import sentry

        sentry.begin(process)
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        from config import tracing

        tracing.begin(process)
