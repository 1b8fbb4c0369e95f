"""Render a status page as HTML, JSON, Atom feed, theme and logo: the same bytes for all readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.template.loader import render_to_string
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import format_html
from django.utils.safestring import SafeString

from core.clock import utc_now
from core.db import get_or_not_found
from core.errors import NotFound
from core.templatetags.pulsekeeper import icon, percent
from statuspages import bars, colours
from statuspages.content import IncidentEntry, MonitorEntry, content_of, month_of, months
from statuspages.lookup import PublishedPage
from statuspages.models import PageLogo, StatusPage

HTML, JSON, ATOM, CSS = (
    "text/html; charset=utf-8",
    "application/json",
    "application/atom+xml; charset=utf-8",
    "text/css; charset=utf-8",
)
FEED_ENTRIES = 50
MANY = 100
"""Above this number of monitors the stylesheet lays out only those on the screen."""
WORDS = {
    "up": "Up",
    "slow": "Slow",
    "down": "Down",
    "maintenance": "Maintenance",
    "paused": "Paused",
    "unknown": "Not checked yet",
}
ICONS = {
    "up": "circle-check",
    "slow": "clock",
    "down": "circle-alert",
    "maintenance": "wrench",
    "paused": "circle-pause",
    "unknown": "circle-help",
}


@dataclass(frozen=True, slots=True)
class Links:
    """Paths of a page's parts, below its slug or on its own domain."""

    root: str
    page: str
    json: str
    atom: str

    @classmethod
    def of(cls, published: PublishedPage, *, on_domain: bool) -> Links:
        if on_domain:
            return cls("", "/", "/status.json", "/status.atom")
        root = f"/status/{published.slug}"
        return cls(root, root, f"{root}.json", f"{root}.atom")

    def absolute(self, published: PublishedPage, path: str) -> str:
        if self.root:
            return settings.BASE_URL + path
        return f"{urlsplit(settings.BASE_URL).scheme}://{published.domain}{path}"


@dataclass(frozen=True, slots=True)
class MonitorLine:
    """A monitor as its line on the page shows it."""

    name: str
    state: SafeString
    status: SafeString
    uptime: SafeString
    bar: SafeString
    days: SafeString

    @classmethod
    def of(cls, monitor: MonitorEntry) -> MonitorLine:
        percents = monitor.history.percents()
        # Our own numbers and words are safe: escaping them on a thousand lines takes a tenth of the rendering.
        return cls(
            monitor.name,
            _states()[monitor.status],
            *map(
                SafeString,
                (
                    monitor.status,
                    percent(monitor.history.percent()),
                    bars.svg(percents),
                    bars.bad_days(percents),
                ),
            ),
        )


@cache
def _states() -> dict[str, SafeString]:
    """Return the icon and word of each status."""
    return {status: format_html("{}{}", icon(ICONS[status]), word) for status, word in WORDS.items()}


def html(published: PublishedPage, links: Links) -> bytes:
    page, now = _page(published), utc_now()
    content = content_of(page, now=now)
    rows = [(group, [MonitorLine.of(monitor) for monitor in group.monitors]) for group in content.groups]
    return _draw(
        "statuspages/page.html",
        page,
        published,
        links,
        content=content,
        groups=rows,
        many=len(content.monitors) > MANY,
        icon=ICONS[content.state],
        first_day=content.monitors[0].history.start if content.monitors else None,
        month=f"{now.astimezone(UTC):%Y-%m}",
    )


def history(published: PublishedPage, links: Links, month: str) -> bytes:
    page, now = _page(published), utc_now()
    first, days = month_of(page, month, now=now)
    known = months(now)
    index = known.index(first)
    later = known[index - 1] if index else None
    earlier = known[index + 1] if index + 1 < len(known) else None
    return _draw(
        "statuspages/history.html",
        page,
        published,
        links,
        first=first,
        days=days,
        later=later,
        earlier=earlier,
    )


