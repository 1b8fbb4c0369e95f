"""Endpoints of incidents."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.converters import PUBLIC_ID
from core.api.idempotency import Created, create_once
from core.api.pagination import Page, page_parameters
from core.api.query import IdParam, choice_param
from core.api.schema import IDEMPOTENCY_KEY, ErrorSerializer
from core.api.views import body_of
from core.clock import utc_now
from incidents import selectors, services
from incidents.serializers import (
    INCIDENT_STATUSES,
    CommentSerializer,
    IncidentDetailSerializer,
    IncidentInputSerializer,
    IncidentSerializer,
)
from projects.access import caller_of

PAGE = 100
_ID = {"type": "string", "pattern": f"^{PUBLIC_ID}$"}


class IncidentList(APIView):
    @extend_schema(
        operation_id="list_incidents",
        summary="List incidents, newest first",
        parameters=[
            *page_parameters(default=PAGE),
            OpenApiParameter("monitor_id", _ID, description="Only those of this monitor."),
            OpenApiParameter("project_id", _ID, description="Only those of this project."),
            OpenApiParameter("status", enum=INCIDENT_STATUSES, description="Only such incidents."),
        ],
        responses=IncidentSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        status = choice_param(request, "status", INCIDENT_STATUSES)
        incidents = selectors.list_incidents(
            caller_of(request),
            monitor_id=IdParam("monitor_id", "").read(request),
            project_id=IdParam("project_id", "").read(request),
            is_open=None if status is None else status == "open",
        )
        page = Page(request, incidents, newest_first=True, default=PAGE)
        return page.response(IncidentSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="declare_incident",
        summary="Declare an incident that no monitor found",
        description="It lives from comments, and ends when somebody resolves it. No alert is sent.",
        parameters=[IDEMPOTENCY_KEY],
        request=IncidentInputSerializer,
        responses={201: IncidentDetailSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        given = body_of(request, IncidentInputSerializer)
        now = utc_now()

        def make() -> Created:
            incident = services.declare(caller, given, now=now)
            return Created(incident.public_id, IncidentDetailSerializer(incident).data)

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class IncidentDetail(APIView):
    @extend_schema(
        operation_id="get_incident",
        summary="Read an incident with its timeline",
        responses=IncidentDetailSerializer,
    )
    def get(self, request: Request, incident_id: str) -> Response:
        incident = selectors.get_incident(caller_of(request), incident_id)
        return Response(IncidentDetailSerializer(incident).data)


class IncidentAcknowledge(APIView):
    @extend_schema(
        operation_id="acknowledge_incident",
        summary="Acknowledge an incident; reminders stop",
        description="The first acknowledgement counts, and a further one changes nothing.",
        request=None,
        responses={200: IncidentDetailSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, incident_id: str) -> Response:
        incident = services.acknowledge(caller_of(request), incident_id, now=utc_now())
        return Response(IncidentDetailSerializer(incident).data)


class IncidentComments(APIView):
    @extend_schema(
        operation_id="comment_incident",
        summary="Comment on an incident",
        request=CommentSerializer,
        responses=IncidentDetailSerializer,
    )
    def post(self, request: Request, incident_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_incident(caller, incident_id)  # not found goes before what is wrong with the body
        text = body_of(request, CommentSerializer)["text"]
        incident = services.comment(caller, incident_id, text=text, now=utc_now())
        return Response(IncidentDetailSerializer(incident).data)


class IncidentResolve(APIView):
    @extend_schema(
        operation_id="resolve_incident",
        summary="Resolve an incident that people declared",
        description="Once it is resolved, doing it again changes nothing.",
        request=None,
        responses={200: IncidentDetailSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, incident_id: str) -> Response:
        incident = services.resolve(caller_of(request), incident_id, now=utc_now())
        return Response(IncidentDetailSerializer(incident).data)
