"""Writes to status pages and their notes. Each function is one transaction; `projects.access` decides who may write.

Locks are taken in one order: the states of monitors, the project, the page's owner (for the quota) or the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction
from django.http.request import validate_host

from core.clock import utc_now
from core.errors import LimitReached, NoteResolved, StatusPageLimit, ValidationFailed
from core.etags import IfMatch
from incidents.models import Incident
from monitors.models import Monitor
from monitors.services import lock_monitors
from projects import access
from projects.access import Caller
from projects.placement import enforce_links, enforce_quota, place, require_same_project
from statuspages import caching, events, logos, validation
from statuspages.models import NoteUpdate, PageGroup, PageLogo, PageMonitor, PageNote, StatusPage, own_hosts
from statuspages.selectors import MAX_MONITORS, get_note, get_page, shown_monitors

MAX_PAGES = 50
MAX_SLUG = 64
MAX_UPDATES = 50
"""Limit of updates of a note."""
_DERIVED = ("password_hash", "domain_verified_at", "domain_check_at", "domain_failures")
_PLAIN = ("name", "description", "published", "theme", "show_window_names", "show_locations")


def create_page(
    caller: Caller, given: Mapping[str, Any], *, now: datetime, copied_from: str | None = None
) -> StatusPage:
    """Create a page, with the password and the logo of the page with the id `copied_from`.

    Raises ValidationFailed if the password would be lost, because the copy is in another project.
    """
    given = _hashed(given)
    with transaction.atomic():
        monitors = _lock_monitors(caller, given)
        project, owner = place(caller, given)
        enforce_quota(owner, StatusPage, limit=MAX_PAGES, error=StatusPageLimit)
        page = StatusPage(owner=owner, project=project, created_at=now)
        if copied_from is None:
            return _save(caller, page, given, monitors)
        source = get_page(caller, copied_from)
        caller.require_write(source)
        if source.project == project:
            page.password_hash = source.password_hash
        elif source.is_protected and "password" not in given:
            reason = "is not copied to another project; set one, or null: everyone can read the page."
            raise ValidationFailed(reason, field="password")
        _save(caller, page, given, monitors)
        for logo in PageLogo.objects.filter(page=source):
            logo.pk = page.pk
            logo.save(force_insert=True)
        return get_page(caller, page.public_id)


def slug_of_copy(slug: str) -> str:
    """Return a slug such as `shop-copy` or `shop-copy-2`, which no page has yet."""
    endings = ("-copy", *(f"-copy-{number}" for number in range(2, 2 * MAX_PAGES)))
    found = [f"{slug[: MAX_SLUG - len(ending)].rstrip('-')}{ending}" for ending in endings]
    taken = set(StatusPage.objects.filter(slug__in=found).values_list("slug", flat=True))
    return next((one for one in found if one not in taken), found[0])


def update_page(caller: Caller, public_id: str, given: Mapping[str, Any], *, if_match: IfMatch = None) -> StatusPage:
    given = _hashed(given)
    with transaction.atomic():
        monitors = _lock_monitors(caller, given)
        page = lock_page(caller, public_id, with_owner=bool(monitors), if_match=if_match)
        require_same_project(page, given, reason="cannot be changed; create a new page in that project.")
        return _save(caller, page, given, monitors)


def _hashed(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values with the hash of the password, before any lock: hashing may have to wait."""
    if "password" not in given:
        return given
    return {**given, "password": make_password(given["password"]) if given["password"] else ""}


