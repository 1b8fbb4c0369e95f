"""Endpoints of projects, for people with a session."""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from core.api.pagination import Page, page_parameters
from core.api.schema import ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from core.errors import NotFound
from core.throttles import CallerThrottle, InviteThrottle
from projects import access, idempotency, members, selectors, services
from projects.access import caller_of
from projects.idempotency import Made
from projects.schema import IDEMPOTENCY_KEY
from projects.serializers import (
    ListedProjectSerializer,
    MemberInputSerializer,
    MemberPatchSerializer,
    MemberSerializer,
    ProjectInputSerializer,
    ProjectSerializer,
)


class ProjectList(APIView):
    @extend_schema(
        operation_id="list_projects",
        summary="List projects",
        parameters=page_parameters(),
        responses={200: ListedProjectSerializer(many=True), 403: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_projects(caller_of(request)))
        return page.response(ListedProjectSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="create_project",
        summary="Create a project",
        parameters=[IDEMPOTENCY_KEY],
        request=ProjectInputSerializer,
        responses={201: ProjectSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        given = body_of(request, ProjectInputSerializer)
        now = utc_now()

        def make() -> Made:
            project = services.create_project(caller, name=given["name"], now=now)
            return Made(project.public_id, ProjectSerializer(project).data)

        return Response(idempotency.once(request, caller, make, now=now).answer, status=201)


class ProjectDetail(APIView):
    @extend_schema(
        operation_id="rename_project",
        summary="Rename a project",
        request=ProjectInputSerializer,
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def patch(self, request: Request, project_id: str) -> Response:
        caller = caller_of(request)
        caller.require_session()
        access.get_project(caller, project_id)
        services.rename_project(caller, project_id, name=body_of(request, ProjectInputSerializer)["name"])
        return Response(OK)

    @extend_schema(
        operation_id="delete_project",
        summary="Delete a project; its monitors are detached",
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request, project_id: str) -> Response:
        services.delete_project(caller_of(request), project_id)
        return Response(OK)


class MemberList(APIView):
    throttle_classes = (CallerThrottle, InviteThrottle)

    @extend_schema(
        operation_id="list_members",
        summary="List the members of a project, and its open invitations",
        parameters=page_parameters(),
        responses={200: MemberSerializer(many=True), 403: ErrorSerializer},
    )
    def get(self, request: Request, project_id: str) -> Response:
        page = Page(request, members.list_members(caller_of(request), project_id, now=utc_now()))
        return page.response(MemberSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="add_member",
        summary="Add a member to a project",
        description="An existing account is a member at once. Any other address gets an invitation by e-mail, which "
        "becomes a membership when an account with that address signs in within 14 days.",
        request=MemberInputSerializer,
        responses={201: MemberSerializer, 403: ErrorSerializer},
    )
    def post(self, request: Request, project_id: str) -> Response:
        caller = caller_of(request)
        caller.require_session()
        access.get_project(caller, project_id, roles=access.MANAGERS)
        given = body_of(request, MemberInputSerializer)
        member = members.add_member(
            caller, project_id, email=given["email"], role=given["role"], now=utc_now()
        )
        return Response(MemberSerializer(member).data, status=201)


class MemberDetail(APIView):
    @extend_schema(
        operation_id="change_member_role",
        summary="Change the role of a member",
        request=MemberPatchSerializer,
        responses={200: MemberSerializer, 403: ErrorSerializer},
    )
    def patch(self, request: Request, project_id: str, member_id: str) -> Response:
        caller, now = caller_of(request), utc_now()
        caller.require_session()
        members.get_member(caller, project_id, member_id, now=now)
        role = body_of(request, MemberPatchSerializer)["role"]
        member = members.change_role(caller, project_id, member_id, role=role, now=now)
        return Response(MemberSerializer(member).data)

    @extend_schema(
        operation_id="remove_member",
        summary="Remove a member, leave a project, or withdraw an invitation",
        description="Ends the member's access at once, and revokes the project tokens that the member created.",
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request, project_id: str, member_id: str) -> Response:
        members.remove_member(caller_of(request), project_id, member_id, now=utc_now())
        return Response(OK)


@require_GET
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Where an invitation's link leads: to signing up or in, as the address that it was sent to."""
    now = utc_now()
    try:
        found, is_mailed = members.find_invitation(token, now=now)
    except NotFound:
        context = {
            "title": "This invitation does not work any more",
            "reason": "It has run out, was withdrawn, or was taken up already. Ask for another one.",
        }
        return render(request, "problem.html", context, status=404)
    user = request.user
    if isinstance(user, User) and user.email == found.email:
        members.accept_invitations(user, now=now)
        return redirect("/projects")
    if is_mailed:
        # Whoever holds the token reads the mail of that address: signing up with it needs no other proof.
        get_adapter(request).stash_verified_email(request, found.email)
    else:
        request.session[members.INVITED] = found.email
    return render(request, "projects/invitation.html", {"invitation": found, "is_mailed": is_mailed})
