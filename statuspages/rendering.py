"""Render a status page as HTML, JSON, Atom feed, theme and logo: the same bytes for all readers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from typing import Any

from dateutil.relativedelta import relativedelta
from django.template.loader import render_to_string
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import format_html
from django.utils.safestring import SafeString

from core.clock import utc_now
from core.db import get_or_not_found
from core.errors import NotFound
from core.templatetags.pulsekeeper import icon, percent
from statuspages import bars, logos, validation
from statuspages.caching import PublishedPage
from statuspages.content import IncidentEntry, content_of, incidents_of_month, recent_incidents
from statuspages.models import StatusPage
from statuspages.selectors import shown_monitors

HTML = "text/html; charset=utf-8"
FEED_ENTRIES = 50
MONTHS = 24
MANY = 100
"""Above this number of monitors the stylesheet lays out only those on the screen."""
_STATUSES = {
    "up": ("circle-check", "Up"),
    "slow": ("clock", "Slow"),
    "degraded": ("triangle-alert", "Degraded"),
    "down": ("circle-alert", "Down"),
    "maintenance": ("wrench", "Maintenance"),
    "paused": ("circle-pause", "Paused"),
    "unknown": ("circle-help", "Unknown"),
}
"""The icon and the word of each status."""


@cache
def _state(status: str) -> SafeString:
    return format_html("{}{}", icon(_STATUSES[status][0]), _STATUSES[status][1])


def _line(monitor: dict[str, Any]) -> dict[str, Any]:
    """Return what a monitor's line on the page shows.

    Our own numbers and words are safe: escaping them on a thousand lines takes a tenth of the rendering.
    """
    percents = monitor["days"]["uptime"]
    return {
        "name": monitor["name"],
        "state": _state(monitor["status"]),
        "status": SafeString(monitor["status"]),
        "uptime": SafeString(percent(monitor["uptime_90d"])),
        "bar": SafeString(bars.svg(percents)),
        "days": SafeString(bars.bad_days(percents)),
        "locations": [
            {"name": one["name"], "status": SafeString(one["status"]), "state": _state(one["status"])}
            for one in monitor.get("locations", ())
        ],
    }


def load_page(published: PublishedPage) -> StatusPage:
    return get_or_not_found(StatusPage.objects.select_related("logo").defer("logo__image"), pk=published.page_id)


def html(page: StatusPage, links: PublishedPage) -> bytes:
    now = utc_now()
    content = content_of(page, now=now)
    return _draw(
        "statuspages/page.html",
        page,
        links,
        content=content,
        groups=[(group, [_line(monitor) for monitor in group["monitors"]]) for group in content.groups],
        many=sum(len(group["monitors"]) for group in content.groups) > MANY,
        icon=_STATUSES[content.state][0],
        month=f"{now.astimezone(UTC):%Y-%m}",
    )


def history(page: StatusPage, links: PublishedPage, *, month: str) -> bytes:
    """Render the incidents of a month, `2026-03`. Raises NotFound for one that has no page."""
    this_month = utc_now().date().replace(day=1)
    months = {f"{first:%Y-%m}": first for first in (this_month - relativedelta(months=n) for n in range(MONTHS))}
    if month not in months:
        raise NotFound
    first, step = months[month], relativedelta(months=1)
    return _draw(
        "statuspages/history.html",
        page,
        links,
        first=first,
        incidents=incidents_of_month(page, first),
        later=months.get(f"{first + step:%Y-%m}"),
        earlier=months.get(f"{first - step:%Y-%m}"),
    )


def as_json(page: StatusPage, links: PublishedPage) -> bytes:
    content = content_of(page, now=utc_now())
    body = {
        "page": {"name": page.name, "description": page.description, "url": links.origin + links.page},
        "status": {"state": content.state, "description": content.sentence},
        "groups": content.groups,
        "incidents": [_incident(one) for one in content.current],
        "past_incidents": [_incident(one) for one in content.past],
        "maintenance": content.maintenance,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_iso).encode()


def atom(page: StatusPage, links: PublishedPage) -> bytes:
    incidents = recent_incidents(page, shown_monitors(page), now=utc_now())
    address = links.origin + links.page
    feed = _Feed(
        title=_printable(page.name),
        link=address,
        description="",
        subtitle=_printable(page.description) or None,
        feed_url=links.origin + links.atom,
        feed_guid=f"tag:pulsekeeper,2026:{page.public_id}",
    )
    for one in sorted(incidents, key=lambda one: one.changed_at, reverse=True)[:FEED_ENTRIES]:
        feed.add_item(
            title=_printable(one.title),
            link=f"{address}#{one.key}",
            unique_id=f"tag:pulsekeeper,2026:{one.key}",
            description=_printable(_feed_text(one)),
            pubdate=one.started_at,
            updateddate=one.changed_at,
        )
    out = BytesIO()
    feed.write(out, "utf-8")
    return out.getvalue()


def theme(page: StatusPage, links: PublishedPage) -> bytes:
    if page.accent is None:
        return b""
    return f":root{{--page-accent:{page.accent};--on-page-accent:{validation.text_on(page.accent)}}}\n".encode()


def logo(page: StatusPage, links: PublishedPage) -> bytes:
    if not page.has_logo:
        raise NotFound
    return bytes(page.logo.image)


Part = tuple[str, Callable[[StatusPage, PublishedPage], bytes]]
_PARTS: dict[str, Part] = {
    "": (HTML, html),
    ".json": ("application/json", as_json),
    ".atom": ("application/atom+xml; charset=utf-8", atom),
    "/theme.css": ("text/css; charset=utf-8", theme),
    "/logo": (logos.CONTENT_TYPE, logo),
}
_MONTH = re.compile(r"/history/(\d{4}-\d{2})")


def part(rest: str) -> Part:
    """Return the content type and the renderer of a path after the slug. Raises NotFound."""
    if found := _MONTH.fullmatch(rest):
        return HTML, partial(history, month=found[1])
    if rest not in _PARTS:
        raise NotFound
    return _PARTS[rest]


def _draw(template: str, page: StatusPage, links: PublishedPage, **context: Any) -> bytes:
    return render_to_string(template, {"page": page, "links": links, **context}).encode()


def _incident(one: IncidentEntry) -> dict[str, Any]:
    return {
        "title": one.title,
        "monitor": one.monitor,
        "started_at": one.started_at,
        "resolved_at": one.resolved_at,
        "updates": [{"status": update.status, "text": update.text, "at": update.at} for update in one.updates],
    }


def _feed_text(one: IncidentEntry) -> str:
    lines = [f"{update.at:%Y-%m-%d %H:%M} UTC, {update.get_status_display()}: {update.text}" for update in one.updates]
    if not lines:
        until = "Ongoing." if one.resolved_at is None else f"Until {one.resolved_at:%Y-%m-%d %H:%M} UTC."
        lines = [f"Since {one.started_at:%Y-%m-%d %H:%M} UTC. {until}"]
    return "\n\n".join(lines)


def _printable(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class _Feed(Atom1Feed):
    def latest_post_date(self) -> datetime:
        """Return the date of the newest entry, not the current time, so that equal feeds have equal bytes."""
        return max((item["updateddate"] for item in self.items), default=datetime(2026, 1, 1, tzinfo=UTC))
