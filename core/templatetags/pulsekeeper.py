"""Icons, times and durations for the templates of all apps. A builtin of the engine: no {% load %}."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zlib import crc32

from django import template
from django.template.context import RequestContext
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from core import mail, outbound, private_networks

register = template.Library()

NOTHING = "\N{EN DASH}"
HUES = 12
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """Render an icon of static/vendor/lucide, as large as the text, hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', static("vendor/lucide/icons.svg"), name
    )


@register.simple_tag(takes_context=True)
def mail_problem(context: RequestContext) -> str | None:
    """Return why no mail is sent, in the words for this user, or None."""
    return mail.server_problem(staff=_is_staff(context))


@register.simple_tag(takes_context=True)
def private_networks_advice(context: RequestContext) -> str:
    """Return who can allow private networks, and how, in the words for this user."""
    return outbound.private_networks_advice(staff=_is_staff(context))


@register.simple_tag
def private_networks_question() -> bool:
    """Return whether staff have to answer whether checks may reach private networks."""
    path = private_networks.answer_file()
    return path is not None and private_networks.read(path) is None


def _is_staff(context: RequestContext) -> bool:
    return bool(getattr(getattr(context.get("request"), "user", None), "is_staff", False))


@register.simple_tag
def when(moment: datetime | None, style: str = "full", *, never: str = "never") -> SafeString | str:
    """Render a moment in UTC, which times.js changes to the reader's time zone, in the same format.

    `full` has minutes, `log` has seconds for logs and timelines, `day` is the date alone, and `ago` becomes relative.
    The title is always in UTC, with seconds.
    """
    if moment is None:
        return never
    utc = moment.astimezone(UTC)
    day, time = f"{utc.day} {utc:%b %Y}", f"{utc:%H:%M:%S}"
    exact = f"{day}, {time} UTC"
    shown = {"day": day, "log": exact}.get(style, f"{day}, {time[:5]} UTC")
    return mark_safe(  # noqa: S308 - numbers, names of months, and a word of a template
        f'<time datetime="{utc.isoformat(timespec="seconds")}" title="{exact}" data-time="{style}">{shown}</time>'
    )


@register.filter
def hue(text: str) -> int:
    """Return the number of the colour for a text, regardless of case. base.css has HUES colours."""
    return crc32(text.casefold().encode()) % HUES


@register.filter
def writes(caller: Any, row: object) -> bool:
    """Return whether a `projects.access.Caller` may change a row that it can read: pages hide controls otherwise."""
    return not caller.only_reads(row)


@register.filter
def duration(value: timedelta | float | None) -> str:
    """Format a span of time in its two largest units, as `3 h 20 min`; a number is in seconds."""
    if value is None:
        return ""
    left = round(value.total_seconds() if isinstance(value, timedelta) else value)
    parts = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


@register.filter
def span(value: timedelta | float | None) -> str:
    """Format how long something took, from milliseconds to days, or a dash for none; a number is in milliseconds."""
    if value is None:
        return NOTHING
    ms = round(value / timedelta(milliseconds=1) if isinstance(value, timedelta) else value)
    return milliseconds(ms) if ms < 60_000 else duration(ms / 1000)


@register.filter
def milliseconds(value: float | None) -> str:
    """Format a latency: `84 ms`, `1.62 s`, or a dash for none."""
    if value is None:
        return NOTHING
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.2f} s"


@register.filter
def percent(value: float | None) -> str:
    """Format an uptime: `100 %`, `99.98 %`, or a dash for none."""
    return NOTHING if value is None else f"{value:.2f}".rstrip("0").rstrip(".") + " %"
