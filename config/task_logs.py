"""Logging in Celery processes: our log format for all lines, and the task id in all log lines of a task.

Beat imports this too, so it imports little.
"""

from __future__ import annotations

import logging
import logging.config
import warnings
from contextvars import Token
from typing import Any

from celery import signals

from core import logs

logger = logging.getLogger(__name__)

_REQUEST = "request_id"
_tokens: dict[str, Token[Any]] = {}  # of running tasks, by id


def connect() -> None:
    """Connect the signal handlers. Repeated calls have no effect."""
    signals.setup_logging.connect(_configure)
    signals.celeryd_init.connect(_replace_prints)
    signals.before_task_publish.connect(_add_request_id)
    signals.task_prerun.connect(_begin)
    signals.task_postrun.connect(_end)


def _configure(**_: object) -> None:
    """Configure logging as Django does, instead of Celery's own setup, which ignores LOG_FORMAT."""
    from django.conf import settings

    if not logging.getLogger().handlers:
        logging.config.dictConfig(settings.LOGGING)
        logging.captureWarnings(True)  # noqa: FBT003


def _replace_prints(**_: object) -> None:
    """Log what Celery prints when a worker gets a signal. Ignore warnings about root: messages are not pickles."""
    from celery import platforms
    from celery.apps import worker

    # The stubs lack both names.
    worker.safe_say = lambda text, *_: logger.warning("%s", text)  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", category=platforms.SecurityWarning)  # type: ignore[attr-defined]


def _add_request_id(headers: dict[str, Any], **_: object) -> None:
    """Add the request id to the task, so that one search finds the log lines of both."""
    if request_id := logs.context().get(_REQUEST):
        headers[_REQUEST] = request_id


def _begin(task_id: str, task: Any, **_: object) -> None:
    fields = {"task": task.name, "task_id": task_id}
    if request_id := task.request.get(_REQUEST):
        fields[_REQUEST] = request_id
    _tokens[task_id] = logs.bind(**fields)


def _end(task_id: str, **_: object) -> None:
    if (token := _tokens.pop(task_id, None)) is not None:
        logs.unbind(token)
