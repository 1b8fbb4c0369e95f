"""Connectors, and the page to which a provider redirects."""

from __future__ import annotations

import math
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from rest_framework.response import Response

from connectors import importing, selectors, services
from connectors.models import Connector
from connectors.providers import title_of
from connectors.providers.base import GrantRevoked, OAuthRefused, ProviderFailed
from connectors.serializers import (
    AuthorizeSerializer,
    ConnectorSerializer,
    ImportableProjectsSerializer,
    ImportFailureSerializer,
    ImportInputSerializer,
    ImportResultSerializer,
)
from core.addresses import client_network
from core.api.viewsets import ServiceViewSet, operation
from core.clock import utc_now
from core.errors import NotFound, ProviderError, ProviderNotConfigured, ReconnectRequired, TooManyRequests
from core.throttles import CALLBACK, ProbeThrottle, ProviderThrottle, seconds_to_wait
from core.waiting import limit_waiting
from monitors.serializers import serialize_monitors

# The address is a secret for a moment, and the page holds one.
_PAGE_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class ConnectorViewSet(ServiceViewSet):
    noun = "connector"
    lookup_url_kwarg = "provider"
    serializer_class = ConnectorSerializer
    session_only = True

    def get_object(self, provider: str) -> Connector:
        return selectors.get_connector(self.caller, provider)

    @operation()
    def list(self) -> QuerySet[Connector]:
        """List the providers that are linked."""
        return selectors.list_connectors(self.caller)

    @operation("oauth/start", answer=AuthorizeSerializer, errors=(ProviderNotConfigured,))
    def start(self, provider: str) -> dict[str, str]:
        """Begin to link a provider.

        The person opens `authorize_url` in a browser and agrees there.
        """
        return {"authorize_url": services.start(self.caller, provider, now=self.now)}

    @operation(
        "projects",
        method="get",
        id="list_connector_projects",
        answer=ImportableProjectsSerializer,
        errors=(ReconnectRequired, ProviderError),
        throttles=(ProviderThrottle,),
    )
    def projects(self, provider: str) -> dict[str, Any]:
        """List what can be imported from a provider."""
        return {"projects": importing.list_importable(self.caller, provider, now=self.now)}

    @operation(
        "import",
        id="import_connector_projects",
        body=ImportInputSerializer,
        answer=ImportResultSerializer,
        errors=(ReconnectRequired, ProviderError),
        throttles=(ProbeThrottle,),
    )
    def import_projects(self, provider: str, data: dict[str, Any]) -> Response:
        """Import projects of a provider as monitors.

        Each succeeds or fails by itself. First checks follow at once; the answer does not wait for them.
        """
        refs = data.pop("external_refs")
        result = importing.import_projects(self.caller, provider, refs, place=data, now=self.now)
        failed = ImportFailureSerializer(result.failed, many=True).data
        return Response({"created": serialize_monitors(result.created), "skipped": result.skipped, "failed": failed})

    @operation(id="disconnect_connector")
    def destroy(self, provider: str) -> None:
        """Disconnect a provider; monitors that were imported stay."""
        services.disconnect(self.caller, provider)


@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Where a provider sends the person back to, with a code or with a refusal."""
    if (wait := seconds_to_wait(CALLBACK, client_network(request))) is not None:
        return _too_many(request, wait)
    signed_in = request.user if request.user.is_authenticated else None
    try:
        with limit_waiting(client_network(request)):
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
