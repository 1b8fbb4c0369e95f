"""Export traces of requests and tasks by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT.

The SDK itself reads the OTEL_ variables of the specification, such as OTEL_TRACES_SAMPLER.
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
    # The default of 10 s could delay a shutdown until the process is killed.
    os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", str(_PATIENCE_SEC))
    provider = TracerProvider()
    provider.sampler = SkipRootStatements(provider.sampler)
    exporter = MaskingExporter(OTLPSpanExporter())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    atexit.register(exporter.begin_shutdown)  # registered after the provider, so it is called before it
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument(tracer_provider=provider)  # type: ignore[no-untyped-call]
    if process == "beat":
        return
    from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor

    PsycopgInstrumentor().instrument(tracer_provider=provider)
    if process == "web":
        from opentelemetry.instrumentation.django import DjangoInstrumentor

        # At the level of the request log, below pings, status pages and static files.
        place = settings.MIDDLEWARE.index("config.access.log_requests")
        DjangoInstrumentor().instrument(tracer_provider=provider, middleware_position=place)


class SkipRootStatements(Sampler):
    """Sample as `inner` does, but never start a trace with a database statement.

    Pings and the recording threads run thousands of statements per second outside any request or task.
    """

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> SamplingResult:
        is_root = not trace.get_current_span(parent_context).get_span_context().is_valid
        if is_root and kind is SpanKind.CLIENT:
            return SamplingResult(Decision.DROP)
        return self._inner.should_sample(parent_context, trace_id, name, kind, *args, **kwargs)

    def get_description(self) -> str:
        return f"SkipRootStatements({self._inner.get_description()})"


class MaskingExporter(SpanExporter):
    """Mask secrets in spans: URLs may contain them in queries, errors in messages."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._until = float("inf")  # on the monotonic clock

    def begin_shutdown(self) -> None:
        """Limit the time for pending exports when the process ends."""
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
        events=[Event(event.name, mask_all(event.attributes or {}), event.timestamp) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(status.status_code, mask(status.description) if status.description else None),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
