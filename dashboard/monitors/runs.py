"""The runs of a heartbeat's job as bars, and the log of its signals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.http import HttpResponse

from checks.results.selectors import failed_at
from core.errors import NotFound
from core.templatetags.pulsekeeper import span
from dashboard.pages import PageRequest, read_only, render_page
from dashboard.paging import Position
from monitors.heartbeats.history import Ending, Found, Run, is_earlier, last_runs, search
from monitors.heartbeats.runs import unwatched
from monitors.models import Monitor, Ping
from monitors.selectors import get_monitor, show_to

RUNS = 500
RECENT, PAGE = 20, 50
MAX_TEXT = 200
WIDTH, GAP, HEIGHT, LEAST = 5, 2, 56, 4

_WORDS = {Ending.SUCCESS: "succeeded", Ending.FAIL: "failed", Ending.MISSED: "missed", Ending.RUNNING: "still running"}


class Bar(NamedTuple):
    """A run in the chart: a rectangle, and for all but successes a mark below it."""

    ending: Ending
    x: int
    height: int
    title: str

    @property
    def y(self) -> int:
        return HEIGHT - self.height


class Bars(NamedTuple):
    """The chart. `longest` is the duration that is as high as the chart. `sentence` sums the runs up."""

    bars: Sequence[Bar]
    longest: timedelta | None
    sentence: str

    @property
    def width(self) -> int:
        return len(self.bars) * (WIDTH + GAP) - GAP


def bars_of(runs: Sequence[Run]) -> Bars:
    """Draw runs, oldest first. A run of unknown duration is as low as the shortest, a missed one is full."""
    longest = max((run.duration for run in runs if run.duration is not None), default=None)
    bars = []
    for number, run in enumerate(runs):
        height = LEAST
        if run.ending is Ending.MISSED:
            height = HEIGHT
        elif run.duration and longest:
            height = max(LEAST, round(HEIGHT * (run.duration / longest)))
        bars.append(Bar(run.ending, number * (WIDTH + GAP), height, _title(run)))
    endings = [run.ending for run in runs]
    counts = [f"{endings.count(ending)} {words}" for ending, words in _WORDS.items() if ending in endings]
    last = "Last run" if len(runs) == 1 else f"Last {len(runs)} runs"
    return Bars(bars, longest, f"{last}: {', '.join(counts)}.")


def _title(run: Run) -> str:
    took = ""
    if run.duration is not None:
        took = f" {'for' if run.ending is Ending.RUNNING else 'after'} {span(run.duration)}"
    return f"{run.at:%-d %b %Y, %H:%M:%S} UTC: {_WORDS[run.ending]}{took}{f'. {run.detail}' if run.detail else ''}"


class Shown(NamedTuple):
    """A signal in the log. `why`: what it means for the monitor. `is_earlier`: it was received under another owner."""

    ping: Ping
    why: str
    is_earlier: bool

    @property
    def status(self) -> str:
        """Return the status that colours the signal; none for a start and a log entry."""
        if self.ping.kind == Ping.Kind.FAIL or self.why:
            return "down"
        return "up" if self.ping.kind == Ping.Kind.SUCCESS else ""


def recent(monitor: Monitor, *, now: datetime) -> dict[str, Any]:
    """Return what the page of a heartbeat shows of its job."""
    runs = last_runs(monitor, limit=RUNS, now=now)
    return {
        "runs": bars_of(runs) if runs else None,
        "unwatched": unwatched(monitor.state.runs or {}),
        "signals": _shown(monitor, search(monitor, limit=RECENT)),
    }


def _shown(monitor: Monitor, found: Found) -> list[Shown]:
    failures = failed_at(monitor.pk, [ping.at for ping in found.pings])
    return [
        Shown(ping, (failures[ping.at].detail or "") if ping.at in failures else "", is_earlier(monitor, ping))
        for ping in found.pings
    ]


@read_only
def log(request: PageRequest, monitor_id: str) -> HttpResponse:
    """Show the signals of a heartbeat, filtered by the query's `kind`, `text` and `before`. Ignore invalid values."""
    monitor = get_monitor(request.caller, monitor_id)
    if not monitor.kind.waits:
        raise NotFound
    kind = request.GET.get("kind", "")
    kinds = [kind] if kind in Ping.Kind.values else []
    text = request.GET.get("text", "").replace("\0", "")[:MAX_TEXT]
    before = Position.read(request.GET.get("before", ""))
    found = search(monitor, limit=PAGE, kinds=kinds, text=text, before=before)
    show_to(request.caller, monitor)
    return render_page(
        request,
        "monitors/signal_log",
        monitor=monitor,
        signals=_shown(monitor, found),
        kinds=Ping.Kind.choices,
        kind=kind,
        text=text,
        later=before is not None,
        next=found.rest and str(Position(*found.rest)),
        searched_to=found.searched_to,
    )
