"""The overview: the list, its further pages, and its live updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from core.api.converters import is_public_id
from core.errors import ChangedMeanwhile
from dashboard.monitors import actions, bulk
from dashboard.monitors.listing import SORTS, Listing, Tally, matching, tally
from dashboard.monitors.rows import read_page, rows_of
from dashboard.monitors.tags import offered
from dashboard.pages import PageRequest, action, count_request, read_only, render_page
from monitors import types
from monitors.filters import NO_PROJECT, STATES
from monitors.selectors import list_monitors, named
from monitors.stale import load_schedules
from monitors.types.tags import tag_key
from projects import access

MAX_LIVE = 100
"""Number of rows that are refreshed at once: more than a screen shows."""
MAX_NAMED = 100
"""Number of monitors that the page before a deletion names."""


@read_only
def overview(request: PageRequest) -> HttpResponse:
    """Show the overview; for htmx, only the list, or the rows of a further page."""
    listing, now = Listing.read(request.GET), request.now
    shown = read_page(request.caller, listing, now=now)
    partial = request.htmx and not request.htmx.history_restore_request
    context: dict[str, Any] = {
        "listing": listing,
        "page": shown,
        "next_page": replace(listing, page=listing.page + 1).query,
        "partial": partial,
    }
    if partial and listing.page > 1:
        return render_page(request, "monitors/rows", **context)
    counted = tally(request.caller, listing, now=now)
    is_narrowed = listing.page > 1 or listing.is_narrowed
    projects = list(access.accessible_projects(request.caller).order_by("name", "pk"))
    context |= _head(request, listing, counted) | {
        "projects": projects,
        "targets": [project for project in projects if not request.caller.only_reads(project)],
        "selects": any(row.selectable for row in shown.rows) or (shown.more and _writes_any(request, listing)),
        "mutes": actions.MUTES,
        "types": {name: kind.label for name, kind in types.REGISTRY.items()},
        "sorts": SORTS,
        "no_project": NO_PROJECT,
        "empty": "" if shown.rows else "filtered" if is_narrowed or counted.total else "nothing",
        "first_page": listing.changed().query,
        "carried": listing.changed(grouped=False).pairs,
    }
    if not partial:
        return render_page(request, "monitors/overview", **context)
    answer = render_page(request, "monitors/list", **context)
    answer["HX-Push-Url"] = f"{request.path}{listing.query}"
    return answer


@read_only
def tags(request: PageRequest) -> HttpResponse:
    """Show the tags to filter by."""
    listing = Listing.read(request.GET)
    chosen = {tag_key(tag) for tag in listing.tag}
    rest = [tag for tag in offered(request.caller) if tag_key(tag.name) not in chosen]
    return render_page(request, "monitors/tags", chosen=listing.tag, tags=rest)


@read_only
def live(request: PageRequest) -> HttpResponse:
    """Return the rows that changed. `row` is `id:version` of each visible row, `content` the version of the list.

    Return 204 if nothing changed, after one query and without rendering.
    """
    listing, now = Listing.read(request.GET), request.now
    counted = tally(request.caller, listing, now=now)
    if counted.content == request.GET.get("content"):
        return HttpResponse(status=204)
    given = (row.partition(":") for row in request.GET.getlist("row")[:MAX_LIVE])
    seen = {public_id: version for public_id, _, version in given if is_public_id(public_id)}
    monitors = list(list_monitors(request.caller).filter(named(seen)).defer("config", "header_values"))
    load_schedules(monitors)
    shown = rows_of(monitors, request.caller, now=now, grouped=listing.grouped)
    rows = [row for row in shown if row.version != seen.get(row.monitor.public_id)]
    return render_page(request, "monitors/live", **_head(request, listing, counted), listing=listing, rows=rows)


@action
def act(request: PageRequest) -> HttpResponse:
    """Apply an action to the selected monitors, or with `all` to all that match, and redirect back.

    Deletion asks first. It asks again if settings of one of the monitors were changed since. An action on several
    monitors counts as a manifest does: it writes rows for all of them.
    """
    name, caller, now = request.POST.get("action", ""), request.caller, request.now
    back = request.POST.get("next", "")
    if not back.startswith("/") or not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = reverse("monitors")
    tags = _read_tags(request.POST.get("tags", ""))
    if tags:
        chosen = list(tags)
    elif request.POST.get("all") == "1":
        listing = Listing.read(request.POST)
        chosen = list(access.writable(caller, matching(caller, listing, now=now)).values_list("public_id", flat=True))
    else:
        # One field has several ids, as forms may not have more than a thousand fields.
        given = ",".join(request.POST.getlist("monitor")).split(",")
        chosen = list(dict.fromkeys(public_id for public_id in given if is_public_id(public_id)))
    if name == "edit" and chosen:
        if len(chosen) <= bulk.MAX_SELECTED:
            return bulk.show_form(request, chosen, back=back)
        messages.warning(request, f"Select at most {bulk.MAX_SELECTED:,} monitors to edit at once.")
        return HttpResponseRedirect(back)
    deletes = name == actions.DELETE
    chosen_action = actions.deletion(tags) if deletes else actions.named("pause" if name == "edit" else name)
    if not chosen:
        messages.warning(request, "Select at least one monitor.")
    elif deletes and len(chosen) > actions.MAX_DELETED:
        messages.warning(request, f"Select at most {actions.MAX_DELETED:,} monitors to delete at once.")
    elif deletes and (answer := _ask(request, chosen, tags, back=back)) is not None:
        return answer
    else:
        if len(chosen) > 1:
            count_request(request, "manifest")
        outcome = actions.apply(caller, chosen_action, chosen, now=now)
        if outcome.done:
            messages.success(request, outcome.message)
        for complaint in outcome.complaints:
            messages.warning(request, complaint)
    return HttpResponseRedirect(back)


def _writes_any(request: PageRequest, listing: Listing) -> bool:
    """Return whether the caller may change any of the matching monitors."""
    return access.writable(request.caller, matching(request.caller, listing, now=request.now)).exists()


def _read_tags(text: str) -> dict[str, str]:
    """Return the tags of monitors, by public id, from the page that asks."""
    pairs = (pair.partition(":") for pair in text.split(","))
    return {public_id: tag for public_id, _, tag in pairs if is_public_id(public_id)}


def _ask(request: PageRequest, chosen: Sequence[str], tags: Mapping[str, str], *, back: str) -> HttpResponse | None:
    """Return the page that asks whether to delete these monitors, or None if it was confirmed and none has changed."""
    found = actions.to_delete(request.caller, chosen)
    changed = [one for one in found if tags.get(one.public_id) != one.tag]
    if not changed:
        return None
    listed = changed if tags else found
    return render_page(
        request,
        "monitors/deletion",
        status=ChangedMeanwhile.status if tags else HTTPStatus.OK,
        found=found,
        changed=len(changed) if tags else 0,
        shown=listed[:MAX_NAMED],
        further=len(listed[MAX_NAMED:]),
        tags=",".join(f"{one.public_id}:{one.tag}" for one in found),
        back=back,
    )


def _head(request: PageRequest, listing: Listing, counted: Tally) -> dict[str, Any]:
    """Return the context for the counts above the list and for the page title."""
    shown = ["", *(state for state in STATES if counted.counts[state] or state in ("down", "up", listing.state))]
    facets = [
        (state, STATES.get(state, "All"), counted.counts.get(state, counted.total), listing.changed(state=state).query)
        for state in shown
    ]
    without = {tag: tuple(other for other in listing.tag if other != tag) for tag in listing.tag}
    parent = None
    if listing.depends_on:
        names = list_monitors(request.caller).filter(named([listing.depends_on])).values_list("name", flat=True)
        parent = (next(iter(names), "an unknown monitor"), listing.changed(depends_on="").query)
    return {
        "facets": facets,
        "parent_filter": parent,
        "tag_filters": [(tag, listing.changed(tag=others).query) for tag, others in without.items()],
        "counted": counted,
        "matching": counted.counts.get(listing.state, counted.total),
        "title": f"{counted.counts['down']} down · Monitors" if counted.counts["down"] else "Monitors",
    }
