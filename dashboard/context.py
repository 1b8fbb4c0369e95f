"""The context of the navigation for signed-in users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from accounts.models import User
from incidents.selectors import list_incidents
from projects.access import Caller


@dataclass(frozen=True, slots=True)
class NavigationItem:
    section: str
    title: str
    icon: str
    count: int = 0
    counted: str = ""

    @property
    def path(self) -> str:
        return f"/{self.section}"


def navigation(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return {}
    return {"navigation": _Navigation(user)}


class _Navigation:
    """The navigation. Counts are queried only if a template renders them: fragments for htmx have no navigation."""

    def __init__(self, user: User) -> None:
        self._user = user

    def __iter__(self) -> Iterator[NavigationItem]:
        open_incidents = list_incidents(Caller(self._user), is_open=True).count()
        yield NavigationItem("monitors", "Monitors", "heart-pulse")
        yield NavigationItem("incidents", "Incidents", "triangle-alert", open_incidents, "open")
        yield NavigationItem("status-pages", "Status pages", "globe")
        yield NavigationItem("alert-channels", "Alert channels", "bell")
        yield NavigationItem("maintenance", "Maintenance", "calendar")
        yield NavigationItem("projects", "Projects", "folder")
        yield NavigationItem("connectors", "Connectors", "plug")
        yield NavigationItem("tokens", "API tokens", "key")
