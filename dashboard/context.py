"""The navigation, for every page whose reader is signed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from accounts.models import User
from incidents.selectors import list_incidents
from projects.access import Caller


@dataclass(frozen=True, slots=True)
class Entry:
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
    return {"navigation": _Entries(user)}


class _Entries:
    """Counted when a template draws them: parts of pages that htmx fetches have no navigation to count for."""

    def __init__(self, user: User) -> None:
        self._user = user

    def __iter__(self) -> Iterator[Entry]:
        open_incidents = list_incidents(Caller(self._user), is_open=True).count()
        yield Entry("monitors", "Monitors", "heart-pulse")
        yield Entry("incidents", "Incidents", "triangle-alert", open_incidents, "open")
        yield Entry("status-pages", "Status pages", "globe")
        yield Entry("alert-channels", "Alert channels", "bell")
        yield Entry("maintenance", "Maintenance", "calendar")
        yield Entry("projects", "Projects", "folder")
        yield Entry("connectors", "Connectors", "plug")
        yield Entry("tokens", "API tokens", "key")
