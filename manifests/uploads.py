"""Imports on the web: an upload is previewed, imported in part or whole, and undone. Each step has its state in a row.

A row lives for an hour. An account has one preview and few imports, so nothing grows without bound.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import ForeignObjectRel, Q, prefetch_related_objects

from alerts.models import AlertChannel
from alerts.selectors import get_channel, list_channels
from alerts.services import delete_channel
from audit import origin
from audit.actions import Action
from checks.addresses import BeginsTls, UntestedError
from core import throttles
from core.errors import ApiError, ImportExpired, MonitorLimit, TooManyRequests, ValidationFailed
from core.etags import etag
from core.shares import Shares
from core.turns import paused
from core.waiting import PATIENCE_SEC, limit_waiting
from incidents.models import Incident
from manifests import importing, upload_reader
from manifests.account import take_turn
from manifests.models import Upload
from monitors.checking import interactive
from monitors.locking import lock_monitors
from monitors.models import Dependency, Monitor
from monitors.selectors import list_monitors
from monitors.services import delete_locked
from projects import access, log, placement
from projects.access import Caller
from projects.models import Membership, Project, Role
from projects.services import delete_project
from pulsekeeper.importers.mapped import Imported, MappedFile, combine, complete_addresses
from pulsekeeper.manifest.changes import MAX_BODY

IMPORTS_KEPT = 5
"""Imports of an account that can be undone."""
READ_SEC, CPU_SEC = 30.0, 10  # for reading a file, by the clock and of the processor
ASK_SEC = 20.0
"""For asking servers of an export whether https responds. Monitors of servers that were not asked are skipped."""

readers = Shares(at_once=1, most_waiting=8, most_present=2, patience_sec=10.0)
"""Readers of a web process: more would multiply its CPU and memory."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    monitors: list[Imported]
    channels: list[Imported]


@dataclass(frozen=True, slots=True)
class Kept:
    """What an undo did not remove, and why."""

    name: str
    reason: str


def upload(caller: Caller, *, source: str, data: bytes, place: Mapping[str, Any], now: datetime) -> Upload:
    """Store the monitors and channels of an export for a preview, in place of an earlier one.

    Raises ValidationFailed if it cannot be read, and TooManyRequests.
    """
    caller.require_session()
    with limit_waiting(caller.account, most=1, kind="manifest"):
        mapped = _read(source, data)
    # Each question has a place of its own, and gives it up to others that wait.
    mapped = replace(mapped, monitors=complete_addresses(mapped.monitors, _asking(caller)))
    with limit_waiting(caller.account, most=1, kind="manifest"), transaction.atomic():
        take_turn(caller, patience_sec=PATIENCE_SEC)
        placement.place(caller, place)
        Upload.objects.filter(user=caller.user, imported_at=None).delete()
        return Upload.objects.create(
            user=caller.user, source=source, place=place, content=asdict(mapped), created_at=now
        )


def get_upload(caller: Caller, public_id: str, *, now: datetime) -> Upload:
    """Return an upload of the caller. Raises ImportExpired."""
    caller.require_session()
    found = Upload.objects.filter(user=caller.user, public_id=public_id).exclude(Upload.expired(now)).first()
    if found is None:
        raise ImportExpired
    return found


def preview(caller: Caller, found: Upload, *, now: datetime) -> Outcomes:
    """Return what an import of everything would do, with monitors beyond the plan's limit left out."""
    mapped = _mapped(found)
    with limit_waiting(caller.account, most=1, kind="manifest"):
        return _import(caller, found, mapped, now=now, dry_run=True, up_to_limit=True)[0]


def run(
    caller: Caller, public_id: str, monitors: Collection[int], channels: Collection[int], *, now: datetime
) -> Upload:
    """Import the chosen monitors and channels, given by their positions. A repeated request returns the first result.

    Raises ImportExpired, MonitorLimit, TooManyRequests, and ValidationFailed if the project is gone or nothing chosen.
    """
    with limit_waiting(caller.account, most=1, kind="manifest"), transaction.atomic():
        take_turn(caller, patience_sec=PATIENCE_SEC)
        found = get_upload(caller, public_id, now=now)
        if found.imported_at is not None:
            return found
        of_file = _mapped(found)
        mapped = MappedFile(
            [each for index, each in enumerate(of_file.monitors) if index in monitors],
            [each for index, each in enumerate(of_file.channels) if index in channels],
        ).supported()
        if not mapped.monitors:
            raise ValidationFailed("Select at least one monitor.")
        imported, report = _import(caller, found, mapped, now=now)
        found.imported_at = now
        prefetch_related_objects(report.monitors, "dependencies")  # for their tags
        found.content = {
            "outcomes": asdict(imported),
            "monitors": {str(monitor.pk): etag(monitor) for monitor in report.monitors},
            "projects": {str(project.pk): etag(project) for project in report.projects},
            "channels": {channel.public_id: etag(channel) for channel in report.channels},
            "extended": [channel.public_id for channel in report.extended],
        }
        found.save(update_fields=["imported_at", "content"])
        of_account = Upload.objects.filter(user=caller.user).exclude(imported_at=None).order_by("-imported_at", "-pk")
        Upload.objects.filter(pk__in=list(of_account.values_list("pk", flat=True)[IMPORTS_KEPT:])).delete()
    return found


