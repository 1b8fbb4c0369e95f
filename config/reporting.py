"""Sentry and OpenTelemetry, each for the processes that run where it is set. What is not set is not imported."""

from __future__ import annotations

from typing import Literal

from celery import signals

Process = Literal["web", "worker", "beat"]


def connect() -> None:
    """Begin when Celery's process does. `config.wsgi` begins by itself."""
    signals.celeryd_init.connect(_worker)
    signals.beat_init.connect(_beat)


def _worker(**_: object) -> None:
    begin("worker")


def _beat(**_: object) -> None:
    begin("beat")


def begin(process: Process) -> None:
    """Report from here on what this process does, if anybody wants to know."""
    from django.conf import settings

    if settings.SENTRY_DSN:
        from config import sentry

        sentry.begin(process)
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        from config import tracing

        tracing.begin(process)