def as_json(published: PublishedPage, links: Links) -> bytes:
    page = _page(published)
    content = content_of(page, now=utc_now())
    body = {
        "page": {
            "name": page.name,
            "description": page.description,
            "url": links.absolute(published, links.page),
        },
        "status": {"state": content.state, "description": content.sentence},
        "groups": [
            {"name": group.name, "monitors": [_monitor(monitor) for monitor in group.monitors]}
            for group in content.groups
        ],
        "incidents": [_incident_json(one) for one in content.current],
        "past_incidents": [_incident_json(one) for _, members in content.past for one in members],
        "maintenance": [
            {
                "title": one.title,
                "starts_at": _iso(one.starts_at),
                "ends_at": _iso(one.ends_at),
                "active": one.active,
                "monitors": one.monitors,
            }
            for one in content.maintenance
        ],
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def atom(published: PublishedPage, links: Links) -> bytes:
    page = _page(published)
    content = content_of(page, now=utc_now())
    address = links.absolute(published, links.page)
    feed = _Feed(
        title=_printable(page.name),
        link=address,
        description="",
        subtitle=_printable(page.description) or None,
        feed_url=links.absolute(published, links.atom),
        feed_guid=f"tag:pulsekeeper,2026:{page.public_id}",
    )
    incidents = [*content.current, *(one for _, members in content.past for one in members)]
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


def theme(published: PublishedPage, links: Links) -> bytes:
    accent = _page(published).accent
    if accent is None:
        return b""
    return f":root{{--page-accent:{accent};--on-page-accent:{colours.text_on(accent)}}}\n".encode()


def logo(published: PublishedPage, links: Links) -> bytes:
    found = PageLogo.objects.filter(page=published.page_id).first()
    if found is None:
        raise NotFound
    return bytes(found.image)


def unlock(*, path: str, wrong: str | None) -> bytes:
    """Render the password form. It reveals nothing about the page."""
    return render_to_string("statuspages/unlock.html", {"path": path, "wrong": wrong}).encode()


def message(title: str, text: str, **more: Any) -> bytes:
    return render_to_string("statuspages/message.html", {"title": title, "text": text, **more}).encode()


Part = tuple[str, Callable[[PublishedPage, Links], bytes]]
PARTS: dict[str, Part] = {
    "page": (HTML, html),
    "json": (JSON, as_json),
    "atom": (ATOM, atom),
    "theme": (CSS, theme),
    "logo": ("image/webp", logo),
}


def _page(published: PublishedPage) -> StatusPage:
    return get_or_not_found(StatusPage.objects.select_related("logo").defer("logo__image"), pk=published.page_id)


def _draw(template: str, page: StatusPage, published: PublishedPage, links: Links, **context: Any) -> bytes:
    context |= {
        "page": page,
        "links": links,
        "logo": getattr(page, "logo", None),
        "protected": bool(published.lock),
        "version": published.version,
    }
    return render_to_string(template, context).encode()


def _monitor(monitor: MonitorEntry) -> dict[str, Any]:
    history = monitor.history
    return {
        "name": monitor.name,
        "status": monitor.status,
        "since": None if monitor.since is None else _iso(monitor.since),
        "uptime_7d": history.percent(7),
        "uptime_30d": history.percent(30),
        "uptime_90d": history.percent(),
        "days": {"first": history.start.isoformat(), "uptime": history.percents()},
    }


def _incident_json(one: IncidentEntry) -> dict[str, Any]:
    return {
        "title": one.title,
        "monitor": one.monitor,
        "started_at": _iso(one.started_at),
        "resolved_at": None if one.resolved_at is None else _iso(one.resolved_at),
        "updates": [{"status": update.status, "text": update.text, "at": _iso(update.at)} for update in one.updates],
    }


def _feed_text(one: IncidentEntry) -> str:
    lines = [f"{update.at:%Y-%m-%d %H:%M} UTC, {update.label}: {update.text}" for update in one.updates]
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
        dates = [item["updateddate"] for item in self.items]
        return max(dates) if dates else datetime(2026, 1, 1, tzinfo=UTC)
