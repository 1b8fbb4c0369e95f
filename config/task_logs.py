"""Celery's side of the logs: our lines instead of its own, and ids of tasks in all lines of a task.

Light, for beat has it too.
"""

from __future__ import annotations

import logging
import logging.config
from contextvars import Token
from typing import Any

from celery import signals

from core import logs

_REQUEST = "request_id"
_before: dict[str, Token[Any]] = {}  # of the tasks under way, by id


def connect() -> None:
    """For the one application of this process. Connecting twice is connecting once."""
    signals.setup_logging.connect(_set_up)
    signals.before_task_publish.connect(_send_along)
    signals.task_prerun.connect(_begin)
    signals.task_postrun.connect(_end)


def _set_up(**_: object) -> None:
    """Instead of Celery's own, whose lines would be none of LOG_FORMAT. Django does it, too, where it is set up."""
    from django.conf import settings

    if not logging.getLogger().handlers:
        logging.config.dictConfig(settings.LOGGING)
        logging.captureWarnings(True)  # noqa: FBT003


def _send_along(headers: dict[str, Any], **_: object) -> None:
    """A task that a request asks for carries the request's id, so that one search finds both."""
    if found := logs.context().get(_REQUEST):
        headers[_REQUEST] = found


def _begin(task_id: str, task: Any, **_: object) -> None:
    fields = {"task": task.name, "task_id": task_id}
    if found := task.request.get(_REQUEST):
        fields[_REQUEST] = found
    _before[task_id] = logs.bind(**fields)


def _end(task_id: str, **_: object) -> None:
    if (token := _before.pop(task_id, None)) is not None:
        logs.unbind(token)
