"""Lock monitors by their states, and write the columns that changed under the lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.db import connection
from django.db.models import Model, QuerySet

from core.bulk import update_rows
from core.crypto import EncryptedField
from monitors.models import ListField, Monitor, MonitorState


def lock_monitors(
    monitor_ids: Collection[int] | QuerySet[Monitor, Any],
    among: QuerySet[Monitor] | None = None,
    *,
    skip_locked: bool = False,
) -> dict[int, Monitor]:
    """Lock the states in key order, to prevent deadlocks. Return the existing monitors by key, with their states.

    `among` are the monitors to return, by default all. It is evaluated after locking: a join in the locking query
    would return the configuration from before a PATCH that had the lock. With `skip_locked`, those that others have
    locked are left out.
    """
    states = (
        MonitorState.objects.select_for_update(skip_locked=skip_locked)
        .filter(pk__in=monitor_ids)
        .order_by("pk")
        .in_bulk()
    )
    monitors = (Monitor.objects.all() if among is None else among).filter(pk__in=states).order_by("pk").in_bulk()
    for key, monitor in monitors.items():
        monitor.state = states[key]
    return monitors


def write_columns(rows: Sequence[Model], names: Iterable[str]) -> None:
    """Write these columns of locked rows, all of one model, in one statement. It is much faster than `bulk_update`."""
    if not rows:
        return
    options = rows[0]._meta
    known = {field.name: field for field in options.concrete_fields}
    fields = [options.pk, *(known[name] for name in names)]
    update_rows(
        options.db_table,
        {field.attname: field.db_type(connection) or "" for field in fields},
        [[_plain(field, getattr(row, field.attname)) for field in fields] for row in rows],
        key=options.pk.attname,
    )


def _plain(field: object, value: object) -> object:
    if isinstance(field, EncryptedField | ListField):
        return field.to_text(value)  # type: ignore[arg-type]
    return json.dumps(value) if isinstance(value, dict | list) else value
