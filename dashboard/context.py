"""The context of the navigation for signed-in users."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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
    """Return a callable, so that incidents are counted only if a template renders it: fragments have no navigation."""
    user = getattr(request, "user", None)
    return {"navigation": partial(_items, user)} if isinstance(user, User) else {}


def _items(user: User) -> list[NavigationItem]:
    open_incidents = list_incidents(Caller(user), is_open=True).count()
    return [
        NavigationItem("monitors", "Monitors", "heart-pulse"),
        NavigationItem("incidents", "Incidents", "triangle-alert", open_incidents, "open"),
        NavigationItem("status-pages", "Status pages", "globe"),
        NavigationItem("alert-channels", "Alert channels", "bell"),
        NavigationItem("maintenance", "Maintenance", "calendar"),
        NavigationItem("projects", "Projects", "folder"),
        NavigationItem("connectors", "Connectors", "plug"),
        NavigationItem("tokens", "API tokens", "key"),
    ]
