"""The page to create, copy and delete a monitor's badges."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET

from core.clock import utc_now
from core.errors import NotFound
from dashboard.pages import PageRequest, action, button, page, render_page
from monitors.selectors import get_monitor
from statuspages import badges
from statuspages.selectors import get_badge
from statuspages.serializers import BadgeSerializer


@require_GET
@page
def show(request: PageRequest, monitor_id: str) -> HttpResponse:
    monitor = get_monitor(request.caller, monitor_id)
    try:
        urls = BadgeSerializer(get_badge(request.caller, monitor_id)).data["urls"]
    except NotFound:
        urls = {}
    # Paths without the host work on every host of the deployment.
    pictures = [(name, url.removeprefix(settings.BASE_URL), f"![{name}]({url})") for name, url in urls.items()]
    return render_page(request, "monitors/badges", monitor=monitor, pictures=pictures)


@action
def create(request: PageRequest, monitor_id: str) -> HttpResponse:
    badges.create_badge(request.caller, monitor_id, now=utc_now())
    return redirect("monitor_badges", monitor_id)


delete = button(
    badges.delete_badge,
    "The badges are taken away. Their addresses show nothing any more.",
    "monitor_badges",
    to_first_id=True,
)
