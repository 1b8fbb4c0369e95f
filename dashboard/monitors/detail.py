"""The page of a monitor with its settings, its live updates, the data of its chart, and its badges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString, mark_safe
from django_htmx.http import trigger_client_event

from alerts.models import AlertChannel
from alerts.selectors import list_channels, routes_of, shown_name
from alerts.transports import KINDS
from checks.probes.target import BadAddressError
from checks.results.models import CheckResult
from checks.results.selectors import evidence_of, results_of
from core.clock import from_ms, to_ms
from core.errors import ApiError, HistoryUnavailable, NotFound
from core.templatetags.pulsekeeper import duration, percent
from dashboard.deletion import Deletable, deletion
from dashboard.durations import MS_OF, format_duration
from dashboard.forms import Value
from dashboard.incidents import IncidentView, reason_in_words
from dashboard.monitors import chart, runs, schedules
from dashboard.monitors.actions import MUTES
from dashboard.monitors.listing import version_of
from dashboard.monitors.notified import ESCALATED_TOPICS
from dashboard.monitors.rows import Summary, summaries
from dashboard.monitors.snippets import snippets_of
from dashboard.on_call.choosing import applying_policy
from dashboard.pages import PageRequest, action, button, count_request, read_only, render_page
from incidents import windows
from incidents.models import Incident
from incidents.selectors import newest_incidents, windows_covering
from incidents.windows import occurrence_of
from locations.models import Location
from locations.selectors import with_agents
from monitors import dependencies
from monitors.checking import on_demand
from monitors.heartbeats.history import newest_signal
from monitors.models import LocationFailure, Monitor
from monitors.selectors import (
    dns_changes_of,
    failing_since,
    gaps_since,
    get_monitor,
    get_monitor_with_first_check,
    show_to,
    uptimes,
)
from monitors.services import FIRST_CLAIM, delete_monitor
from monitors.services import leave_out as leave_location_out
from monitors.stale import stale_since
from monitors.types.content import Rule
from monitors.types.http import Header
from monitors.types.settings import DEFAULT_LOCATION, Setting
from monitors.uptime.daily import History, daily_uptimes
from projects.access import Caller
from statuspages.badges import create_badge, delete_badge
from statuspages.selectors import get_badge
from statuspages.serializers import BadgeSerializer

DAYS = 90
CHECKS = 20
INCIDENTS = 5
DNS_CHANGES = 10
QUEUED = timedelta(seconds=20)
"""How long a page waits for a worker to start a check."""
SOON = timedelta(days=14)
"""Certificates and domains that expire within this time are highlighted."""


_FACT_TEMPLATES = {Rule: "dashboard/monitors/facts_rules.html", Header: "dashboard/monitors/facts_headers.html"}


class Check(NamedTuple):
    """A check. `reason` is text for people; `evidence` is as stored, and None if the check passed.

    `place` is the name of its location, empty if the monitor and the check have only the default one.
    """

    result: CheckResult
    reason: str
    evidence: dict[str, Any] | None
    place: str


class Fact(NamedTuple):
    """A setting. `text` is its value in words; a `template` renders a value that has several parts."""

    label: str
    text: str
    value: Any
    template: str | None = None


class Awaited(NamedTuple):
    """A check that was requested on this page, or the first one. Its text form is part of the URL that polls for it."""

    claim: int
    asked_at: datetime

    @classmethod
    def read(cls, text: str) -> Awaited | None:
        found = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,13})", text)
        return None if found is None else cls(int(found[1]), from_ms(int(found[2])))

    @classmethod
    def first(cls, monitor: Monitor) -> Awaited | None:
        """Return the check that every new monitor has at once, unless it waits for a ping or for a scheduled time."""
        has_none = monitor.kind.waits or monitor.schedule is not None
        return None if has_none else cls(FIRST_CLAIM, monitor.created_at)

    def __str__(self) -> str:
        return f"{self.claim}-{to_ms(self.asked_at)}"

    def is_over(self, monitor: Monitor, *, now: datetime) -> bool:
        """Return whether the result exists, or is no longer expected."""
        patience = timedelta(milliseconds=monitor.timeout_ms) + QUEUED
        return monitor.state.applied_claim >= self.claim or not monitor.enabled or now - self.asked_at > patience


@read_only
def show(request: PageRequest, monitor_id: str) -> HttpResponse:
    caller, now = request.caller, request.now
    more = dependencies.summary(caller) | {"policy": applying_policy()}
    monitor = get_monitor_with_first_check(caller, monitor_id, **more)
    locations = _locations(monitor, now=now)
    command, facts = _command(monitor), _all_facts(caller, monitor, locations)
    context = _moving(caller, monitor, locations, now=now) | {
        "mutes": MUTES,
        "facts": facts,
        "deletable": _deletable(monitor, facts),
        "command": command,
        "tool": command.partition(" ")[0],
        "ranges": {name: span.title for name, span in chart.RANGES.items()},
        "usual": chart.USUAL,
        "windows": [(window, occurrence_of(window, now=now)) for window in windows_covering(caller, monitor)],
        **_notified_channels(caller, monitor),
    }
    first = Awaited.first(monitor)
    if first is not None and not first.is_over(monitor, now=now):
        context["checking"] = str(first)
    context["panel"] = monitor.kind.panel
    if caller.only_reads(monitor) and monitor.kind.has_secret_id:
        context["panel"] = "dashboard/monitors/ping_hidden.html"
    elif monitor.kind.waits:
        context["snippets"] = snippets_of(monitor)
    show_to(caller, monitor)
    return render_page(request, "monitors/monitor", **context)


@read_only
def live(request: PageRequest, monitor_id: str) -> HttpResponse:
    """Return the current state, checks and incidents, or 204 if `seen` is their current version.

    `checking` names a check that the page waits for. The answer has its result, or the reason why none is expected. The
    next answer removes that notice, because it may contradict a newer state.
    """
    caller, now = request.caller, request.now
    monitor = get_monitor_with_first_check(caller, monitor_id)
    awaited = Awaited.read(request.GET.get("checking", ""))
    is_over = awaited is not None and awaited.is_over(monitor, now=now)
    maintenance = bool(windows.covered([monitor.pk], now))
    signal = newest_signal(monitor) if monitor.kind.waits else None
    newest = next(iter(newest_incidents(monitor, limit=1)), None)
    locations = _locations(monitor, now=now)
    seen = _seen(monitor, signal, newest, locations, maintenance=maintenance, now=now)
    if seen == request.GET.get("seen") and not is_over:
        return HttpResponse(status=204)
    context = _moving(caller, monitor, locations, now=now) | {"live": True}
    if awaited is not None:
        context |= _awaited(monitor, awaited, context["checks"], is_over=is_over)
    show_to(caller, monitor)
    return render_page(request, "monitors/moving", **context)


@action
def check(request: PageRequest, monitor_id: str) -> HttpResponse:
    """Start a check. The page polls for its result; without scripts, a message says to reload."""
    caller, now = request.caller, request.now
    monitor = get_monitor(caller, monitor_id)
    caller.require_write(monitor)
    try:
        count_request(request, "check-now")
        awaited = Awaited(on_demand.start(monitor, now=now), now)
    except ApiError as error:
        if request.htmx or isinstance(error, NotFound):
            raise
        messages.error(request, str(error))
        return redirect("monitor", monitor_id)
    if not request.htmx:
        messages.info(request, "The check has started. Reload the page to see its result.")
        return redirect("monitor", monitor_id)
    answer = render_page(request, "monitors/awaited", live=True, monitor=monitor, checking=str(awaited))
    return trigger_client_event(answer, "poll", after="swap")


def _awaited(monitor: Monitor, awaited: Awaited, checks: Sequence[Check], *, is_over: bool) -> dict[str, Any]:
    if not is_over:
        return {"checking": str(awaited)}
    made = [each for each in checks if each.result.claim >= awaited.claim]
    if made:
        return {"made": made[-1]}
    if not monitor.enabled:
        return {"problem": "The monitor was paused before the check ran."}
    return {"problem": "No worker has run the check yet. It runs as soon as one is free."}


@read_only
def latency(request: PageRequest, monitor_id: str) -> HttpResponse:
    monitor = get_monitor(request.caller, monitor_id)
    name = request.GET.get("range", chart.USUAL)
    if name not in chart.RANGES:
        raise NotFound
    try:
        found = chart.latencies(request.caller, monitor, name, now=request.now)
    except HistoryUnavailable as error:  # the page would take 503 for a lost connection
        found = {"unavailable": error.reason}
    return JsonResponse(found)


@read_only
def badges(request: PageRequest, monitor_id: str) -> HttpResponse:
    monitor = get_monitor(request.caller, monitor_id)
    try:
        urls = BadgeSerializer(get_badge(request.caller, monitor_id)).data["urls"]
    except NotFound:
        urls = {}
    # Paths without the host work on every host of the deployment.
    pictures = [(name, url.removeprefix(settings.BASE_URL), f"![{name}]({url})") for name, url in urls.items()]
    show_to(request.caller, monitor)
    return render_page(request, "monitors/badges", monitor=monitor, pictures=pictures)


@action
def create_badges(request: PageRequest, monitor_id: str) -> HttpResponse:
    create_badge(request.caller, monitor_id, now=request.now)
    return redirect("monitor_badges", monitor_id)


delete_badges = button(
    delete_badge,
    "Badges deleted. Their URLs no longer work.",
    "monitor_badges",
    to_first_id=True,
)


leave_out = button(
    leave_location_out,
    "The location was left out. The form of the monitor adds it again.",
    "monitor",
    to_first_id=True,
    takes_now=True,
)


def _command(monitor: Monitor) -> str:
    try:
        return monitor.kind.reproduce(monitor.public_config)
    except BadAddressError:  # stored before the address was refused
        return ""


def _locations(monitor: Monitor, *, now: datetime) -> list[Location]:
    """Return the locations of the monitor with their agents, none if it is checked from the default one alone."""
    if monitor.locations == [DEFAULT_LOCATION]:
        return []
    found = with_agents(Location.objects.filter(public_id__in=monitor.locations), now=now)
    return sorted(found, key=lambda location: monitor.locations.index(location.public_id))


def _moving(caller: Caller, monitor: Monitor, locations: Sequence[Location], *, now: datetime) -> dict[str, Any]:
    kind, gaps = monitor.kind, gaps_since(now - timedelta(days=DAYS))
    row = summaries([monitor], uptimes([monitor], now=now, gaps=gaps), now=now)[0]
    history = daily_uptimes([monitor], days=DAYS, now=now, with_status=True, gaps=gaps)[monitor.pk]
    by_status = history.by_status
    assert by_status is not None
    first = monitor.first_check_at
    incidents = newest_incidents(monitor, limit=INCIDENTS)
    # The page of a heartbeat lists its signals; why it is down is in its results.
    checks: list[Check] = []
    received: dict[str, Any] = {"signals": []}
    history_away = ""
    try:
        if not kind.waits or row.standing == "down":
            checks = _checks(monitor, locations, now=now)
        if kind.waits:
            received = runs.recent(monitor, now=now)
    except HistoryUnavailable as error:  # the page of a monitor that is down has to open
        history_away = error.reason
    newest = received["signals"][0].ping if received["signals"] else None
    on = windows.coming([monitor], now=now, until=now + timedelta.resolution) if row.maintenance else []
    return {
        "monitor": monitor,
        "state": monitor.state,
        "row": row,
        "seen": _seen(
            monitor,
            newest and (newest.at, newest.pk),
            next(iter(incidents), None),
            locations,
            maintenance=row.maintenance,
            now=now,
        ),
        "uptimes": [("24 hours", row.uptime), *((f"{days} days", by_status.percent(days)) for days in (7, 30, DAYS))],
        "observed_since": first if first and first > now - timedelta(days=DAYS) else None,
        "days": DAYS,
        "days_bar": _days_bar(by_status, outage_ms=history.down_ms),
        "checks": checks,
        "history_away": history_away,
        "locations": [] if kind.waits else _last_by_location(locations, checks, row.partial),
        "dns_changes": dns_changes_of(monitor, limit=DNS_CHANGES) if kind.notes_changes else [],
        "incidents": [IncidentView(incident, caller) for incident in incidents],
        "held": next((one for one in incidents[:1] if one.is_open and one.quiet == Incident.Quiet.HELD), None),
        "expiries": _expiries(monitor, now=now),
        "maintenance_until": max((one.ends_at for one in on), default=None),
        "why": _why(row, checks),
        "next_at": _next_at(monitor),
        "kind": kind,
        "now_ms": to_ms(now),
        **received,
    }


def _seen(
    monitor: Monitor,
    signal: tuple[datetime, int] | None,
    newest: Incident | None,
    locations: Sequence[Location],
    *,
    maintenance: bool,
    now: datetime,
) -> str:
    """Return a version that changes with everything that `_moving` shows, and once an hour.

    `signal` is the time and key of the newest signal. `newest` is the newest incident, the only one that may change.
    """
    state = monitor.state
    muted = monitor.muted_until is not None and monitor.muted_until > now
    return version_of(
        state.claim, state.status, state.status_since, state.last_checked_at, state.last_ping_at, state.next_due_at,
        state.runs, signal,
        monitor.enabled, muted, monitor.muted_until, monitor.name, failing_since(monitor, now=now),
        stale_since(monitor, now=now), state.fault,
        newest and (newest.pk, newest.acknowledged_at, newest.resolved_at, newest.reason_code, newest.quiet),
        [location.is_online for location in locations],
        maintenance, now.replace(minute=0, second=0, microsecond=0),
    )  # fmt: skip


def _days_bar(history: History, *, outage_ms: Sequence[int]) -> SafeString:
    """Return the days as SVG. The part that was down is `share` 20ths high, at least 6 to be visible.

    Shares are those of the percentages beside the bar. `outage_ms` are the lengths by the clock of incidents, which
    begin with the first failed check, and leave maintenance out.
    """
    days = []
    of_days = zip(history.percents(), history.down_ms, outage_ms, strict=True)
    for index, (uptime, down_ms, lasted_ms) in enumerate(of_days):
        day, x, fill, title, down = history.start + timedelta(days=index), 4 * index, "none", "not observed", ""
        if uptime is not None:
            fill, title = "up", percent(uptime)
            if down_ms:
                title += f", down {duration((lasted_ms or down_ms) / 1000)}"
                share = max(6, min(20, round((100 - uptime) / 5)))
                down = f'<rect class="fill-down" x="{x}" y="{20 - share}" width="3" height="{share}"/>'
        days.append(
            f"<g><title>{day.day} {day:%b %Y}: {title}</title>"
            f'<rect class="fill-{fill}" x="{x}" width="3" height="20"/>{down}</g>'
        )
    return mark_safe(  # noqa: S308 - numbers and constants
        f'<svg role="img" aria-label="Uptime of the last {len(days)} days" viewBox="0 0 {4 * len(days) - 1} 20" '
        f'preserveAspectRatio="none">{"".join(days)}</svg>'
    )


def _checks(monitor: Monitor, locations: Sequence[Location], *, now: datetime) -> list[Check]:
    titles = {_key(location): location.title for location in locations}
    results = results_of(monitor.pk, limit=CHECKS, now=now)
    failed = [(result.monitor_id, result.claim, result.checked_at) for result in results if result.reason_code]
    evidence = evidence_of(failed) if failed else {}
    return [
        Check(result, reason_in_words(result.reason_code), evidence.get((result.monitor_id, result.claim)), place)
        for result in results
        for place in [titles.get(result.location_id, "a former location" if locations or result.location_id else "")]
    ]


def _last_by_location(
    locations: Sequence[Location], checks: Sequence[Check], failing: Sequence[LocationFailure]
) -> list[tuple[Location, CheckResult | None, LocationFailure | None]]:
    """Return the last check of each location, if it is among the last checks, and whether it makes a partial outage.

    Those that are online take turns.
    """
    last = {check.result.location_id: check.result for check in reversed(checks)}
    failures = {failure.location_id: failure for failure in failing}
    return [(location, last.get(key), failures.get(key)) for location in locations for key in [_key(location)]]


def _key(location: Location) -> int | None:
    """Return what results have of it."""
    return None if location.is_default else location.pk


def _why(row: Summary, checks: Sequence[Check]) -> str:
    """Return the message of the last failed check while the monitor is down or failing, else an empty string."""
    if row.standing != "down" and (row.monitor.kind.waits or not row.failing_since):
        return ""
    counted = (check for check in checks if check.result.reason_code and check.result.confirmed is not False)
    return next((check.result.detail or check.reason for check in counted), "")


def _next_at(monitor: Monitor) -> datetime | None:
    """Return the time of the next check, or the deadline of a heartbeat's ping. None if paused or not scheduled."""
    if not monitor.enabled:
        return None
    return monitor.ping_due_at() if monitor.kind.waits else monitor.state.next_due_at


