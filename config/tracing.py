"""Traces of requests and tasks, over OTLP by HTTP, to the address of OTEL_EXPORTER_OTLP_ENDPOINT.

The OTEL_ variables of the specification are read by the SDK itself: OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS,
OTEL_RESOURCE_ATTRIBUTES and all others.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, Status

from core.masking import mask, mask_all

_PATIENCE_SEC = 2


def begin(process: str) -> None:
    os.environ.setdefault("OTEL_SERVICE_NAME", f"pulsekeeper-{process}")
    # Of the SDK 10: a process that is told to stop, while the collector is away, would be killed before it has stopped.
    os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", str(_PATIENCE_SEC))
    provider = TracerProvider()
    provider.sampler = OfWork(provider.sampler)
    exporter = Masking(OTLPSpanExporter())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    atexit.register(exporter.leave)  # after the provider, so called before it
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument(tracer_provider=provider)  # type: ignore[no-untyped-call]
    if process == "beat":
        return
    from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor

    PsycopgInstrumentor().instrument(tracer_provider=provider)
    if process == "web":
        from opentelemetry.instrumentation.django import DjangoInstrumentor

        # Where the line of a request is written: below pings, status pages and files.
        place = settings.MIDDLEWARE.index("config.access.told")
        DjangoInstrumentor().instrument(tracer_provider=provider, middleware_position=place)


class OfWork(Sampler):
    """As `inner` decides, but no trace begins with a statement.

    Pings, and the threads that record checks, ask PostgreSQL outside of any request or task: one trace for each
    statement would be thousands a second, and say nothing.
    """

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        alone = not trace.get_current_span(parent_context).get_span_context().is_valid
        if alone and kind is SpanKind.CLIENT:
            return SamplingResult(Decision.DROP)
        return self._inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"OfWork({self._inner.get_description()})"


class Masking(SpanExporter):
    """Sends spans on without secrets: addresses have them in their queries, errors in their texts."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._until = float("inf")  # by the monotonic clock

    def leave(self) -> None:
        """The process ends: what is not sent soon is not worth waiting for."""
        self._until = time.monotonic() + _PATIENCE_SEC

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if time.monotonic() > self._until:
            return SpanExportResult.FAILURE
        return self._inner.export([_masked(span) for span in spans])

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _masked(span: ReadableSpan) -> ReadableSpan:
    status = span.status
    return ReadableSpan(
        name=mask(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=mask_all(span.attributes or {}),
        events=[
            Event(event.name, mask_all(event.attributes or {}), event.timestamp) for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(status.status_code, mask(status.description) if status.description else None),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
