"""Endpoints of the audit log: one's own, and a project's for its owner and admins."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.actions import Action
from audit.models import Entry
from core.api.pagination import Page, page_parameters
from core.api.query import choice_param
from core.api.schema import ErrorSerializer
from projects import log
from projects.access import caller_of
from projects.serializers import AuditEntrySerializer

PAGE = 100
ACTIONS = [action.value for action in Action]
_PARAMETERS = [
    *page_parameters(default=PAGE),
    OpenApiParameter("action", enum=ACTIONS, description="Only such entries."),
]
_ANSWERS = {200: AuditEntrySerializer(many=True), 403: ErrorSerializer}


def _page(request: Request, entries: QuerySet[Entry]) -> Response:
    page = Page(request, entries, newest_first=True, default=PAGE)
    seen = log.seen_by(caller_of(request).user, page.rows)
    return page.response(AuditEntrySerializer(seen, many=True).data)


class AccountLog(APIView):
    @extend_schema(
        operation_id="list_account_audit_log",
        summary="List what one did, and what was done to one's account, newest first",
        parameters=_PARAMETERS,
        responses=_ANSWERS,
    )
    def get(self, request: Request) -> Response:
        caller = caller_of(request)
        caller.require_session()
        action = choice_param(request, "action", ACTIONS)
        return _page(request, log.of_account(caller, action=action))


class ProjectLog(APIView):
    @extend_schema(
        operation_id="list_project_audit_log",
        summary="List what was done to a project, newest first",
        description="For its owner and admins.",
        parameters=_PARAMETERS,
        responses=_ANSWERS,
    )
    def get(self, request: Request, project_id: str) -> Response:
        caller = caller_of(request)
        caller.require_session()
        action = choice_param(request, "action", ACTIONS)
        return _page(request, log.of_project(caller, project_id, action=action))
