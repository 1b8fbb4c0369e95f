"""The Celery application of beat: the schedule, without the code of the tasks.

Beat only sends names of tasks. Loading the Django apps would triple its memory.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import after_task_publish

from config import reporting, task_logs
from core.metrics import mark_alive

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("pulsekeeper", loader="config.routing:RoutedLoader", fixups=[])
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()


@after_task_publish.connect
def _mark_alive(**_: Any) -> None:
    """Mark beat as alive: it publishes a task each second."""
    mark_alive(("beat",))
