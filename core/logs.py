"""Log lines: one JSON object each, or text to read; and the ids that every line of a request or a task carries.

Code logs by `logging.getLogger(__name__)`, with ids as `extra`, and binds by `bound` what all lines of a piece of work
are to say. structlog makes lines of that (docs/adr/0022), and is loaded when there is the first one to write: many a
process never has one, and beat has no memory to spare.
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
    """From here on all lines of this thread have these fields, until `unbind`."""
    return _bound.set({**(_bound.get() or {}), **fields})


def unbind(token: Token[Any]) -> None:
    _bound.reset(token)


@contextmanager
def bound(**fields: object) -> Iterator[Mapping[str, Any]]:
    """Within the block all lines of this thread have these fields, and what is added."""
    token = bind(**fields)
    try:
        yield context()
    finally:
        unbind(token)


def add(**fields: object) -> None:
    """More for the innermost block around; nothing where there is none."""
    mine = _bound.get()
    if mine is not None:
        mine.update(fields)


def context() -> Mapping[str, Any]:
    """What is bound here."""
    return _bound.get() or {}


class Formatter(logging.Formatter):
    """structlog's, made when it has its first line to write.

    Where `json` is not given, LOG_FORMAT of the environment tells: granian writes lines before settings are read.
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
    with blocked("rich"):  # 4 MiB that structlog.dev takes along, and no line of ours is made by
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
    """Django and Celery attach requests and the arguments of tasks: nothing of that is for a log."""
    return {
        name: value
        for name, value in event.items()
        if name in _META or (isinstance(value, _PLAIN) and name not in _OF_OTHERS)
    }


def _with_context(_logger: object, _method: str, event: Event) -> Event:
    return {**context(), **trace_ids(), **event}


def trace_ids() -> Mapping[str, str]:
    """Of the span under way, where traces are on: nobody else has loaded OpenTelemetry."""
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return {}
    span = tracing.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


def _without_secrets(_logger: object, _method: str, event: Event) -> Event:
    """Last, and with what every line has at its beginning."""
    names = (*_FIRST, *(name for name in event if name not in _FIRST))
    return {name: mask_all(event[name], name=name) for name in names}


def _as_text(_logger: object, _method: str, event: Event) -> str:
    """`2026-11-21 17:00:00 WARNING monitors.tasks: the workers are behind  task=…`, and what broke below it."""
    time, level, logger = event.pop("timestamp"), event.pop("level"), event.pop("logger")
    said = _on_one_line(event.pop("event"))
    below = "".join(f"\n{event.pop(name)}" for name in ("stack_info", "exception") if name in event)
    fields = "".join(f" {name}={_on_one_line(value)}" for name, value in event.items())
    start = f"{time[:19].replace('T', ' ')} {level.upper()} {logger}: {said}"
    return f"{start} {fields}{below}" if fields else f"{start}{below}"


def _on_one_line(value: object) -> str:
    """Nobody's name for a thing begins a line of its own."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(value))