def _expiries(monitor: Monitor, *, now: datetime) -> list[tuple[str, datetime, int, str]]:
    """Return the name, time, days left and status of each known expiry."""
    ends = (("Certificate", monitor.state.cert_expires_at), ("Domain", monitor.state.domain_expires_at))
    return [
        (name, at, (at - now).days, "down" if at <= now else "slow" if at - now <= SOON else "up")
        for name, at in ends
        if at is not None
    ]


def _notified_channels(caller: Caller, monitor: Monitor) -> dict[str, Any]:
    """Return the channels that alert about the monitor, those that the caller may see and the number of others, and its
    escalation policy.
    """
    routes = routes_of([monitor.pk]).get(monitor.pk, {})
    channels: list[AlertChannel] = []
    if routes:
        # Do not load the selected monitors, the owner and the project of each channel.
        visible = list_channels(caller).prefetch_related(None).select_related(None).filter(pk__in=list(routes))
        channels = list(visible.order_by("name", "pk"))
    by_mail = any(KINDS[channel.kind].problem() for channel in channels)
    policy: dict[str, Any] | None = monitor.policy  # type: ignore[attr-defined]
    for channel in channels:
        channel.name = shown_name(channel, caller)
        if policy is not None:
            channel.topics = [topic for topic in channel.topics if topic not in ESCALATED_TOPICS]
    return {
        "channels": channels,
        "other_channels": len(routes) - len(channels),
        "by_mail": by_mail,
        "policy": policy,
        "sees_policy": policy is not None and (policy["project"] is not None or policy["owner"] == caller.user.pk),
    }


