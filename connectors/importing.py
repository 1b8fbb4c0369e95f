"""Import a provider's projects as monitors. Each item has its own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from connectors.grants import fetch_projects
from connectors.models import Connector, Import
from connectors.providers.backend import ProviderProject
from connectors.selectors import get_connector, imported_refs
from core.errors import ApiError, MonitorLimit, NotFound, ValidationFailed
from monitors.models import Monitor
from monitors.selectors import list_monitors
from monitors.services import create_monitor, release_first_claim
from projects import placement
from projects.access import Caller

MAX_NAME = 200


@dataclass(slots=True)
class Imported:
    """The result of an import, in the order of the request. `failed` has the errors by reference."""

    created: list[Monitor] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def list_importable(caller: Caller, word: str, *, now: datetime) -> list[ProviderProject]:
    connector, projects = fetch_projects(caller, word, now=now)
    imported = imported_refs(connector, among=projects)
    return [replace(project, already_imported=ref in imported) for ref, project in projects.items()]


def import_projects(
    caller: Caller, word: str, refs: Sequence[str], *, place: Mapping[str, Any], now: datetime
) -> Imported:
    """Create monitors for these projects, in the project `place["project_id"]` if set.

    Asks the provider only if something is not imported yet.
    """
    with transaction.atomic():
        placement.place(caller, place)  # an error of all items comes before the provider is asked
    wanted = list(dict.fromkeys(refs))
    imported = imported_refs(get_connector(caller, word), among=wanted)
    if len(imported) == len(wanted):
        return Imported(skipped=wanted)
    connector, projects = fetch_projects(caller, word, now=now)
    result, created = Imported(), list[int]()
    for ref in wanted:
        if ref in imported:
            result.skipped.append(ref)
            continue
        try:
            created.append(_import_one(caller, connector, projects.get(ref), ref, place=place, now=now))
        except (ApiError, IntegrityError) as error:
            # Another import of the same ref was first and used the quota or created the row.
            if imported_refs(connector, among=[ref]):
                result.skipped.append(ref)
            elif isinstance(error, ApiError):
                result.failed[ref] = error.code if isinstance(error, NotFound | MonitorLimit) else str(error)
            else:
                raise
    result.created = list(list_monitors(caller).filter(pk__in=created).order_by("pk"))
    return result


def _import_one(
    caller: Caller,
    connector: Connector,
    project: ProviderProject | None,
    ref: str,
    *,
    place: Mapping[str, Any],
    now: datetime,
) -> int:
    """Return the primary key of the new monitor. The scheduler makes its first check at once.

    Raises IntegrityError if a concurrent request imported the ref: the unique constraint decides.
    """
    if project is None:
        raise NotFound
    if not project.url:
        raise ValidationFailed("the project has no address.", field="url")
    given = {"type": "http", "name": project.name[:MAX_NAME], "url": project.url}
    with transaction.atomic():
        monitor = create_monitor(caller, {**place, **given}, now=now)
        Import.objects.create(user=caller.user, provider=connector.provider, external_ref=ref, monitor=monitor)
        release_first_claim(monitor, now=now)
    return monitor.pk
