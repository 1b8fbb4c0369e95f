"""The Celery application. Its settings and beat schedule are in `config.celeryconfig`."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_init

from config import reporting, task_logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Used by readiness and the health page. Workers ignore all other remote control commands: `shutdown` or `pool_shrink`
# could stop all checks without a trace in the database, and `conf` and `active` reveal secrets of workers.
REMOTE_CONTROL = frozenset({"ping", "active_queues"})

app = Celery("pulsekeeper", loader="config.routing:RoutedLoader")
app.autodiscover_tasks()
# By name, so that it is read after `manage.py` has set the broker's address.
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()


@worker_init.connect
def _limit_remote_control(**_: object) -> None:
    # Imported here, as only workers need it.
    from celery.worker.control import Panel

    for name in Panel.data.keys() - REMOTE_CONTROL:
        del Panel.data[name]
