"""Pages that create and edit a monitor, and its test run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django_htmx.http import reswap, retarget

from accounts.models import Plan
from alerts.services import choose_channels, lock_before_choice
from checks.evidence import Evidence
from checks.verdict import BLOCKED
from core.errors import NoWorker
from core.text import copy_name
from core.waiting import limit_waiting
from dashboard.durations import format_duration
from dashboard.monitors.backtests import Tried
from dashboard.monitors.forms import SCOPE, MonitorForm, parents_of
from dashboard.monitors.notified import chosen_by
from dashboard.pages import PageRequest, page, read_only, render_page
from incidents.backtest import THRESHOLDS
from incidents.backtest import run as run_backtest
from monitors import configuration, services, types
from monitors.checking import interactive
from monitors.checking.results import CheckResult
from monitors.dependencies import FIELD
from monitors.models import Monitor
from monitors.selectors import get_monitor
from monitors.types.settings import MAX_NAME, MonitorConfig

USUAL_INTERVAL_SEC = 60  # the default, unless the plan requires a longer one
FORM = "#monitor-form"
BACKTEST = "backtest"


class TestRun(NamedTuple):
    """The outcome of a test, or the `problem` that prevented it. `dropped` names headers that were sent empty.

    `completed` is the completed form of the address `url`, if it was incomplete.
    """

    result: CheckResult | None
    evidence: Evidence | None = None
    dropped: Sequence[str] = ()
    problem: str = ""
    completed: str = ""
    url: str = ""

    @property
    def is_blocked_here(self) -> bool:
        """Return whether the network settings of this server prevented the check, and not those of an agent."""
        return self.result is not None and self.result["detail"] == BLOCKED.detail


@page
def new(request: PageRequest) -> HttpResponse:
    """Create a monitor of `?type=` in `?project=`, or a copy of the monitor `?from=`."""
    caller = request.caller
    source = get_monitor(caller, request.GET["from"]) if "from" in request.GET else None
    caller.require_write(source)
    form = MonitorForm(
        request.POST or None,
        caller=caller,
        config=_first_config(request) if source is None else _copy_of(source),
        project=request.GET.get("project") if source is None else _project_of(source),
        source=source,
        channels=() if source is None else chosen_by(caller, source),
        parents=() if source is None else parents_of(source, caller),
    )
    if "test" in request.POST:
        return _test(request, form, source=source)

    def make() -> Monitor:
        given, (add, remove) = form.given(), form.channel_changes()
        if add or remove:
            lock_before_choice(caller, None, given.get("project_id"))
        if source is None:
            monitor = services.create_monitor(caller, given, now=request.now)
        else:
            monitor = services.copy_monitor(caller, source.public_id, given, now=request.now)
        choose_channels(caller, monitor, add, remove)
        return monitor

    created = form.create(request, make, limit=SCOPE)
    if created is None:
        return _show(request, form, source=source)
    if not created.repeated:
        monitor = get_monitor(caller, created.object_id)
        messages.success(request, f"{monitor.name} is created.")
        _report_completion(request, form)
        _report_adjustments(request, form.body(), monitor)
        if source is not None:
            _warn_about_dropped(request, source, monitor, places="server or project")
        # The page of the monitor shows the first check when it is done.
        claim = services.FIRST_CLAIM
        if services.has_first_check(form.body()) and not interactive.enqueue_first_check(monitor, claim=claim):
            services.release_first_claim(monitor, now=request.now)
    return redirect("monitor", created.object_id)


@page
def edit(request: PageRequest, monitor_id: str) -> HttpResponse:
    caller = request.caller
    monitor = get_monitor(caller, monitor_id)
    caller.require_write(monitor)
    config, project = monitor.full_config, _project_of(monitor)
    form = MonitorForm(
        request.POST or None,
        caller=caller,
        config=config,
        project=project,
        stored=monitor,
        channels=chosen_by(caller, monitor),
        parents=parents_of(monitor, caller),
    )
    if "test" in request.POST:
        return _test(request, form)
    if "backtest" in request.POST:
        return _show_outcome(request, form, BACKTEST, partial(_backtest, request, monitor, form), limit=BACKTEST)

    @transaction.atomic
    def change() -> Monitor:
        given, (add, remove) = form.given(), form.channel_changes()
        if add or remove:
            lock_before_choice(caller, monitor, given.get("project_id"))
        changed = services.update_monitor(caller, monitor_id, given, now=request.now, if_match=form.if_match)
        choose_channels(caller, changed, add, remove)
        return changed

    changed = form.save(request, change)
    if changed is None:
        return _show(request, form)
    body = form.body()
    messages.success(
        request, f"{changed.name} is saved." if body or any(form.channel_changes()) else "Nothing was changed."
    )
    _report_completion(request, form)
    _report_adjustments(request, body, changed)
    _warn_about_dropped(request, monitor, changed, places="server or owner")
    return redirect("monitor", monitor_id)


@read_only
def locations(request: PageRequest) -> HttpResponse:
    """Show the locations of the place that is selected in the form."""
    given, caller = request.GET, request.caller
    monitor = get_monitor(caller, given["monitor"]) if "monitor" in given else None
    config = _first_config(request) if monitor is None else monitor.full_config
    form = MonitorForm(caller=caller, config=config, project=given.get("project_id"), stored=monitor)
    form.select_locations(given)
    return render_page(request, "monitors/locations", form=form)


@read_only
def parents(request: PageRequest) -> HttpResponse:
    """Show the monitors of the place that is selected in the form, on which this one can depend."""
    given, caller = request.GET, request.caller
    monitor = get_monitor(caller, given["monitor"]) if "monitor" in given else None
    config = _first_config(request) if monitor is None else monitor.full_config
    chosen = given.getlist(FIELD)
    form = MonitorForm(caller=caller, config=config, project=given.get("project_id"), stored=monitor, parents=chosen)
    return render_page(request, "monitors/parents", form=form)


def _test(request: PageRequest, form: MonitorForm, *, source: Monitor | None = None) -> HttpResponse:
    """Run a test."""
    run = partial(_run, request, form, source=source)
    return _show_outcome(request, form, "test_run", run, name="run", limit=SCOPE, source=source)


def _show_outcome(
    request: PageRequest,
    form: MonitorForm,
    template: str,
    act: Callable[[], object],
    *,
    limit: str,
    name: str = BACKTEST,
    source: Monitor | None = None,
) -> HttpResponse:
    """Try what is typed, and show the outcome by a template, which has it as `name`.

    Return only the outcome to htmx, to keep further input; return the form if it is invalid.
    """
    outcome = form.save(request, act, limit=limit)
    shown: dict[str, Any] = {name: outcome}
    if outcome is None:
        answer = _show(request, form, source=source, tested=True)
        return retarget(reswap(answer, "outerHTML"), FORM) if request.htmx else answer
    if request.htmx:
        return render_page(request, f"monitors/{template}", **shown)
    return _show(request, form, source=source, **shown)


def _backtest(request: PageRequest, monitor: Monitor, form: MonitorForm) -> Tried:
    """Try the thresholds of the form on the history of the monitor."""
    given = {name: value for name, value in form.given().items() if name in THRESHOLDS}
    return Tried(run_backtest(request.caller, monitor, given, now=request.now))


def _run(request: PageRequest, form: MonitorForm, *, source: Monitor | None) -> TestRun:
    if form.stored is not None:
        config = services.config_of_change(request.caller, form.stored.public_id, form.given())
    elif source is not None:
        config = services.config_of_copy(request.caller, source.public_id, form.given())
    else:
        config = services.config_of(request.caller, form.given())
    try:
        with limit_waiting(request.caller.account):
            spec, owner_id = services.test_spec(config), request.caller.user.pk
            result, evidence = interactive.explain_draft(spec, owner_id=owner_id, locations=config.locations)
    except NoWorker as error:
        return TestRun(None, problem=error.reason, completed=form.completed, url=config.url)
    return TestRun(result, evidence, config.own.dropped_secrets(), completed=form.completed, url=config.url)


def _show(request: PageRequest, form: MonitorForm, *, source: Monitor | None = None, **context: Any) -> HttpResponse:
    """Render the page; for htmx, only the form, which it requests only if a test found errors."""
    return render_page(
        request,
        "monitors/form" if request.htmx else "monitors/edit",
        form=form,
        monitor=form.stored,
        source=source,
        plan=form.plan,
        mentions_plan=Plan.is_mentioned(),
        **context,
    )


def _report_completion(request: PageRequest, form: MonitorForm) -> None:
    if form.completed:
        messages.info(request, form.completed)


def _report_adjustments(request: PageRequest, body: dict[str, Any], monitor: Monitor) -> None:
    """Notify the user of values that the service adjusted."""
    interval_sec = body.get("interval_sec", monitor.interval_sec)
    if interval_sec != monitor.interval_sec:
        shortest = "shortest of the plan" if Plan.is_mentioned() else "shortest"
        word = shortest if interval_sec < monitor.interval_sec else "longest allowed"
        messages.info(request, f"The interval is {format_duration(monitor.interval_sec * 1000)}, the {word}.")
    method = monitor.options["method"]
    if body.get("method", method) != method:
        messages.info(request, f"The method is {method}: content rules need the body.")


def _warn_about_dropped(request: PageRequest, before: Monitor, after: Monitor, *, places: str) -> None:
    """Warn about secrets that were dropped because one of the `places` changed."""
    names = after.public_config.own.dropped_secrets()
    if names:
        text = f"The stored values of these headers were dropped: {', '.join(names)}. They are not sent to another "
        messages.warning(request, f"{text}{places}; enter them again.")
    bodies = [monitor.options["request_body"] for monitor in (before, after)]
    if before.owner_id != after.owner_id and bodies[0] is not None and bodies[1] is None:
        messages.warning(request, "The request body was dropped: the monitor has another owner.")


def _first_config(request: PageRequest) -> MonitorConfig:
    kind, plan = request.GET.get("type"), request.caller.user.plan
    interval_sec = max(plan.default_interval_sec or USUAL_INTERVAL_SEC, plan.min_interval_sec)
    return configuration.build({"interval_sec": interval_sec, "type": kind if kind in types.names() else types.DEFAULT})


def _copy_of(source: Monitor) -> MonitorConfig:
    config = source.public_config
    return msgspec.structs.replace(config, name=copy_name(config.name, limit=MAX_NAME))


def _project_of(monitor: Monitor) -> str | None:
    return None if monitor.project is None else monitor.project.public_id
