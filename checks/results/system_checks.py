"""Check that partitions exist ahead of time, in `manage.py check --database default`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.core import checks

from checks.results.partitions import SERIES, exists, parts
from core.clock import utc_now

AHEAD = timedelta(days=2)  # the hourly task creates a week: at two days it has failed for five


@checks.register(checks.Tags.database)
def partitions_are_made_ahead(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[checks.CheckMessage]:
    if not databases:  # as in processes without one
        return []
    now = utc_now()
    return [
        checks.Warning(
            f"{series.table} has no partition for {series.bounds(now + AHEAD)[0]:%Y-%m-%d}.",
            hint="Is beat running, and a worker? Its hourly task checks.tasks.keep_partitions makes them; until "
            "then rows go to the default partition, and none is lost.",
            id="checks.W001",
        )
        for series in SERIES
        if series.alias in databases
        and series.ahead
        and exists(series)
        and series.bounds(now + AHEAD) not in parts(series)
    ]