def outcomes(found: Upload) -> Outcomes:
    stored = found.content["outcomes"]
    if isinstance(stored, list):  # by a version that did not import channels
        stored = {"monitors": stored, "channels": []}
    return msgspec.convert(stored, Outcomes)


def kept(found: Upload) -> list[Kept]:
    return msgspec.convert(found.content["kept"], list[Kept])


def undo(caller: Caller, public_id: str, *, now: datetime) -> Upload:
    """Remove what an import created, unless it was changed or used since. A repeated request returns the first result.

    Raises ImportExpired and TooManyRequests. Locks are taken in the common order: monitor states, projects, channels.
    """
    with limit_waiting(caller.account, most=1, kind="manifest"), transaction.atomic():
        take_turn(caller, patience_sec=PATIENCE_SEC)
        found = get_upload(caller, public_id, now=now)
        if found.imported_at is None:
            raise ImportExpired
        if found.undone_at is not None:
            return found
        tags = {int(key): tag for key, tag in found.content["monitors"].items()}
        monitors = lock_monitors(tags, list_monitors(caller).prefetch_related("dependencies"))
        own = found.content.get("channels", {})
        used = _used_monitors(tags, besides=[*own, *found.content.get("extended", ())])
        reasons = {key: _reason(monitor, tags[key], is_used=key in used) for key, monitor in monitors.items()}
        gone = [key for key, reason in reasons.items() if not reason]
        left = [Kept(monitor.name, reasons[key]) for key, monitor in monitors.items() if reasons[key]]
        projects, kept_projects = _removable(caller, found, gone)
        channels, kept_channels = _removable_channels(caller, own, gone)
        log.record_counts(caller, Action.IMPORT_UNDONE, Counter(monitors[key].project for key in gone))
        for channel in channels:
            delete_channel(caller, channel.public_id)
        delete_locked(caller, [monitors[key] for key in gone])
        for project in projects:
            delete_project(caller, project.public_id)
        found.undone_at = now
        found.content = {"removed": len(gone), "kept": [asdict(one) for one in (*left, *kept_channels, *kept_projects)]}
        found.save(update_fields=["undone_at", "content"])
    return found


def _import(
    caller: Caller,
    found: Upload,
    mapped: MappedFile,
    *,
    now: datetime,
    dry_run: bool = False,
    up_to_limit: bool = False,
) -> tuple[Outcomes, importing.Report]:
    """Import as the commands do. Raises MonitorLimit and ValidationFailed with reasons for the page."""
    try:
        report = importing.import_monitors(
            caller,
            mapped.supported(),
            place=found.place,
            now=now,
            dry_run=dry_run,
            up_to_limit=up_to_limit,
            patience_sec=PATIENCE_SEC,
        )
    except MonitorLimit as error:
        reason = f"The plan allows {error.limit} monitors: select fewer. Nothing was imported."
        raise MonitorLimit(reason, limit=error.limit) from None
    except ValidationFailed:
        raise ValidationFailed(
            "The project was deleted, or you no longer have access to it. Upload the file again."
        ) from None
    imported, count = combine(mapped.items, report.outcomes), len(mapped.monitors)
    return Outcomes(imported[:count], imported[count:]), report


def _mapped(found: Upload) -> MappedFile:
    return msgspec.convert(found.content, MappedFile)


def _asking(caller: Caller) -> BeginsTls:
    end = time.monotonic() + ASK_SEC

    def ask(host: str, port: int) -> bool:
        if time.monotonic() > end:
            raise UntestedError
        try:
            throttles.count_request(throttles.ProbeThrottle.scope, caller.account)
        except TooManyRequests as error:
            raise UntestedError from error
        return interactive.begins_tls(caller, host, port)

    return ask