def _deletable(monitor: Monitor, facts: Sequence[Fact]) -> Deletable:
    config, project = monitor.public_config, monitor.project
    texts = {
        "Name": config.name,
        "Address": config.url,
        "Project": project.name if project else "",
        "State": "Active" if monitor.enabled else "Paused",
    }
    values = [Value(label, label, text, text) for label, text in texts.items()]
    values += [Value(fact.label, fact.label, fact.text, msgspec.to_builtins(fact.value)) for fact in facts]
    return Deletable(monitor, config.name, values)


def _read_deletable(request: PageRequest, monitor_id: str) -> Deletable:
    monitor = get_monitor(request.caller, monitor_id)
    return _deletable(monitor, _all_facts(request.caller, monitor, _locations(monitor, now=request.now)))


delete = deletion(
    delete_monitor,
    _read_deletable,
    "Deleted 1 monitor.",
    "monitors",
)


def _all_facts(caller: Caller, monitor: Monitor, locations: Sequence[Location]) -> list[Fact]:
    """Return the facts of `facts_of`, and the monitors that it depends on."""
    facts = facts_of(monitor, locations)
    dependencies.load([monitor], caller=caller)
    names = [parent.name for parent in monitor.shown_parents]
    if names:
        links = list(zip(dependencies.shown_ids(monitor, caller), names, strict=True))
        facts.append(Fact("Depends on", ", ".join(names), links, "dashboard/monitors/facts_parents.html"))
    return facts


