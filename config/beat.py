"""The Celery application of beat: the schedule, without the code of the tasks.

Beat only sends names of tasks. Loading the Django apps would triple its memory.
"""

from __future__ import annotations

import os

from celery import Celery

from config import reporting, task_logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("pulsekeeper", loader="config.routing:RoutedLoader", fixups=[])
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()
