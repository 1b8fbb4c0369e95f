"""The Celery application. Its settings, queues and beat table are in `config.celeryconfig`."""

from __future__ import annotations

import os

from celery import Celery

from config import task_logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("pulsekeeper")
# By name: read when it is first needed, after `manage.py` has found out where the broker is.
app.config_from_object("config.celeryconfig")
app.autodiscover_tasks(
    ["audit", "checks", "monitors", "projects", "connectors", "alerts", "statuspages", "entrance"]
)
app.autodiscover_tasks(["monitors"], related_name="expiry_tasks")
task_logs.connect()
