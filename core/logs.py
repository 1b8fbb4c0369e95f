"""Log lines as JSON or text, with the ids that every line of a request or a task has.

Code logs with `logging.getLogger(__name__)` and ids as `extra`, and uses `bound` for fields of all lines. structlog
formats them (docs/adr/0022). It is loaded with the first line, because many processes write none.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

from core.masking import mask_all
from core.optional_imports import blocked

_bound: ContextVar[dict[str, Any] | None] = ContextVar("bound", default=None)
_META = frozenset({"_record", "_from_structlog", "exc_info", "stack_info"})
_OF_OTHERS = frozenset({"message", "asctime"})  # other formatters leave them in a record
_FIRST = ("timestamp", "level", "logger", "event")
_PLAIN = (str, int, float, bool, type(None))


def bind(**fields: object) -> Token[Any]:
    """Add fields to all lines of this thread, until `unbind`."""
    return _bound.set({**(_bound.get() or {}), **fields})


def unbind(token: Token[Any]) -> None:
    _bound.reset(token)


@contextmanager
def bound(**fields: object) -> Iterator[Mapping[str, Any]]:
    """Add fields to all lines of this thread in the block. Yield them with what `add` adds."""
    token = bind(**fields)
    try:
        yield context()
    finally:
        unbind(token)


def add(**fields: object) -> None:
    """Add fields to the innermost block, if any."""
    mine = _bound.get()
    if mine is not None:
        mine.update(fields)


def context() -> Mapping[str, Any]:
    """Return the bound fields."""
    return _bound.get() or {}


class Formatter(logging.Formatter):
    """Creates structlog's formatter with the first line.

    `json` is by default that of LOG_FORMAT in the environment: granian logs before settings are read.
    """

    def __init__(self, *, json: bool | None = None) -> None:
        super().__init__()
        self._json = os.environ.get("LOG_FORMAT", "").lower() == "json" if json is None else json
        self._lock = threading.Lock()
        self._made: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        if self._made is None:
            with self._lock:
                self._made = self._made or _structured(json=self._json)
        return self._made.format(record)


def _structured(*, json: bool) -> logging.Formatter:
    with blocked("rich"):  # 4 MiB that structlog.dev loads and our lines do not need
        import structlog
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[
            _only_plain,
            _with_context,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            meta,
            _without_secrets,
            structlog.processors.JSONRenderer() if json else _as_text,
        ],
    )


Event = MutableMapping[str, Any]


def _only_plain(_logger: object, _method: str, event: Event) -> Event:
    """Drop requests and task arguments, which Django and Celery attach."""
    return {
        name: value
        for name, value in event.items()
        if name in _META or (isinstance(value, _PLAIN) and name not in _OF_OTHERS)
    }


def _with_context(_logger: object, _method: str, event: Event) -> Event:
    return {**context(), **trace_ids(), **event}


def trace_ids() -> Mapping[str, str]:
    """Return the ids of the current span, if tracing has loaded OpenTelemetry."""
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return {}
    span = tracing.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


def _without_secrets(_logger: object, _method: str, event: Event) -> Event:
    """Mask secrets as the last step, and put common fields first."""
    names = (*_FIRST, *(name for name in event if name not in _FIRST))
    return {name: mask_all(event[name], name=name) for name in names}


def _as_text(_logger: object, _method: str, event: Event) -> str:
    """Format as `2026-11-21 17:00:00 WARNING monitors.tasks: the workers are behind  task=…`, then the traceback."""
    time, level, logger = event.pop("timestamp"), event.pop("level"), event.pop("logger")
    text = _on_one_line(event.pop("event"))
    below = "".join(f"\n{event.pop(name)}" for name in ("stack_info", "exception") if name in event)
    fields = "".join(f" {name}={_on_one_line(value)}" for name, value in event.items())
    start = f"{time[:19].replace('T', ' ')} {level.upper()} {logger}: {text}"
    return f"{start} {fields}{below}" if fields else f"{start}{below}"


def _on_one_line(value: object) -> str:
    """Escape line breaks and control characters, so that no value can forge a line."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(value))
