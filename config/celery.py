"""The Celery application. Its settings and beat schedule are in `config.celeryconfig`."""

from __future__ import annotations

import gc
import os
from typing import Any

from celery import Celery, bootsteps
from celery.signals import celeryd_init, worker_init

from config import message_clock, reporting, task_logs
from config.routing import kinds_serving
from core.clock import DATABASE
from core.metrics import EVERY_SEC, mark_alive

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Used by deploy/healthy. Workers ignore all other remote control commands: `shutdown` or `pool_shrink`
# could stop all checks without a trace in the database, and `conf` and `active` reveal secrets of workers.
REMOTE_CONTROL = frozenset({"ping"})

app = Celery(
    "pulsekeeper",
    loader="config.routing:RoutedLoader",
    task_cls="config.message_clock:Task",
    amqp="config.publishing:AMQP",
)
app.autodiscover_tasks()
# By name, so that it is read after `manage.py` has set the broker's address.
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()
message_clock.connect()


@celeryd_init.connect
def _follow_database(**_: object) -> None:
    """Follow PostgreSQL's clock in a worker's own process. Tests run workers in theirs, and travel in time."""
    # Imported here, as beat needs no database.
    from core.db import learn_time

    DATABASE.follow(learn_time)


@celeryd_init.connect
def _collect_less(**_: object) -> None:
    """Collect garbage less often: a worker with thousands of checks in progress spent a twentieth of its CPU on it."""
    gc.set_threshold(10_000)


@celeryd_init.connect
def _refuse_unknown_history(**_: object) -> None:
    from config.history import require_known_history

    require_known_history()


@worker_init.connect
def _limit_remote_control(**_: object) -> None:
    # Imported here, as only workers need it.
    from celery.worker.control import Panel

    for name in Panel.data.keys() - REMOTE_CONTROL:
        del Panel.data[name]


class MarkAlive(bootsteps.StartStopStep):
    """Mark a worker as alive from the timer of its consumer, which stops while the broker is away."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._entry: Any = None

    def start(self, parent: Any) -> None:
        kinds = kinds_serving(parent.app.amqp.queues.consume_from)
        mark_alive(kinds)
        # Imported here, as it needs the settings.
        from config.pool import follow_pool

        follow_pool(kinds)
        self._entry = parent.timer.call_repeatedly(EVERY_SEC, mark_alive, (kinds,))

    def stop(self, parent: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()


app.steps["consumer"].add(MarkAlive)
