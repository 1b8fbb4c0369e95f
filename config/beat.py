"""Beat's own Celery application: the table, and none of the code that the tasks run.

Beat sends names. Django's apps and all that they import would be two thirds of its memory, for nothing.
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
