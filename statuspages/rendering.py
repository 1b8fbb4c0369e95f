"""A page as bytes: HTML, JSON, an Atom feed, its colours and its logo. Each is made for all readers at once."""

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
from core.errors import NotFound
from core.templatetags.pulsekeeper import icon, percent
from statuspages import bars, colours
from statuspages.content import Happening, Shown, content_of, month_of, months
from statuspages.lookup import Place
from statuspages.models import PageLogo, StatusPage

HTML, JSON, ATOM, CSS = (
    "text/html; charset=utf-8",
    "application/json",
    "application/atom+xml; charset=utf-8",
    "text/css; charset=utf-8",
)
FEED_ENTRIES = 50
MANY = 100
"""Monitors, beyond which a browser is told to lay out those on the screen only."""
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
    """Where the parts of a page are: below its slug, or on a domain of its own."""

    root: str
    page: str
    json: str
    atom: str

    @classmethod
    def of(cls, place: Place, *, on_domain: bool) -> Links:
        if on_domain:
            return cls("", "/", "/status.json", "/status.atom")
        root = f"/status/{place.slug}"
        return cls(root, root, f"{root}.json", f"{root}.atom")

    def absolute(self, place: Place, path: str) -> str:
        if self.root:
            return settings.BASE_URL + path
        return f"{urlsplit(settings.BASE_URL).scheme}://{place.domain}{path}"


@dataclass(frozen=True, slots=True)
class Row:
    """A monitor as its line on the page shows it."""

    name: str
    state: SafeString
    status: SafeString
    uptime: SafeString
    bar: SafeString
    days: SafeString

    @classmethod
    def of(cls, monitor: Shown) -> Row:
        percents = monitor.history.percents()
        # Numbers and words of ours: escaping them on a thousand lines would take a tenth of the time of the page.
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
    """The icon and the word of each status: the same on a thousand lines."""
    return {status: format_html("{}{}", icon(ICONS[status]), word) for status, word in WORDS.items()}


def html(place: Place, links: Links) -> bytes:
    page, now = _page(place), utc_now()
    content = content_of(page, now=now)
    rows = [(group, [Row.of(monitor) for monitor in group.monitors]) for group in content.groups]
    return _draw(
        "statuspages/page.html",
        page,
        place,
        links,
        content=content,
        groups=rows,
        many=len(content.monitors) > MANY,
        icon=ICONS[content.state],
        first_day=content.monitors[0].history.start if content.monitors else None,
        month=f"{now.astimezone(UTC):%Y-%m}",
    )


def history(place: Place, links: Links, month: str) -> bytes:
    page, now = _page(place), utc_now()
    first, days = month_of(page, month, now=now)
    known = months(now)
    index = known.index(first)
    later = known[index - 1] if index else None
    earlier = known[index + 1] if index + 1 < len(known) else None
    return _draw(
        "statuspages/history.html", page, place, links, first=first, days=days, later=later, earlier=earlier
    )


def as_json(place: Place, links: Links) -> bytes:
    page = _page(place)
    content = content_of(page, now=utc_now())
    body = {
        "page": {
            "name": page.name,
            "description": page.description,
            "url": links.absolute(place, links.page),
        },
        "status": {"state": content.state, "description": content.sentence},
        "groups": [
            {"name": group.name, "monitors": [_monitor(monitor) for monitor in group.monitors]}
            for group in content.groups
        ],
        "incidents": [_happening(one) for one in content.current],
        "past_incidents": [_happening(one) for _, members in content.past for one in members],
        "maintenance": [
            {
                "title": one.title,
                "starts_at": _iso(one.starts_at),
                "ends_at": _iso(one.ends_at),
                "active": one.on,
                "monitors": one.monitors,
            }
            for one in content.maintenance
        ],
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def atom(place: Place, links: Links) -> bytes:
    page = _page(place)
    content = content_of(page, now=utc_now())
    address = links.absolute(place, links.page)
    feed = _Feed(
        title=_printable(page.name),
        link=address,
        description="",
        subtitle=_printable(page.description) or None,
        feed_url=links.absolute(place, links.atom),
        feed_guid=f"tag:pulsekeeper,2026:{page.public_id}",
    )
    happenings = [*content.current, *(one for _, members in content.past for one in members)]
    for one in sorted(happenings, key=lambda one: one.changed_at, reverse=True)[:FEED_ENTRIES]:
        feed.add_item(
            title=_printable(one.title),
            link=f"{address}#{one.key}",
            unique_id=f"tag:pulsekeeper,2026:{one.key}",
            description=_printable(_told(one)),
            pubdate=one.started_at,
            updateddate=one.changed_at,
        )
    out = BytesIO()
    feed.write(out, "utf-8")
    return out.getvalue()


def theme(place: Place, links: Links) -> bytes:
    accent = _page(place).accent
    if accent is None:
        return b""
    return f":root{{--page-accent:{accent};--on-page-accent:{colours.text_on(accent)}}}\n".encode()


def logo(place: Place, links: Links) -> bytes:
    found = PageLogo.objects.filter(page=place.page_id).first()
    if found is None:
        raise NotFound
    return bytes(found.image)


def unlock(*, path: str, wrong: str | None) -> bytes:
    """The question for a password says nothing of the page behind it."""
    return render_to_string("statuspages/unlock.html", {"path": path, "wrong": wrong}).encode()


def message(title: str, text: str, **more: Any) -> bytes:
    return render_to_string("statuspages/message.html", {"title": title, "text": text, **more}).encode()


Part = tuple[str, Callable[[Place, Links], bytes]]
PARTS: dict[str, Part] = {
    "page": (HTML, html),
    "json": (JSON, as_json),
    "atom": (ATOM, atom),
    "theme": (CSS, theme),
    "logo": ("image/webp", logo),
}


def _page(place: Place) -> StatusPage:
    page = StatusPage.objects.select_related("logo").defer("logo__image").filter(pk=place.page_id).first()
    if page is None:
        raise NotFound
    return page


def _draw(template: str, page: StatusPage, place: Place, links: Links, **context: Any) -> bytes:
    context |= {
        "page": page,
        "links": links,
        "logo": getattr(page, "logo", None),
        "protected": bool(place.lock),
        "version": place.version,
    }
    return render_to_string(template, context).encode()


def _monitor(monitor: Shown) -> dict[str, Any]:
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


def _happening(one: Happening) -> dict[str, Any]:
    return {
        "title": one.title,
        "monitor": one.monitor,
        "started_at": _iso(one.started_at),
        "resolved_at": None if one.resolved_at is None else _iso(one.resolved_at),
        "updates": [
            {"status": update.status, "text": update.text, "at": _iso(update.at)} for update in one.updates
        ],
    }


def _told(one: Happening) -> str:
    lines = [f"{update.at:%Y-%m-%d %H:%M} UTC, {update.label}: {update.text}" for update in one.updates]
    if not lines:
        until = "It goes on." if one.resolved_at is None else f"Until {one.resolved_at:%Y-%m-%d %H:%M} UTC."
        lines = [f"Since {one.started_at:%Y-%m-%d %H:%M} UTC. {until}"]
    return "\n\n".join(lines)


def _printable(text: str) -> str:
    """Without what no XML can hold."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class _Feed(Atom1Feed):
    def latest_post_date(self) -> datetime:
        """Nothing of the time of rendering: the same news are the same bytes."""
        dates = [item["updateddate"] for item in self.items]
        return max(dates) if dates else datetime(2026, 1, 1, tzinfo=UTC)