def delete_page(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    with transaction.atomic():
        page = lock_page(caller, public_id, for_deletion=True, if_match=if_match)
        caching.forget_on_commit(page.slug, page.custom_domain)
        page.delete()


def set_logo(caller: Caller, public_id: str, data: bytes, *, if_match: IfMatch = None) -> StatusPage:
    """Decode and store the logo. Raises ValidationFailed, or TooManyRequests if the decoder is busy."""
    try:
        picture = logos.encode(data)  # before any lock: it may take seconds
    except ValueError as error:
        raise ValidationFailed(str(error), field="logo") from None
    with transaction.atomic():
        page = lock_page(caller, public_id, if_match=if_match)
        PageLogo.objects.update_or_create(page=page, defaults=picture)
        _touch(page)
        return get_page(caller, public_id)


def remove_logo(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> StatusPage:
    """Remove the logo, if there is one."""
    with transaction.atomic():
        page = lock_page(caller, public_id, if_match=if_match)
        PageLogo.objects.filter(page=page).delete()
        _touch(page)
        return get_page(caller, public_id)


def create_note(caller: Caller, page_id: str, given: Mapping[str, Any], *, now: datetime) -> PageNote:
    """Create a note with its first update, and notify subscribers."""
    with transaction.atomic():
        page = lock_page(caller, page_id)
        note = PageNote.objects.create(
            page=page, incident=_incident(page, given.get("incident_id")), title=given["title"], created_at=now
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
        if given["status"] != NoteUpdate.Status.RESOLVED and note.updates.count() >= MAX_UPDATES:
            raise LimitReached("The limit of updates per note is reached; publish another note.", limit=MAX_UPDATES)
        _add_update(page, note, given, now=now)
        return get_note(page, note_id)


def delete_note(caller: Caller, page_id: str, note_id: str) -> None:
    """Delete a note. Mails that are already queued are still sent."""
    with transaction.atomic():
        page = lock_page(caller, page_id)
        get_note(page, note_id).delete()
        _touch(page)


lock_page = partial(access.lock, get_page)


def _touch(page: StatusPage) -> None:
    """Increase the version of a locked page, which invalidates its cached renderings."""
    page.version += 1
    page.save(update_fields=["version"])
    caching.forget_on_commit(page.slug, page.custom_domain)


def _check_domain(text: str) -> str:
    domain = validation.check_domain(text, own=own_hosts())
    if not validate_host(domain, settings.STATUS_PAGE_DOMAINS):
        raise ValueError("is not a domain that this deployment serves; its operator sets STATUS_PAGE_DOMAINS.")
    return domain


_CHECKS = {"slug": validation.check_slug, "accent": validation.check_accent, "custom_domain": _check_domain}


def _save(caller: Caller, page: StatusPage, given: Mapping[str, Any], monitors: Mapping[str, Monitor]) -> StatusPage:
    """Save a new or locked page with these values. Raises ValidationFailed, also if the slug is taken."""
    old_addresses = (page.slug, page.custom_domain)
    for name in _PLAIN:
        setattr(page, name, given.get(name, getattr(page, name)))
    domain = page.custom_domain
    for name, check in _CHECKS.items():
        value = given.get(name)
        if name in given and value != getattr(page, name):
            try:
                setattr(page, name, None if value is None else check(value))
            except ValueError as error:
                raise ValidationFailed(str(error), field=name) from None
    if page.custom_domain != domain:
        page.domain_verified_at, page.domain_failures = None, 0
        page.domain_check_at = None if page.custom_domain is None else utc_now()
    page.password_hash = given.get("password", page.password_hash)
    page.version += 1
    try:
        with transaction.atomic():
            page.save(update_fields=None if page._state.adding else ["version", *_PLAIN, *_CHECKS, *_DERIVED])
    except IntegrityError:
        raise ValidationFailed("is already used by another status page.", field="slug") from None
    if "groups" in given:
        _replace_groups(page, given["groups"], monitors)
    caching.forget_on_commit(*old_addresses, page.slug, page.custom_domain)
    return get_page(caller, page.public_id)


def _lock_monitors(caller: Caller, given: Mapping[str, Any]) -> dict[str, Monitor]:
    """Return the monitors of all groups by id, locked against deletion until the transaction ends."""
    wanted = [item["monitor_id"] for group in given.get("groups", ()) for item in group["monitors"]]
    return lock_monitors(caller, wanted)


def _replace_groups(page: StatusPage, groups: Sequence[Mapping[str, Any]], monitors: Mapping[str, Monitor]) -> None:
    """Replace the groups of a locked page. Raises ValidationFailed if a monitor cannot be shown."""
    items: dict[str, tuple[int, str]] = {}  # monitor id: number of its group, and its name there
    for i, group in enumerate(groups):
        for j, item in enumerate(group["monitors"]):
            field = f"groups[{i}].monitors[{j}].monitor_id"
            monitor = monitors.get(item["monitor_id"])
            if monitor is None:
                raise ValidationFailed("monitor not found.", field=field)
            if page.project is not None and monitor.project_id != page.project_id:
                raise ValidationFailed("a page of a project can only show monitors of its project.", field=field)
            if monitor.public_id in items:
                raise ValidationFailed("is already on the page.", field=field)
            items[monitor.public_id] = (i, item["name"])
    if len(items) > MAX_MONITORS:
        raise ValidationFailed(f"a page can show at most {MAX_MONITORS} monitors.", field="groups")
    enforce_links(page.owner_id, now_chosen=len(items), before=PageMonitor.objects.filter(page=page).count())
    made = [PageGroup(page=page, name=group.get("name", "")) for group in groups]
    for i, group in enumerate(groups):
        made[i].select_tags(group.get("monitor_tags", ()), field=f"groups[{i}].monitor_tags")
    page.groups.all().delete()
    created = PageGroup.objects.bulk_create(made)
    PageMonitor.objects.bulk_create(
        PageMonitor(page=page, group=created[i], monitor=monitors[public_id], name=name)
        for public_id, (i, name) in items.items()
    )


def _add_update(page: StatusPage, note: PageNote, given: Mapping[str, Any], *, now: datetime) -> None:
    update = NoteUpdate.objects.create(note=note, status=given["status"], text=given["text"], at=now)
    if update.status == NoteUpdate.Status.RESOLVED:
        note.resolved_at = now
        note.save(update_fields=["resolved_at"])
    _touch(page)
    events.add_update_event(page, note, update)


def _incident(page: StatusPage, incident_id: str | None) -> Incident | None:
    """Return the incident, which must belong to a monitor that the page shows. Raises ValidationFailed."""
    if incident_id is None:
        return None
    shown = [item.monitor_id for item in shown_monitors(page)]
    incident = Incident.objects.filter(public_id=incident_id, monitor__in=shown).first()
    if incident is None:
        raise ValidationFailed("is not an incident of a monitor on this page.", field="incident_id")
    return incident
