"""Endpoints of projects, for people with a session."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.pagination import Page, page_parameters
from core.api.schema import ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from projects import access, selectors, services
from projects.access import caller_of
from projects.serializers import ListedProjectSerializer, ProjectInputSerializer, ProjectSerializer


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
        request=ProjectInputSerializer,
        responses={201: ProjectSerializer, 403: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        given = body_of(request, ProjectInputSerializer)
        project = services.create_project(caller, name=given["name"], now=utc_now())
        return Response(ProjectSerializer(project).data, status=201)


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
