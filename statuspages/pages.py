"""What is done to status pages. Each function is one transaction; who may, is settled by `projects.access`.

Locks in one order: the states of monitors, as whoever changes or deletes a monitor takes them; the project; the owner,
for the cap, or the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction
from django.http.request import validate_host

from accounts.models import User
from core.errors import StatusPageLimit, ValidationFailed
from monitors.models import Monitor, MonitorState
from projects import access
from projects.access import Caller
from projects.models import Project
from projects.places import place
from statuspages import colours, logos, names
from statuspages.locks import changed, forget_on_commit, hold
from statuspages.lookup import own_hosts
from statuspages.models import PageGroup, PageLogo, PageMonitor, StatusPage
from statuspages.selectors import get_page

MAX_PAGES = 50
MAX_MONITORS = 1_000
_PLAIN = ("name", "description", "published", "theme", "show_window_names")


def create_page(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> StatusPage:
    with transaction.atomic():
        monitors = _hold_monitors(caller, given)
        project, owner = place(caller, given)
        _take_room(owner)
        page = StatusPage(owner=owner, project=project, created_at=now)
        _set(page, given)
        _save(page, force_insert=True)
        _arrange(page, given, monitors)
        forget_on_commit(page.slug, page.custom_domain)
        return get_page(caller, page.public_id)


def update_page(caller: Caller, public_id: str, given: Mapping[str, Any]) -> StatusPage:
    with transaction.atomic():
        monitors = _hold_monitors(caller, given)
        page = hold(caller, public_id)
        before = (page.slug, page.custom_domain)
        at_home = page.project.public_id if page.project else None
        if given.get("project_id", at_home) != at_home:
            raise ValidationFailed("a page stays where it was made; make another.", field="project_id")
        _set(page, given)
        _save(page)
        _arrange(page, given, monitors)
        forget_on_commit(*before, page.slug, page.custom_domain)
        return get_page(caller, public_id)


def delete_page(caller: Caller, public_id: str) -> None:
    with transaction.atomic():
        page = hold(caller, public_id, for_deletion=True)
        forget_on_commit(page.slug, page.custom_domain)
        page.delete()


def set_logo(caller: Caller, public_id: str, data: bytes) -> StatusPage:
    """Decode and store the logo. Raises ValidationFailed, or TooManyRequests while other pictures are decoded."""
    try:
        picture = logos.encode(data)  # before any lock: it may take seconds
    except ValueError as error:
        raise ValidationFailed(str(error), field="logo") from None
    with transaction.atomic():
        page = hold(caller, public_id)
        PageLogo.objects.update_or_create(
            page=page,
            defaults={
                "content_type": logos.CONTENT_TYPE,
                "image": picture.image,
                "width": picture.width,
                "height": picture.height,
            },
        )
        changed(page)
        return get_page(caller, public_id)


def remove_logo(caller: Caller, public_id: str) -> StatusPage:
    """The page has none afterwards, whether it had one or not."""
    with transaction.atomic():
        page = hold(caller, public_id)
        PageLogo.objects.filter(page=page).delete()
        changed(page)
        return get_page(caller, public_id)


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
    domain = _checked("custom_domain", value, lambda text: names.check_domain(text, own=own_hosts()))
    if not validate_host(domain, settings.STATUS_PAGE_DOMAINS):
        raise ValidationFailed(
            "is none of the domains that this deployment serves; its operator sets STATUS_PAGE_DOMAINS.",
            field="custom_domain",
        )
    return domain


def _save(page: StatusPage, *, force_insert: bool = False) -> None:
    """Raises ValidationFailed where another page has the slug or the domain."""
    if not force_insert:
        page.version += 1
    columns = ["version", *_PLAIN, "slug", "accent", "password_hash", "custom_domain"]
    try:
        with transaction.atomic():
            page.save(force_insert=force_insert, update_fields=None if force_insert else columns)
    except IntegrityError as error:
        taken = "custom_domain" if "custom_domain" in str(error) else "slug"
        raise ValidationFailed("is taken by another status page.", field=taken) from None


def _hold_monitors(caller: Caller, given: Mapping[str, Any]) -> dict[str, Monitor]:
    """The monitors of all groups by their ids, kept until the transaction ends."""
    wanted = [item["monitor_id"] for group in given.get("groups", ()) for item in group["monitors"]]
    if not wanted:
        return {}
    there = access.accessible(caller, Monitor.objects.filter(public_id__in=wanted))
    keys = list(there.values_list("pk", flat=True))
    list(MonitorState.objects.select_for_update(no_key=True).filter(pk__in=keys).order_by("pk").only("pk"))
    return {monitor.public_id: monitor for monitor in there.all()}


def _arrange(page: StatusPage, given: Mapping[str, Any], monitors: Mapping[str, Monitor]) -> None:
    """Put these groups in place of those there are. The page is held, so that two arrangements never mix."""
    if "groups" not in given:
        return
    items = _items(page.project, given["groups"], monitors)
    page.groups.all().delete()
    made = PageGroup.objects.bulk_create(
        PageGroup(page=page, name=group.get("name", "")) for group in given["groups"]
    )
    PageMonitor.objects.bulk_create(
        PageMonitor(page=page, group=group, monitor=monitor, name=name)
        for group, shown in zip(made, items, strict=True)
        for monitor, name in shown
    )


def _items(
    project: Project | None, groups: Sequence[Mapping[str, Any]], monitors: Mapping[str, Monitor]
) -> list[list[tuple[Monitor, str]]]:
    """Of each group its monitors and their names; raises ValidationFailed where one cannot be shown."""
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
                raise ValidationFailed("is on the page already.", field=field)
            seen.add(monitor.public_id)
            found[-1].append((monitor, item["name"]))
    if len(seen) > MAX_MONITORS:
        raise ValidationFailed(f"a page shows {MAX_MONITORS} monitors at most.", field="groups")
    return found


def _take_room(owner: User) -> None:
    """Hold the owner's row, so that the cap is met by one creation after the other."""
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if StatusPage.objects.filter(owner=owner).count() >= MAX_PAGES:
        raise StatusPageLimit(limit=MAX_PAGES)
