"""Projects: list, members, rename and delete."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect

from core import mail
from core.api.fields import validated
from core.errors import NotFound, ValidationFailed
from dashboard.deletion import Deletable, deletion
from dashboard.forms import ObjectForm, PageForm
from dashboard.monitors.listing import counts_by_project
from dashboard.on_call.choosing import PolicyChoiceField, policies_of
from dashboard.pages import PageRequest, action, done, page, render_page
from dashboard.tokens import token_rows
from oncall.models import EscalationPolicy
from oncall.selectors import list_policies
from projects import access, members, services
from projects.access import Caller
from projects.models import Membership, Project, Role
from projects.placement import POLICY
from projects.serializers import (
    GIVEN_ROLES,
    MemberInputSerializer,
    MemberPatchSerializer,
    ProjectInputSerializer,
    ProjectPatchSerializer,
)

REMOVE = "remove"
RENAME_ID = "rename_%s"  # unique ids: another form on the page may have a field with this name


class RenameForm(ObjectForm):
    name = forms.CharField(max_length=200)

    def given(self) -> dict[str, Any]:
        return validated(ProjectInputSerializer, {"name": self.cleaned_data["name"]})


class PolicyChoiceForm(ObjectForm):
    def __init__(self, data: Any = None, *, caller: Caller, stored: Project) -> None:
        choices, chosen = policies_of(caller, stored.escalation_policy_id, project=stored)
        super().__init__(data, stored=stored, initial={POLICY: chosen}, auto_id="project_%s")
        self.fields[POLICY] = PolicyChoiceField(
            choices,
            none="None: alert channels are notified",
            help_text="For its monitors without one of their own. It decides whom outages notify.",
        )

    def given(self) -> dict[str, Any]:
        return validated(ProjectPatchSerializer, {POLICY: self.cleaned_data[POLICY]})


class NewProjectForm(RenameForm):
    name = forms.CharField(max_length=200, help_text="A shop, a customer, a team.")


class AddMemberForm(PageForm):
    email = forms.CharField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "placeholder": "name@example.com"}),
        help_text="People without an account get an invitation, which is valid for 14 days.",
    )
    role = forms.ChoiceField(
        choices=[
            (Role.MEMBER.value, "Member: monitors, incidents and tokens"),
            (Role.ADMIN.value, "Admin: also the project's name and members"),
            (Role.VIEWER.value, "Viewer: reads everything, and changes nothing"),
        ],
        initial=Role.MEMBER.value,
        widget=forms.RadioSelect,
    )


@page
def index(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = NewProjectForm(request.POST or None)
    created = form.create(request, lambda: services.create_project(caller, **form.given(), now=request.now))
    if created is not None:
        if not created.repeated:
            messages.success(request, "Project created. Add members and monitors next.")
        return redirect("project", created.object_id)
    roles = access.roles_of(caller)
    found = list(access.accessible_projects(caller).order_by("name", "pk"))
    counts = counts_by_project(caller, found, now=request.now)
    projects = [(one, roles.get(one.pk), counts[one.pk]) for one in found]
    return render_page(request, "projects/list", projects=projects, form=form)


@page
def show(request: PageRequest, project_id: str) -> HttpResponse:
    return _show(request, project_id)


@action
def rename(request: PageRequest, project_id: str) -> HttpResponse:
    project = access.get_project(request.caller, project_id, roles=access.MANAGERS)
    form = _rename_form(project, request.POST)

    def change() -> Project:
        return services.update_project(request.caller, project_id, form.given(), if_match=form.if_match)

    if form.save(request, change):
        return done(request, "Project renamed.", "project", project_id)
    return _show(request, project_id, invalid=form)


@action
def set_policy(request: PageRequest, project_id: str) -> HttpResponse:
    """Choose the escalation policy of the project's monitors."""
    caller = request.caller
    form = PolicyChoiceForm(
        request.POST, caller=caller, stored=access.get_project(caller, project_id, roles=access.MANAGERS)
    )

    def change() -> Project:
        return services.update_project(caller, project_id, form.given(), if_match=form.if_match)

    if form.save(request, change):
        return done(request, "Escalation policy saved.", "project", project_id)
    return _show(request, project_id, invalid=form)


