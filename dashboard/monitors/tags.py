"""Tags as chips, in colours that follow from their names, and the tags that filters and forms offer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from django.utils.safestring import SafeString, mark_safe

from core.templatetags.pulsekeeper import hue
from monitors.filters import Tag, tags_of
from monitors.selectors import list_monitors
from projects.access import Caller

MAX_OFFERED = 500
"""How many tags a filter or form offers."""
MAX_CHIPS = 6
"""How many tags a row of the list shows."""


def offered(caller: Caller) -> list[Tag]:
    """Return the tags of the caller's monitors by name, if there are many those of most monitors."""
    return tags_of(list_monitors(caller), most=MAX_OFFERED)


def chips(tags: Sequence[str]) -> SafeString:
    """Return links to the monitors with each tag, without a template: a page has 50 rows."""
    if not tags:
        return SafeString()
    links = [
        f'<a class="tag" data-hue="{hue(tag)}" href="/monitors?{escape(urlencode({"tag": tag}))}">{escape(tag)}</a>'
        for tag in tags[:MAX_CHIPS]
    ]
    if further := tags[MAX_CHIPS:]:
        links.append(f'<span class="muted small" title="{escape(", ".join(further))}">+{len(further)}</span>')
    return mark_safe(f'<div class="tags">{" ".join(links)}</div>')  # noqa: S308 - escaped
