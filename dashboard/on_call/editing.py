"""Create, edit and delete schedules and policies."""

from __future__ import annotations

from django.http import HttpResponse

from dashboard.deletion import Deletable, deletion
from dashboard.on_call.policy_form import PolicyForm
from dashboard.on_call.schedule_form import ScheduleForm
from dashboard.pages import PageRequest, done, page, render_page
from oncall import selectors, services
from oncall.models import EscalationPolicy, OnCallSchedule


@page
def create_schedule(request: PageRequest) -> HttpResponse:
    """Create a schedule in the project `?project=`, which the form can change."""
    caller, more = request.caller, request.POST.get("more", "")
    place = request.GET.get("project")
    caller.require_write(project_id=place)
    form = ScheduleForm(request.POST or None, caller=caller, project_id=place, more=more, now=request.now)
    if not more:
        created = form.create(request, lambda: services.create_schedule(caller, form.given(), now=request.now))
        if created is not None:
            return done(request, "Schedule created.", "on_call_schedule", created.object_id)
    form.focus_error()
    return render_page(request, "on_call/schedule_form", form=form)


@page
def edit_schedule(request: PageRequest, schedule_id: str) -> HttpResponse:
    caller, more = request.caller, request.POST.get("more", "")
    schedule = selectors.get_schedule(caller, schedule_id)
    caller.require_write(schedule)
    form = ScheduleForm(request.POST or None, caller=caller, stored=schedule, more=more, now=request.now)

    def save() -> OnCallSchedule:
        return services.update_schedule(caller, schedule_id, form.given(), if_match=form.if_match)

    saved = None if more else form.save(request, save)
    if saved is not None:
        return done(request, "Schedule saved.", "on_call_schedule", schedule_id)
    deletable = Deletable(schedule, schedule.name, form.values())
    form.focus_error()
    return render_page(request, "on_call/schedule_form", form=form, schedule=schedule, deletable=deletable)


def _read_schedule(request: PageRequest, schedule_id: str) -> Deletable:
    schedule = selectors.get_schedule(request.caller, schedule_id)
    form = ScheduleForm(caller=request.caller, stored=schedule, now=request.now)
    return Deletable(schedule, schedule.name, form.values())


delete_schedule = deletion(services.delete_schedule, _read_schedule, "Schedule deleted.", "on_call")


@page
def create_policy(request: PageRequest) -> HttpResponse:
    """Create a policy in the project `?project=`, which the form can change."""
    caller, more = request.caller, request.POST.get("more", "")
    place = request.GET.get("project")
    caller.require_write(project_id=place)
    form = PolicyForm(request.POST or None, caller=caller, project_id=place, more=more)
    if not more:
        created = form.create(request, lambda: services.create_policy(caller, form.given(), now=request.now))
        if created is not None:
            return done(request, "Policy created. Choose it for a project or a monitor.", "policy", created.object_id)
    form.focus_error()
    return render_page(request, "on_call/policy_form", form=form)


@page
def edit_policy(request: PageRequest, policy_id: str) -> HttpResponse:
    caller, more = request.caller, request.POST.get("more", "")
    policy = selectors.get_policy(caller, policy_id)
    caller.require_write(policy)
    form = PolicyForm(request.POST or None, caller=caller, stored=policy, more=more)

    def save() -> EscalationPolicy:
        return services.update_policy(caller, policy_id, form.given(), if_match=form.if_match)

    saved = None if more else form.save(request, save)
    if saved is not None:
        return done(request, "Policy saved.", "policy", policy_id)
    deletable = Deletable(policy, policy.name, form.values())
    form.focus_error()
    return render_page(request, "on_call/policy_form", form=form, policy=policy, deletable=deletable)


def _read_policy(request: PageRequest, policy_id: str) -> Deletable:
    policy = selectors.get_policy(request.caller, policy_id)
    return Deletable(policy, policy.name, PolicyForm(caller=request.caller, stored=policy).values())


delete_policy = deletion(services.delete_policy, _read_policy, "Policy deleted.", "policies")
