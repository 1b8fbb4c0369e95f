"""The page to create, copy and delete a monitor's badges."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from core.clock import utc_now
from core.errors import NotFound
from dashboard.pages import PageRequest, page
from monitors.selectors import get_monitor
from statuspages import badges
from statuspages.selectors import get_badge
from statuspages.serializers import BadgeSerializer


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    url: str

    @property
    def path(self) -> str:
        """Return the path without the host, so that it works on every host of the deployment."""
        return self.url.removeprefix(settings.BASE_URL)

    @property
    def markdown(self) -> str:
        return f"![{self.name}]({self.url})"


@require_GET
@page
def show(request: PageRequest, monitor_id: str) -> HttpResponse:
    monitor = get_monitor(request.caller, monitor_id)
    try:
        urls = BadgeSerializer(get_badge(request.caller, monitor_id)).data["urls"]
    except NotFound:
        urls = {}
    pictures = [Picture(name, url) for name, url in urls.items()]
    context = {"section": "monitors", "monitor": monitor, "pictures": pictures}
    return render(request, "dashboard/monitors/badges.html", context)


@require_POST
@page
def give(request: PageRequest, monitor_id: str) -> HttpResponse:
    badges.create_badge(request.caller, monitor_id, now=utc_now())
    return redirect("monitor_badges", monitor_id)


@require_POST
@page
def take(request: PageRequest, monitor_id: str) -> HttpResponse:
    badges.delete_badge(request.caller, monitor_id)
    messages.success(request, "The badges are taken away. Their addresses show nothing any more.")
    return redirect("monitor_badges", monitor_id)
