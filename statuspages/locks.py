"""A status page, held by its lock while it is changed."""

from __future__ import annotations

from django.db import transaction

from core.errors import NotFound
from projects import access
from projects.access import Caller
from statuspages.lookup import forget
from statuspages.models import StatusPage
from statuspages.selectors import get_page


def hold(caller: Caller, public_id: str, *, for_deletion: bool = False) -> StatusPage:
    """The page, its row locked and read under the lock; its project before it, whose deletion takes the two so."""
    page = get_page(caller, public_id)
    if page.project is not None:
        access.hold_project(caller, page.project.public_id)
    held = StatusPage.objects.select_for_update(no_key=not for_deletion).filter(pk=page.pk)
    if held.first() is None:
        raise NotFound
    return get_page(caller, public_id)


def changed(page: StatusPage) -> None:
    """Have what is cached of a held page made anew."""
    page.version += 1
    page.save(update_fields=["version"])
    forget_on_commit(page.slug, page.custom_domain)


def forget_on_commit(*addresses: str | None) -> None:
    transaction.on_commit(lambda: forget(address for address in addresses if address))
