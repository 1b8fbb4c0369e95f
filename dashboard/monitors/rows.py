"""The rows of the overview: their data, read for all monitors at once, and their HTML with bars and sparklines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from html import escape
from typing import NamedTuple

from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from checks.results.hours import HOUR, start_of_hour
from checks.results.selectors import failures_at
from checks.results.series import Hours, hours_of
from core.errors import HistoryUnavailable
from core.templatetags.pulsekeeper import icon, milliseconds, percent, when
from core.text import shorten
from dashboard.incidents import reason_in_words
from dashboard.monitors.listing import PAGE, Listing, matching, version_of
from dashboard.monitors.tags import chips
from incidents import windows
from monitors.filters import STANDINGS
from monitors.models import LocationFailure, Monitor
from monitors.partial import failing_from
from monitors.selectors import DAY, began_at, failing_since, gaps_since, show_to, status_of, uptime_sums, uptimes
from monitors.stale import NOWHERE, STALE_COLUMNS, load_schedules, stale_reason, stale_since
from monitors.uptime.intervals import Span, Tally
from monitors.uptime.intervals import percent as uptime_percent
from projects.access import Caller

HOURS = 24
CELL, GAP, HEIGHT = 3, 1, 20
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
_MARGIN = 2
MAX_ADDRESS, MAX_REASON = 200, 120


class Cell(StrEnum):
    """The worst status of an hour or a day. The value is part of its CSS class, like `fill-up`."""

    DOWN = "down"
    SLOW = "slow"
    UP = "up"
    NONE = "none"


_WORDS = {Cell.DOWN: "with an outage", Cell.SLOW: "with slow checks", Cell.UP: "up", Cell.NONE: "without observation"}
_ICONS = {"paused": "pause", "stale": "circle-help"}
"""The icons of standings that have one instead of a dot."""


@dataclass(frozen=True)
class Summary:
    """Values in the list and on the page of a monitor. `uptime`: percent of the observed part of the last 24 hours.

    `standing` is a key of STANDINGS, `since` is when it began, and `failing_since` when the checks of a monitor that is
    not down began to fail. `stale`: no check ended for too long, by our own fault. A monitor that was down then keeps
    its standing. `partial`: the locations from which it fails while it is not down.
    """

    monitor: Monitor
    standing: str
    since: datetime | None
    muted: bool
    maintenance: bool
    failing_since: datetime | None
    partial: Sequence[LocationFailure]
    stale: bool
    uptime: float | None

    @property
    def word(self) -> str:
        return STANDINGS[self.standing]

    @property
    def stale_reason(self) -> str:
        return stale_reason(self.monitor) if self.stale else ""

    @property
    def is_nowhere(self) -> bool:
        """Return whether its locations are offline. Those who run their agents may be its owners."""
        return self.stale_reason == NOWHERE

    @property
    def failures(self) -> str:
        """Return `2 of 3`, the failures that count toward an outage. Empty without failures and while muted."""
        counted = self.monitor.state.failures
        return f"{counted} of {self.monitor.fail_threshold}" if counted and not self.muted else ""


@dataclass(frozen=True)
class Row(Summary):
    """A row of the list. `cells` and `latency`, None if it cannot be read, are those of the last 24 hours of the clock.

    `reason` is why the last check of a monitor that is down or failing failed, and empty if it passed. `place` is the
    name of its project, and empty without one or where the list is grouped by project. `selectable`: the caller may
    change it.
    """

    cells: Sequence[Cell]
    latency: Sequence[float | None] | None
    reason: str
    place: str
    selectable: bool

    @property
    def address(self) -> str:
        """Return the beginning of the address, longer than a row is wide, or the type of a monitor without one."""
        return self.monitor.url[:MAX_ADDRESS] or self.monitor.type

    @property
    def html(self) -> SafeString:
        return format_html(
            '<tr id="{}" data-version="{}">\n{}\n</tr>\n', self.monitor.public_id, self.version, self._columns
        )

    @cached_property
    def version(self) -> str:
        """Return a version that changes with everything that the row shows."""
        return version_of(self._columns)

    @cached_property
    def _columns(self) -> SafeString:
        """Render without a template: Django would take ten times as long, and a page has 50 rows."""
        monitor, state, standing = self.monitor, self.monitor.state, self.standing
        public_id, name = monitor.public_id, escape(monitor.name)
        mark = icon(_ICONS[standing]) if standing in _ICONS else f'<span class="dot" data-status="{standing}"></span>'
        shape = '<span class="muted" title="Earlier latencies cannot be read right now">?</span>'
        if self.latency is not None:
            shape = spark(self.latency)
        place = f'<span class="place">{escape(self.place)}</span> ' if self.place else ""
        pick = f'<input type="checkbox" name="monitor" value="{public_id}" aria-label="{name}">'
        return mark_safe(  # noqa: S308 - escaped
            f'<td class="pick">{pick if self.selectable else ""}</td>\n'
            f'<td class="standing"><span class="badge" data-status="{standing}">{mark}{self.word}</span></td>\n'
            f'<td class="main"><a class="name truncate" href="/monitors/{public_id}">{name}</a>{self._notes}'
            f'<div class="target truncate">{place}{escape(self.address)}</div>{chips(monitor.tags)}</td>\n'
            f'<td class="day">{bar(self.cells)}</td>\n'
            f'<td class="latency"><div>{shape}'
            f'<span class="number">{milliseconds(state.last_latency_ms)}</span></div></td>\n'
            f'<td class="end number uptime">{percent(self.uptime)}</td>\n'
            f'<td class="end checked">{when(state.last_checked_at, "ago")}</td>'
        )

    @property
    def _notes(self) -> SafeString | str:
        checked_at, since = self.monitor.state.last_checked_at, when(self.failing_since)
        notes = []
        if self.standing == "down":
            notes.append(format_html('<span data-status="down">Down since {}</span>', when(self.since)))
        if self.stale:
            words = format_html("Not checked since {}", when(checked_at)) if checked_at else "Never checked"
            element = '<span data-status="stale" title="{}">{}{}</span>'
            notes.append(format_html(element, self.stale_reason, icon("circle-help"), words))
        if self.maintenance:
            notes.append(format_html("<span>{}Maintenance</span>", icon("wrench")))
        if self.muted:
            failing = format_html(", failing since {}", since) if self.failing_since else ""
            notes.append(format_html("<span>{}Muted{}</span>", icon("bell-off"), failing))
        elif self.failing_since:
            count = f" {self.failures}" if self.failures else ""
            element = '<span data-status="failing">{}Failing{} since {}</span>'
            notes.append(format_html(element, icon("triangle-alert"), count, since))
        if self.partial:
            element = '<span data-status="failing">{}Fails from {} since {}</span>'
            places = ", ".join(failure.title for failure in self.partial)
            notes.append(format_html(element, icon("network"), places, when(self.partial[0].since)))
        if notes and self.reason:
            notes.append(format_html('<span class="why">{}</span>', self.reason))
        return format_html('<div class="notes">{}</div>', SafeString("".join(notes))) if notes else ""


class Page(NamedTuple):
    """A page. `continues`: the previous page ends with the project of the first row. `more`: there is another page."""

    rows: Sequence[Row]
    continues: bool
    more: bool


def read_page(caller: Caller, listing: Listing, *, now: datetime) -> Page:
    monitors = matching(caller, listing, now=now).defer("config", "header_values")
    start, end = (listing.page - 1) * PAGE, listing.page * PAGE
    # Read one more monitor on each side: to see whether the page continues a project, and whether there is more.
    skipped = 1 if start else 0
    if listing.sort == "uptime":
        ids = _by_uptime(monitors, grouped=listing.grouped, now=now)[start - skipped : end + 1]
        found = {monitor.pk: monitor for monitor in monitors.filter(pk__in=ids)}
        shown = [found[pk] for pk in ids if pk in found]
    else:
        shown = list(monitors[start - skipped : end + 1])
    continues = skipped == 1 and len({monitor.project_id for monitor in shown[:2]}) == 1
    shown = shown[skipped:]
    load_schedules(shown)
    return Page(rows_of(shown[:PAGE], caller, now=now, grouped=listing.grouped), continues, more=len(shown) > PAGE)


def rows_of(
    monitors: Sequence[Monitor], caller: Caller | None = None, *, now: datetime, grouped: bool = False
) -> list[Row]:
    """Return the rows. Takes six queries for any number of monitors, and two more if some fail.

    Their states and projects must be loaded.
    """
    clock = _hours(now)
    hours: dict[int, Hours] | None = None
    with suppress(HistoryUnavailable):
        hours = hours_of([monitor.pk for monitor in monitors], since=clock[0].start, now=now)
    gaps = gaps_since(now - DAY)
    # By status, and from 24 hours ago on, as `uptimes` counts: a bar must not contradict the percentage beside it.
    outages = uptime_sums(monitors, [Span(now - DAY, clock[0].end), *clock[1:]], now=now, gaps=gaps)
    reasons = _reasons(monitors)
    nothing = Hours([None] * HOURS, [False] * HOURS)
    rows = []
    uptime_of = {pk: _total(sums.tallies) for pk, sums in outages.items()}
    for summary in summaries(monitors, uptime_of, now=now):
        monitor = summary.monitor
        if caller is not None:
            show_to(caller, monitor)
        seen = (hours or {}).get(monitor.pk, nothing)
        tallies = outages[monitor.pk].tallies
        rows.append(
            Row(
                **vars(summary),
                cells=[_cell(part, slow=slow) for part, slow in zip(tallies, seen.slow, strict=True)],
                latency=None if hours is None else seen.latency,
                reason=reasons.get(monitor.pk, ""),
                place=monitor.project.name if monitor.project and not grouped else "",
                selectable=caller is None or not caller.only_reads(monitor),
            )
        )
    return rows


def summaries(monitors: Sequence[Monitor], uptime_of: Mapping[int, float | None], *, now: datetime) -> list[Summary]:
    """Return the summaries in two queries, or three if a monitor fails from a location.

    `uptime_of` is that of the last 24 hours by primary key.
    """
    covered = windows.covered([monitor.pk for monitor in monitors], now)
    partial = failing_from(monitors)
    return [
        Summary(
            monitor,
            standing=_standing(monitor, now=now),
            since=began_at(monitor.state),
            muted=monitor.muted_until is not None and monitor.muted_until > now,
            maintenance=monitor.pk in covered,
            failing_since=failing_since(monitor, now=now),
            partial=partial[monitor.pk],
            stale=stale_since(monitor, now=now) is not None,
            uptime=uptime_of[monitor.pk],
        )
        for monitor in monitors
    ]


def _total(parts: Sequence[Tally]) -> float | None:
    none = timedelta()
    return uptime_percent(sum((part.observed for part in parts), none), sum((part.down for part in parts), none))


def _standing(monitor: Monitor, *, now: datetime) -> str:
    if not monitor.enabled:
        return "paused"
    return status_of(monitor, now=now) or ("pending" if stale_since(monitor, now=now) is None else "stale")


def _reasons(monitors: Sequence[Monitor]) -> dict[int, str]:
    """Return why the last check of each monitor failed, by its key, of those that are down or failing."""
    last = {
        monitor.pk: monitor.state.last_checked_at
        for monitor in monitors
        if monitor.enabled and monitor.state.failing_since and monitor.state.last_checked_at
    }
    with suppress(HistoryUnavailable):
        return {
            pk: shorten(detail or reason_in_words(code), limit=MAX_REASON)
            for pk, (code, detail) in failures_at(last).items()
        }
    return {}


def _by_uptime(monitors: QuerySet[Monitor], *, grouped: bool, now: datetime) -> list[int]:
    """Return the ids by uptime, lowest first, unknown last; within projects if grouped."""
    all_of_them = list(
        monitors.select_related(None).select_related("state").only("project", *STALE_COLUMNS, "state__status")
    )
    load_schedules(all_of_them)
    uptime_of = uptimes(all_of_them, now=now)
    places = {project: place for place, project in enumerate(dict.fromkeys(m.project_id for m in all_of_them))}

    def place_of(monitor: Monitor) -> tuple[int, float]:
        uptime = uptime_of[monitor.pk]
        return (places[monitor.project_id] if grouped else 0, 101 if uptime is None else uptime)

    return [monitor.pk for monitor in sorted(all_of_them, key=place_of)]


def _hours(now: datetime) -> list[Span]:
    """Return the last 24 hours of the clock, until now."""
    last = start_of_hour(now)
    starts = [last - HOUR * back for back in range(HOURS - 1, -1, -1)]
    return [Span(start, min(start + HOUR, now)) for start in starts]


def _cell(part: Tally, *, slow: bool) -> Cell:
    if part.observed <= timedelta():
        return Cell.NONE
    if part.down > timedelta():
        return Cell.DOWN
    return Cell.SLOW if slow else Cell.UP


def bar(cells: Sequence[Cell]) -> SafeString:
    """Return the cells, one for an hour, as SVG, with a sentence: `Last 24 hours: 1 with an outage, 23 up.`"""
    width, paths, counts = len(cells) * (CELL + GAP) - GAP, [], []
    for kind, words in _WORDS.items():
        if count := cells.count(kind):
            places = [index * (CELL + GAP) for index, cell in enumerate(cells) if cell is kind]
            drawn = "".join([f"M{place} 0h{CELL}v{HEIGHT}h-{CELL}z" for place in places])
            paths.append(f'<path class="fill-{kind}" d="{drawn}"/>')
            counts.append(f"{count} {words}")
    return mark_safe(  # noqa: S308 - numbers and constants
        f'<svg role="img" aria-label="Last {len(cells)} hours: {", ".join(counts)}." viewBox="0 0 {width} {HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(paths)}</svg>'
    )


def spark(values: Sequence[float | None]) -> SafeString:
    """Return a line through the values as SVG, interrupted at None. An empty element for fewer than two values."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return mark_safe("<span></span>")
    low, high = min(known), max(known)
    # The scale covers at least a quarter of the highest value, so that small variations look small.
    spread = max(high - low, high / 4, 1)
    middle = (low + high) / 2
    step = SPARK_WIDTH / (len(values) - 1)
    inner = SPARK_HEIGHT - 2 * _MARGIN
    path, drawing = [], False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        y = SPARK_HEIGHT / 2 - (value - middle) / spread * inner
        path.append(f"{'L' if drawing else 'M'}{index * step:.0f} {y:.1f}")
        drawing = True
    return mark_safe(  # noqa: S308 - numbers
        f'<svg aria-hidden="true" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" preserveAspectRatio="none">'
        f'<path class="spark" d="{"".join(path)}"/></svg>'
    )
