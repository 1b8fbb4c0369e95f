"""Writes to status pages and their notes. Each function is one transaction; `projects.access` decides who may write.

Locks are taken in one order: the states of monitors, the project, the page's owner (for the quota) or the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction
from django.http.request import validate_host

from core.errors import NoteResolved, StatusPageLimit, ValidationFailed
from incidents.models import Incident
from monitors.models import Monitor
from monitors.services import lock_monitors
from projects import access
from projects.access import Caller
from projects.models import Project
from projects.placement import enforce_quota, place
from statuspages import colours, events, logos, lookup, names
from statuspages.models import NoteUpdate, PageGroup, PageLogo, PageMonitor, PageNote, StatusPage
from statuspages.selectors import get_note, get_page, showable

MAX_PAGES = 50
MAX_MONITORS = 1_000
_PLAIN = ("name", "description", "published", "theme", "show_window_names")


def create_page(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> StatusPage:
    with transaction.atomic():
        monitors = _lock_monitors(caller, given)
        project, owner = place(caller, given)
        enforce_quota(owner, StatusPage, limit=MAX_PAGES, error=StatusPageLimit)
        page = StatusPage(owner=owner, project=project, created_at=now)
        _set(page, given)
        _save(page, force_insert=True)
        _replace_groups(page, given, monitors)
        _forget_on_commit(page.slug, page.custom_domain)
        return get_page(caller, page.public_id)


def update_page(caller: Caller, public_id: str, given: Mapping[str, Any]) -> StatusPage:
    with transaction.atomic():
        monitors = _lock_monitors(caller, given)
        page = lock_page(caller, public_id)
        old_addresses = (page.slug, page.custom_domain)
        project_id = page.project.public_id if page.project else None
        if given.get("project_id", project_id) != project_id:
            raise ValidationFailed("cannot be changed; create another page in that project.", field="project_id")
        _set(page, given)
        _save(page)
        _replace_groups(page, given, monitors)
        _forget_on_commit(*old_addresses, page.slug, page.custom_domain)
        return get_page(caller, public_id)


def delete_page(caller: Caller, public_id: str) -> None:
    with transaction.atomic():
        page = lock_page(caller, public_id, for_deletion=True)
        _forget_on_commit(page.slug, page.custom_domain)
        page.delete()


def set_logo(caller: Caller, public_id: str, data: bytes) -> StatusPage:
    """Decode and store the logo. Raises ValidationFailed, or TooManyRequests if the decoder is busy."""
    try:
        picture = logos.encode(data)  # before any lock: it may take seconds
    except ValueError as error:
        raise ValidationFailed(str(error), field="logo") from None
    with transaction.atomic():
        page = lock_page(caller, public_id)
        PageLogo.objects.update_or_create(
            page=page,
            defaults={
                "content_type": logos.CONTENT_TYPE,
                "image": picture.image,
                "width": picture.width,
                "height": picture.height,
            },
        )
        touch(page)
        return get_page(caller, public_id)


def remove_logo(caller: Caller, public_id: str) -> StatusPage:
    """Remove the logo, if there is one."""
    with transaction.atomic():
        page = lock_page(caller, public_id)
        PageLogo.objects.filter(page=page).delete()
        touch(page)
        return get_page(caller, public_id)


def create_note(caller: Caller, page_id: str, given: Mapping[str, Any], *, now: datetime) -> PageNote:
    """Create a note with its first update, and notify subscribers."""
    with transaction.atomic():
        page = lock_page(caller, page_id)
        note = PageNote.objects.create(
            page=page,
            incident=_incident(page, given.get("incident_id")),
            title=given["title"],
            created_at=now,
        )
        _add_update(page, note, given, now=now)
        return get_note(page, note.public_id)


def add_update(caller: Caller, page_id: str, note_id: str, given: Mapping[str, Any], *, now: datetime) -> PageNote:
    """Add an update, and notify subscribers. Raises NoteResolved."""
    with transaction.atomic():
        page = lock_page(caller, page_id)
        note = get_note(page, note_id)
        if note.resolved_at is not None:
            raise NoteResolved
        _add_update(page, note, given, now=now)
        return get_note(page, note_id)


def delete_note(caller: Caller, page_id: str, note_id: str) -> None:
    """Delete a note. Mails that are already queued are still sent."""
    with transaction.atomic():
        page = lock_page(caller, page_id)
        get_note(page, note_id).delete()
        touch(page)


lock_page = partial(access.lock, get_page)


def touch(page: StatusPage) -> None:
    """Increase the version of a locked page, which invalidates its cached renderings."""
    page.version += 1
    page.save(update_fields=["version"])
    _forget_on_commit(page.slug, page.custom_domain)


def _forget_on_commit(*addresses: str | None) -> None:
    transaction.on_commit(lambda: lookup.forget(address for address in addresses if address))


def _set(page: StatusPage, given: Mapping[str, Any]) -> None:
    for name in _PLAIN:
        setattr(page, name, given.get(name, getattr(page, name)))
    if "slug" in given:
        page.slug = _checked("slug", given["slug"], names.check_slug)
    if "accent" in given:
        accent = given["accent"]
        page.accent = None if accent is None else _checked("accent", accent, colours.check_accent)
    if "password" in given:
        page.password_hash = make_password(given["password"]) if given["password"] else ""
    if "custom_domain" in given and given["custom_domain"] != page.custom_domain:
        page.custom_domain = _domain(given["custom_domain"])


def _checked(field: str, value: str, check: Callable[[str], str]) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise ValidationFailed(str(error), field=field) from None


def _domain(value: str | None) -> str | None:
    if value is None:
        return None
    domain = _checked("custom_domain", value, lambda text: names.check_domain(text, own=lookup.own_hosts()))
    if not validate_host(domain, settings.STATUS_PAGE_DOMAINS):
        raise ValidationFailed(
            "is not a domain that this deployment serves; its operator sets STATUS_PAGE_DOMAINS.",
            field="custom_domain",
        )
    return domain


def _save(page: StatusPage, *, force_insert: bool = False) -> None:
    """Save the page. Raises ValidationFailed if another page has the slug or the domain."""
    if not force_insert:
        page.version += 1
    columns = ["version", *_PLAIN, "slug", "accent", "password_hash", "custom_domain"]
    try:
        with transaction.atomic():
            page.save(force_insert=force_insert, update_fields=None if force_insert else columns)
    except IntegrityError as error:
        taken = "custom_domain" if "custom_domain" in str(error) else "slug"
        raise ValidationFailed("is taken by another status page.", field=taken) from None


def _lock_monitors(caller: Caller, given: Mapping[str, Any]) -> dict[str, Monitor]:
    """Return the monitors of all groups by id, locked against deletion until the transaction ends."""
    wanted = [item["monitor_id"] for group in given.get("groups", ()) for item in group["monitors"]]
    return lock_monitors(caller, wanted)


def _replace_groups(page: StatusPage, given: Mapping[str, Any], monitors: Mapping[str, Monitor]) -> None:
    """Replace the groups of a locked page."""
    if "groups" not in given:
        return
    items = _items(page.project, given["groups"], monitors)
    page.groups.all().delete()
    created = PageGroup.objects.bulk_create(
        PageGroup(page=page, name=group.get("name", "")) for group in given["groups"]
    )
    PageMonitor.objects.bulk_create(
        PageMonitor(page=page, group=group, monitor=monitor, name=name)
        for group, shown in zip(created, items, strict=True)
        for monitor, name in shown
    )


def _items(
    project: Project | None, groups: Sequence[Mapping[str, Any]], monitors: Mapping[str, Monitor]
) -> list[list[tuple[Monitor, str]]]:
    """Return the monitors and names of each group. Raises ValidationFailed if one cannot be shown."""
    seen: set[str] = set()
    found: list[list[tuple[Monitor, str]]] = []
    for i, group in enumerate(groups):
        found.append([])
        for j, item in enumerate(group["monitors"]):
            field = f"groups[{i}].monitors[{j}].monitor_id"
            monitor = monitors.get(item["monitor_id"])
            if monitor is None:
                raise ValidationFailed("you have no such monitor.", field=field)
            if project is not None and monitor.project_id != project.pk:
                raise ValidationFailed("a project's page shows its project's monitors.", field=field)
            if monitor.public_id in seen:
                raise ValidationFailed("is already on the page.", field=field)
            seen.add(monitor.public_id)
            found[-1].append((monitor, item["name"]))
    if len(seen) > MAX_MONITORS:
        raise ValidationFailed(f"a page shows {MAX_MONITORS} monitors at most.", field="groups")
    return found


def _add_update(page: StatusPage, note: PageNote, given: Mapping[str, Any], *, now: datetime) -> None:
    update = NoteUpdate.objects.create(note=note, status=given["status"], text=given["text"], at=now)
    if update.status == NoteUpdate.Status.RESOLVED:
        note.resolved_at = now
        note.save(update_fields=["resolved_at"])
    touch(page)
    events.add_update_event(page, note, update)


def _incident(page: StatusPage, incident_id: str | None) -> Incident | None:
    """Return the incident, which must belong to a monitor that the page shows. Raises ValidationFailed."""
    if incident_id is None:
        return None
    shown = showable().filter(page=page).values("monitor")
    incident = Incident.objects.filter(public_id=incident_id, monitor__in=shown).first()
    if incident is None:
        raise ValidationFailed("is not an incident of a monitor on this page.", field="incident_id")
    return incident