def _read(source: str, data: bytes) -> MappedFile:
    """Map an export in a process with limits. Raises ValidationFailed, and TooManyRequests if the reader is busy."""
    if len(data) > MAX_BODY:
        raise ValidationFailed("the file is larger than 1 MiB; import it with the command pulsekeeper import.")
    try:
        with paused(), readers.turn(*origin.users()):
            done = subprocess.run(  # noqa: S603 - our own file, by our own interpreter
                [sys.executable, "-I", upload_reader.__file__, source, str(CPU_SEC)],
                input=data,
                capture_output=True,
                env={},  # it reads hostile files and needs none of our secrets
                timeout=READ_SEC,
                check=False,
            )
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode == -signal.SIGXCPU:
        raise ValidationFailed("the file takes too long to read; import it with the command pulsekeeper import.")
    if done.returncode == upload_reader.UNREADABLE:
        raise ValidationFailed(f"{done.stderr.decode()}.")
    if done.returncode != 0:  # out of memory; the error may quote the file, so it is not logged
        raise ValidationFailed("the file cannot be read; import it with the command pulsekeeper import.")
    return msgspec.json.decode(done.stdout, type=MappedFile)


def _reason(monitor: Monitor, tag: str, *, is_used: bool) -> str:
    """Return why an undo keeps a monitor, or an empty text."""
    if etag(monitor) != tag:
        return "was changed after the import"
    return "is used by an alert channel, a maintenance window, a status page or another monitor" if is_used else ""


def _used_monitors(keys: Collection[int], *, besides: Collection[str]) -> set[int]:
    """Return the monitors that others have chosen since, or depend on, besides the channels of the import."""
    used: set[int] = set()
    for model in placement.links:
        rows = model._default_manager.filter(monitor__in=keys)
        if model is AlertChannel.monitors.through:
            rows = rows.exclude(alertchannel__public_id__in=besides)
        used.update(rows.values_list("monitor", flat=True))
    dependent = Dependency.objects.filter(parent__in=keys).exclude(child__in=keys)
    return used.union(dependent.values_list("parent", flat=True))


def _removable_channels(
    caller: Caller, tags: Mapping[str, str], monitors: Collection[int]
) -> tuple[list[AlertChannel], list[Kept]]:
    """Lock the channels that the import created. Return those that notify of these monitors only, and the others."""
    gone, left = [], []
    found = list_channels(caller).filter(public_id__in=tags).order_by("pk")
    for public_id in found.values_list("public_id", flat=True):
        try:
            channel = access.lock(get_channel, caller, public_id, for_deletion=True)
        except ApiError:  # deleted by another request
            continue
        if etag(channel) != tags[public_id]:
            left.append(Kept(f"Channel {channel.name}", "was changed after the import"))
        elif any(monitor.pk not in monitors for monitor in channel.chosen):
            left.append(Kept(f"Channel {channel.name}", "is used by a monitor that is kept"))
        else:
            gone.append(channel)
    return gone, left


def _removable(caller: Caller, found: Upload, monitors: Collection[int]) -> tuple[list[Project], list[Kept]]:
    """Lock the projects that the import created. Return those that are empty without these monitors, and the others."""
    tags = {int(key): tag for key, tag in found.content["projects"].items()}
    owned = Membership.objects.filter(user=caller.user, role=Role.OWNER, project__in=tags).order_by("project")
    locked = []
    for public_id in owned.values_list("project__public_id", flat=True):
        try:
            locked.append(access.lock_project(caller, public_id, roles=[Role.OWNER], for_deletion=True))
        except ApiError:  # deleted or left by another request
            continue
    used = _used_projects(caller, [project.pk for project in locked], monitors)
    gone, left = [], []
    for project in locked:
        if etag(project) != tags[project.pk]:
            left.append(Kept(f"Project {project.name}", "was renamed after the import"))
        elif project.pk in used:
            left.append(Kept(f"Project {project.name}", "has other contents or members"))
        else:
            gone.append(project)
    return gone, left


def _used_projects(caller: Caller, keys: Collection[int], monitors: Collection[int]) -> set[int]:
    """Return the projects that contain more than these monitors, their incidents, and their owner."""
    expected = {
        Membership: Q(user=caller.user),
        Monitor: Q(pk__in=monitors),
        Incident: Q(monitor__in=monitors),
    }
    used: set[int] = set()
    for relation in Project._meta.get_fields(include_hidden=True):
        if not isinstance(relation, ForeignObjectRel):
            continue
        name = relation.field.name
        rows = relation.related_model._default_manager.filter(**{f"{name}__in": keys})
        if (own := expected.get(relation.related_model)) is not None:
            rows = rows.exclude(own)
        used.update(rows.values_list(name, flat=True))
    return used