def facts_of(monitor: Monitor, locations: Sequence[Location]) -> list[Fact]:
    """Return a fact for each setting that has a value and that the monitor's type uses.

    `locations` are those of `_locations`. They are left out if there is none.
    """
    config = monitor.public_config
    hidden, schedule = {"name", "url"}, None  # the page shows these above
    if "schedule" in monitor.kind.asked:
        hidden |= schedules.unused(schedules.of(config["schedule"]))
        schedule = monitor.schedule
    if not locations:
        hidden |= {"locations", "quorum"}
    return [
        Fact(
            monitor.kind.interval_label if setting.name == "interval_sec" else setting.label,
            _fact_text(setting, [one.title for one in locations] if name == "locations" else config[name])
            + (f"\n{schedule.in_words()}" if schedule and name == "schedule" else ""),
            config[name],
            "dashboard/monitors/facts_tags.html" if setting.inline else _FACT_TEMPLATES.get(setting.item),
        )
        for name, setting in monitor.kind.asked.items()
        if name not in hidden and (config[name] or setting.placeholder or setting.type in (bool, int))
    ]


def _fact_text(setting: Setting, value: Any) -> str:
    if value is None:
        return setting.placeholder or "none"
    if setting.unit is not None:
        return format_duration(value * MS_OF[setting.unit])
    if setting.type is bool:
        return "yes" if value else "no"
    if setting.item is not None:
        return "\n".join(map(str, value))
    return f"{len(value)} characters" if setting.multiline else str(value)