def _rename_form(project: Project, data: QueryDict | None = None) -> RenameForm:
    return RenameForm(data, stored=project, initial={"name": project.name}, auto_id=RENAME_ID)


def _deletable(project: Project) -> Deletable:
    return Deletable(project, project.name, _rename_form(project).values())


delete = deletion(
    services.delete_project,
    lambda request, project_id: _deletable(access.get_project(request.caller, project_id)),
    "Project deleted. Its monitors stay with the owner; its tokens are revoked.",
    "projects",
)


@action
def add_member(request: PageRequest, project_id: str) -> HttpResponse:
    caller, form = request.caller, AddMemberForm(request.POST)
    access.get_project(caller, project_id, roles=access.MANAGERS)

    def add() -> Membership:
        given = validated(MemberInputSerializer, form.cleaned_data)
        return members.add_member(caller, project_id, **given, now=request.now)

    member = form.save(request, add, limit="invite")
    if member is None:
        return _show(request, project_id, invalid=form)
    text = f"{member.email} is now a member of the project."
    if member.is_open:
        text = f"Invitation sent to {member.email}. You can also copy its link below."
        if problem := mail.server_problem(staff=caller.user.is_staff):
            text = f"No e-mail was sent: copy the invitation's link below. {problem}"
    return done(request, text, "project", project_id)


@action
def change_member(request: PageRequest, project_id: str, member_id: str) -> HttpResponse:
    """Set a role, or remove a member, an invitation or yourself (REMOVE)."""
    caller, chosen, now = request.caller, request.POST.get("action", ""), request.now
    try:
        if chosen == REMOVE:
            members.remove_member(caller, project_id, member_id, now=now)
            messages.success(request, "Member removed.")
        else:
            role = validated(MemberPatchSerializer, {"role": chosen})["role"]
            member = members.change_role(caller, project_id, member_id, role=role, now=now)
            messages.success(request, f"{member.email} is now {role}.")
    except ValidationFailed as error:
        messages.error(request, str(error))
    still_there = access.accessible_projects(caller).filter(public_id=project_id).exists()
    return redirect("project", project_id) if still_there else redirect("projects")


def _show(request: PageRequest, project_id: str, *, invalid: PageForm | None = None) -> HttpResponse:
    """Render the page of a project. A form with errors replaces its empty one."""
    caller, now = request.caller, request.now
    project = access.get_project(caller, project_id)
    memberships = list(members.list_members(caller, project_id, now=now).order_by("created_at", "pk"))
    memberships.sort(key=lambda membership: Role.values.index(membership.role))  # owner first
    own = next((membership for membership in memberships if membership.user_id == caller.user.pk), None)
    if own is None:
        raise NotFound  # removed by another request
    rename_form = _rename_form(project)
    if invalid is not None:  # it may be far below the top of the page
        next(iter(invalid.visible_fields())).field.widget.attrs["autofocus"] = True
    return render_page(
        request,
        "projects/detail",
        project=project,
        counts=counts_by_project(caller, [project], now=now)[project.pk],
        own=own,
        manages=own.role in access.MANAGERS,
        owns=own.role == Role.OWNER,
        roles=GIVEN_ROLES,
        members=[membership for membership in memberships if not membership.is_open],
        invitations=[(one, members.invitation_link(one)) for one in memberships if one.is_open],
        tokens=token_rows(caller, project=project, now=now),
        deletable=_deletable(project),
        policy=_policy_of(caller, project),
        policy_form=invalid
        if isinstance(invalid, PolicyChoiceForm)
        else PolicyChoiceForm(caller=caller, stored=project)
        if own.role in access.MANAGERS
        else None,
        rename_form=invalid if isinstance(invalid, RenameForm) else rename_form,
        member_form=invalid if isinstance(invalid, AddMemberForm) else AddMemberForm(),
    )


def _policy_of(caller: Caller, project: Project) -> EscalationPolicy | None:
    """Return the project's policy if the caller can see it."""
    if project.escalation_policy_id is None:
        return None
    return list_policies(caller).filter(pk=project.escalation_policy_id).first()
