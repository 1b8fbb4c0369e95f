"""The context of the navigation for signed-in users."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest

from accounts.models import User
from incidents.selectors import list_incidents
from projects.access import Caller


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Return a callable, so that incidents are counted only if a template renders it: fragments have no navigation."""
    user = getattr(request, "user", None)
    return {"navigation": partial(_entries, user)} if isinstance(user, User) else {}


def _entries(user: User) -> list[tuple[str, str, str, int]]:
    """Return the section, title, icon and number of open incidents of each entry."""
    return [
        ("monitors", "Monitors", "heart-pulse", 0),
        ("incidents", "Incidents", "triangle-alert", list_incidents(Caller(user), is_open=True).count()),
        ("status-pages", "Status pages", "globe", 0),
        ("alert-channels", "Alert channels", "bell", 0),
        ("maintenance", "Maintenance", "calendar", 0),
        ("projects", "Projects", "folder", 0),
        ("connectors", "Connectors", "plug", 0),
        ("tokens", "API tokens", "key", 0),
    ]
