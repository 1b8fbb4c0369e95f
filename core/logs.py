"""Log lines as JSON or text, with the ids that every line of a request or a task has.

Code logs with `logging.getLogger(__name__)` and ids as `extra`, and uses `bound` for fields of all lines. structlog
formats them (docs/adr/0022). It is loaded with the first line, because many processes write none.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
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


def capture() -> None:
    """Log warnings and uncaught errors, which Python prints as text, if LOG_FORMAT is json; needs no settings."""
    if not _is_json():
        return
    handler = logging.lastResort = logging.StreamHandler()  # until logging is configured
    handler.setFormatter(Formatter())
    logging.captureWarnings(True)  # noqa: FBT003
    sys.excepthook = _log_crash
    threading.excepthook = lambda args: _log_crash(args.exc_type, args.exc_value, args.exc_traceback)


def formatter_of_granian() -> Formatter:
    """Return a formatter, and capture errors too: granian's main process loads no other code of Pulsekeeper."""
    capture()
    return Formatter()


def _log_crash(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is None or not issubclass(kind, Exception):
        sys.__excepthook__(kind, error or kind(), trace)
    else:
        logging.getLogger(__name__).critical("uncaught error", exc_info=(kind, error, trace))


def _is_json() -> bool:
    return os.environ.get("LOG_FORMAT", "").lower() == "json"


class Formatter(logging.Formatter):
    """Creates structlog's formatter with the first line. LOG_FORMAT of the environment is the default of `json`."""

    def __init__(self, *, json: bool | None = None) -> None:
        super().__init__()
        self._json = _is_json() if json is None else json
        self._lock = threading.RLock()  # a signal handler may log while the main thread does
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


class CrashFilter(logging.Filter):
    """Pass crashes, because `config.access` logs only their status. The pool logs why PostgreSQL is away."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is not None and not _is_outage(record.exc_info[1])


class OutageFilter(logging.Filter):
    """Passes each warning and error once in EVERY_SEC. Its field `suppressed` counts those since the last one.

    Other levels all pass: none repeats during an outage. Failures because PostgreSQL or the broker is away lose their
    traceback and become warnings: tasks fail every second then, and what health checks and metrics report must not fill
    the disk. Other lines with a traceback all pass. A lost race between threads passes or suppresses one more.
    """

    EVERY_SEC = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is not None:
            error = record.exc_info[1]
            if not (_is_broker_outage(error) or _is_outage(error)):
                return True
            record.exc_info = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        passed_at, suppressed = self._passed.get(record.msg, (-math.inf, 0))
        if now - passed_at < self.EVERY_SEC:
            self._passed[record.msg] = passed_at, suppressed + 1
            return False
        self._passed[record.msg] = now, 0
        record.__dict__["suppressed"] = suppressed
        return True


def _is_outage(error: BaseException | None) -> bool:
    # Imported here, because logging is configured in processes that need no database.
    from core.postgresql.availability import is_outage

    return is_outage(error)


def _is_broker_outage(error: BaseException | None) -> bool:
    # Imported here, because granian's main process formats lines, and needs no broker.
    from billiard.exceptions import RestartFreqExceeded  # a worker connects again and again
    from kombu.exceptions import OperationalError
    from redis import exceptions

    refused = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError)
    return isinstance(error, (OperationalError, RestartFreqExceeded, *refused))
