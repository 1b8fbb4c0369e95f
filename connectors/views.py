"""Endpoints of connectors, for people with a session, and the page to which a provider sends them back."""

from __future__ import annotations

import math
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from connectors import importing, selectors, services
from connectors.providers import title_of
from connectors.providers.base import GrantRevoked, OAuthRefused, ProviderFailed
from connectors.serializers import (
    AuthorizeSerializer,
    ConnectorSerializer,
    ImportableProjectSerializer,
    ImportableProjectsSerializer,
    ImportFailureSerializer,
    ImportInputSerializer,
    ImportResultSerializer,
)
from core.addresses import client_network
from core.api.pagination import Page, page_parameters
from core.api.schema import ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from core.errors import NotFound, TooManyRequests
from core.throttles import CALLBACK, CallerThrottle, ProbeThrottle, ProviderThrottle, seconds_to_wait
from core.waiting import waiting_place
from monitors.serializers import shown
from projects.access import caller_of

# config.openapi adds the words: they are a setting.
PROVIDER = OpenApiParameter(
    "provider", str, OpenApiParameter.PATH, description="The word that this deployment has for a provider."
)

# The address is a secret for a moment, and the page holds one.
_PAGE_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class ConnectorList(APIView):
    @extend_schema(
        operation_id="list_connectors",
        summary="List the providers that are linked",
        parameters=page_parameters(),
        responses={200: ConnectorSerializer(many=True), 403: ErrorSerializer},
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_connectors(caller_of(request)))
        return page.response(ConnectorSerializer(page.rows, many=True).data)


class ConnectorStart(APIView):
    @extend_schema(
        operation_id="start_connector",
        summary="Begin to link a provider",
        description="The person opens `authorize_url` in a browser and agrees there.",
        parameters=[PROVIDER],
        request=None,
        responses={200: AuthorizeSerializer, 403: ErrorSerializer, 503: ErrorSerializer},
    )
    def post(self, request: Request, provider: str) -> Response:
        return Response({"authorize_url": services.start(caller_of(request), provider, now=utc_now())})


class ConnectorProjects(APIView):
    throttle_classes = (CallerThrottle, ProviderThrottle)

    @extend_schema(
        operation_id="list_connector_projects",
        summary="List what can be imported from a provider",
        parameters=[PROVIDER],
        responses={
            200: ImportableProjectsSerializer,
            403: ErrorSerializer,
            409: ErrorSerializer,
            502: ErrorSerializer,
        },
    )
    def get(self, request: Request, provider: str) -> Response:
        projects = importing.list_importable(caller_of(request), provider, now=utc_now())
        return Response({"projects": ImportableProjectSerializer(projects, many=True).data})


class ConnectorImport(APIView):
    throttle_classes = (CallerThrottle, ProbeThrottle)

    @extend_schema(
        operation_id="import_connector_projects",
        summary="Import projects of a provider as monitors",
        description="Each succeeds or fails by itself. First checks follow at once; the answer does not wait for them.",
        parameters=[PROVIDER],
        request=ImportInputSerializer,
        responses={
            200: ImportResultSerializer,
            403: ErrorSerializer,
            409: ErrorSerializer,
            502: ErrorSerializer,
        },
    )
    def post(self, request: Request, provider: str) -> Response:
        caller = caller_of(request)
        selectors.get_connector(caller, provider)  # not connected goes before what is wrong with the body
        given = body_of(request, ImportInputSerializer)
        refs = given.pop("external_refs")
        result = importing.import_projects(caller, provider, refs, place=given, now=utc_now())
        return Response(
            {
                "created": shown(result.created),
                "skipped": result.skipped,
                "failed": ImportFailureSerializer(result.failed, many=True).data,
            }
        )


class ConnectorDetail(APIView):
    @extend_schema(
        operation_id="disconnect_connector",
        summary="Disconnect a provider; monitors that were imported stay",
        parameters=[PROVIDER],
        responses={200: OkSerializer, 403: ErrorSerializer},
    )
    def delete(self, request: Request, provider: str) -> Response:
        services.disconnect(caller_of(request), provider)
        return Response(OK)


@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Where a provider sends the person back to, with a code or with a refusal."""
    if (wait := seconds_to_wait(CALLBACK, client_network(request))) is not None:
        return _too_many(request, wait)
    signed_in = request.user if request.user.is_authenticated else None
    try:
        with waiting_place(client_network(request)):
            linked = services.link(provider, request.GET.dict(), signed_in=signed_in, now=utc_now())
    except TooManyRequests as error:
        return _too_many(request, error.wait or 1)
    except (OAuthRefused, GrantRevoked) as error:
        return _refusal(request, str(error), 400)
    except ProviderFailed as error:
        return _refusal(request, str(error), 502)
    except NotFound as error:
        return _refusal(request, error.reason, 404)
    title = title_of(linked.connector.provider)
    told = {"linked": linked.connector, "title": title, "undo": linked.undo}
    return _page(request, f"{title} is linked", told)


@csrf_exempt  # the secret of the form is what is asked for, and nothing of a browser's session
@require_POST
def undo(request: HttpRequest, provider: str) -> HttpResponse:
    """Where the button of the page above leads: this was not my account."""
    if (wait := seconds_to_wait(CALLBACK, client_network(request))) is not None:
        return _too_many(request, wait)
    try:
        connector = services.undo_link(provider, request.POST.get("secret", ""), now=utc_now())
    except NotFound as error:
        return _page(request, "Nothing undone", {"problem": error.reason}, status=400)
    return _page(request, "Undone", {"undone": connector, "title": title_of(connector.provider)})


def _too_many(request: HttpRequest, wait: float) -> HttpResponse:
    page = _refusal(request, "Too many requests came from your address; wait a minute.", 429)
    page["Retry-After"] = str(max(1, math.ceil(wait)))
    return page


def _refusal(request: HttpRequest, problem: str | None, status: int) -> HttpResponse:
    return _page(request, "Not linked", {"problem": problem, "again": True}, status=status)


def _page(request: HttpRequest, heading: str, told: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context = {"heading": heading, "back": f"{settings.BASE_URL}/connectors", **told}
    page = render(request, "connectors/callback.html", context, status=status)
    for name, value in _PAGE_HEADERS.items():
        page[name] = value
    return page
