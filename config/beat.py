"""The Celery application of beat: the schedule, without the code of the tasks.

Beat only sends names of tasks. Loading the Django apps would triple its memory.
"""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, SchedulingError
from celery.beat import Scheduler as MemoryScheduler
from celery.signals import after_task_publish

from config import message_clock, reporting, task_logs
from core.metrics import mark_alive

logger = logging.getLogger(__name__)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


class SteadyCelery(Celery):
    """Has a clock that is never set. After its clock was set back by an hour, beat would send nothing for an hour."""

    _started_at, _start = datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._started_at + timedelta(seconds=time.monotonic() - self._start)


class Scheduler(MemoryScheduler):
    """Logs failures so that `core.logs.OutageFilter` can limit them. Celery's lines have a stack and a traceback."""

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            logger.error("%s", error, exc_info=error.__context__)  # noqa: TRY400 - its cause

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Return when to wake up for a task. Celery does 10 ms before, and then asks without a pause if it is due."""
        return n

    def schedules_equal(self, *_: object) -> bool:
        """Return True: the schedule never changes. To compare all entries at each tick took a quarter of beat's CPU."""
        return True


app = SteadyCelery("pulsekeeper", loader="config.routing:RoutedLoader", fixups=[], amqp="config.publishing:AMQP")
app.config_from_object("config.celeryconfig")
task_logs.connect()
reporting.connect()
message_clock.connect()


@after_task_publish.connect
def _mark_alive(**_: Any) -> None:
    """Mark beat as alive: it publishes a task each second."""
    mark_alive(("beat",))
