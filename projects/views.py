"""Projects, their members and audit logs, and the page of an invitation."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from core.api.query import HISTORY_LIMIT, ChoiceParam, Pages
from core.api.viewsets import OkSerializer, ServiceViewSet, operation
from core.clock import utc_now
from core.errors import LimitReached, NotFound
from core.throttles import InviteThrottle
from projects import access, log, members, services
from projects.models import Membership, Project
from projects.serializers import (
    AuditEntrySerializer,
    ListedProjectSerializer,
    MemberInputSerializer,
    MemberPatchSerializer,
    MemberSerializer,
    ProjectInputSerializer,
    ProjectPatchSerializer,
    ProjectSerializer,
)

ACTION = ChoiceParam("action", "Only entries of this action.", [action.value for action in Action])


class ProjectViewSet(ServiceViewSet):
    noun = "project"
    lookup_url_kwarg = "project_id"
    serializer_class = ProjectSerializer
    has_etag = True
    session_only = True

    def get_object(self, project_id: str) -> Project:
        return access.get_project(self.caller, project_id)

    @operation(answer=ListedProjectSerializer)
    def list(self) -> QuerySet[Project]:
        """List projects."""
        return services.list_projects(self.caller, now=self.now)

    @operation(body=ProjectInputSerializer, errors=(LimitReached,))
    def create(self, data: dict[str, Any]) -> Project:
        """Create a project."""
        return services.create_project(self.caller, **data, now=self.now)

    @operation()
    def retrieve(self, project_id: str) -> Project:
        """Read a project."""
        return self.get_object(project_id)

    @operation(id="rename_project", body=ProjectPatchSerializer, answer=OkSerializer)
    def partial_update(self, project_id: str, data: dict[str, Any]) -> Project:
        """Rename a project, or change the escalation policy of its monitors."""
        return services.update_project(self.caller, project_id, data, if_match=self.if_match)

    @operation()
    def destroy(self, project_id: str) -> None:
        """Delete a project; its monitors are detached."""
        services.delete_project(self.caller, project_id, if_match=self.if_match)


class MemberViewSet(ServiceViewSet):
    noun = "member"
    lookup_url_kwarg = "member_id"
    serializer_class = MemberSerializer
    session_only = True

    def get_parent(self, project_id: str) -> Project:
        return access.get_project(self.caller, project_id, roles=access.MANAGERS)

    def get_object(self, project_id: str, member_id: str) -> Membership:
        project = access.get_project(self.caller, project_id, roles=access.MANAGERS)
        return members.get_member(project, member_id, now=self.now)

    @operation()
    def list(self, project_id: str) -> QuerySet[Membership]:
        """List the members of a project, and its open invitations."""
        return members.list_members(self.caller, project_id, now=self.now)

    @operation(
        id="add_member",
        body=MemberInputSerializer,
        is_idempotent=False,
        errors=(LimitReached,),
        throttles=(InviteThrottle,),
    )
    def create(self, project_id: str, data: dict[str, Any]) -> Membership:
        """Add a member to a project.

        An existing account is a member at once. Any other address gets an invitation by e-mail, which becomes a
        membership when an account with that address signs in within 14 days.
        """
        return members.add_member(self.caller, project_id, **data, now=self.now)

    @operation(id="change_member_role", body=MemberPatchSerializer)
    def partial_update(self, project_id: str, member_id: str, data: dict[str, Any]) -> Membership:
        """Change the role of a member."""
        return members.change_role(self.caller, project_id, member_id, **data, now=self.now)

    @operation(id="remove_member")
    def destroy(self, project_id: str, member_id: str) -> None:
        """Remove a member, leave a project, or withdraw an invitation.

        Ends the member's access at once, and revokes the project tokens that the member created.
        """
        members.remove_member(self.caller, project_id, member_id, now=self.now)


LOG = Pages(newest_first=True, default=HISTORY_LIMIT, weight=log.ENTRY_CHARS, few=HISTORY_LIMIT)


class AccountLogViewSet(ServiceViewSet):
    noun = "account_audit_log"
    serializer_class = AuditEntrySerializer
    session_only = True

    def get_serializer_context(self) -> dict[str, Any]:
        context = super().get_serializer_context()
        if getattr(self, "swagger_fake_view", False):  # the schema has no request to authenticate
            return context
        return context | {"viewer": self.caller.user}

    @operation(id="list_account_audit_log", pages=LOG, params=(ACTION,))
    def list(self, action: str | None) -> QuerySet[Entry]:
        """List the audit log of the account, newest first."""
        return log.of_account(self.caller, action=action)


class ProjectLogViewSet(AccountLogViewSet):
    noun = "project_audit_log"

    def get_parent(self, project_id: str) -> None:
        """Skip the access check, which `log.of_project` does too, to save a query."""

    @operation(id="list_project_audit_log", pages=LOG, params=(ACTION,))
    def list(self, action: str | None, project_id: str) -> QuerySet[Entry]:
        """List the audit log of a project, newest first.

        Only for its owner and admins.
        """
        return log.of_project(self.caller, project_id, action=action)


@require_GET
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Open the link of an invitation: sign up or sign in with the invited address."""
    now = utc_now()
    try:
        found, is_mailed = members.find_invitation(token, now=now)
    except NotFound:
        context = {
            "title": "This invitation is no longer valid",
            "reason": "It has expired, was withdrawn, or was already accepted. Ask for a new one.",
        }
        return render(request, "problem.html", context, status=404)
    user = request.user
    if isinstance(user, User) and user.email == found.email:
        members.accept_invitations(user, now=now)
        return redirect("/projects")
    if is_mailed:
        # The mailed link proves ownership of the address, so sign-up needs no other proof.
        get_adapter(request).stash_verified_email(request, found.email)
    else:
        request.session[members.INVITED] = found.email
    return render(request, "projects/invitation.html", {"invitation": found, "is_mailed": is_mailed})
