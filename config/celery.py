"""The Celery application. Its settings, queues and beat table are in `config.celeryconfig`."""

from __future__ import annotations

import os

from celery import Celery

from config import reporting, task_logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Where tasks are. `manage.py check` looks whether all that beat names are among them.
TASK_MODULES = (
    "alerts.tasks",
    "audit.tasks",
    "checks.tasks",
    "connectors.tasks",
    "entrance.tasks",
    "monitors.expiry_tasks",
    "monitors.tasks",
    "projects.tasks",
    "statuspages.tasks",
)

app = Celery("pulsekeeper", include=TASK_MODULES)
# By name: read when it is first needed, after `manage.py` has found out where the broker is.
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()
