"""Connectors, and the page to which a provider redirects."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from rest_framework.response import Response

from connectors import importing, selectors, services
from connectors.models import Connector
from connectors.providers import BACKENDS
from connectors.providers.backend import GrantRevoked, NotPermitted
from connectors.providers.guarded import OAuthRefused, ProviderFailed
from connectors.serializers import (
    AuthorizeSerializer,
    ConnectorSerializer,
    ImportableProjectsSerializer,
    ImportInputSerializer,
    ImportResultSerializer,
)
from core.addresses import client_network
from core.api.viewsets import ServiceViewSet, operation
from core.clock import utc_now
from core.errors import NotFound, ProviderError, ProviderNotConfigured, ReconnectRequired, TooManyRequests
from core.throttles import CALLBACK, ProbeThrottle, ProviderThrottle, count_request
from core.waiting import limit_waiting
from monitors.serializers import serialize_monitors

# The URL contains a secret that is valid for a moment, and the page contains one.
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
        """Start linking a provider.

        Open `authorize_url` in a browser and agree there.
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

        Each succeeds or fails on its own. First checks run at once; the response does not wait for them.
        """
        refs = data.pop("external_refs")
        result = importing.import_projects(self.caller, provider, refs, place=data, now=self.now)
        failed = [{"external_ref": ref, "error": error} for ref, error in result.failed.items()]
        return Response(
            {
                "created": serialize_monitors(result.created, caller=self.caller),
                "skipped": result.skipped,
                "failed": failed,
            }
        )

    @operation(id="disconnect_connector")
    def destroy(self, provider: str) -> None:
        """Disconnect a provider; monitors that were imported stay."""
        services.disconnect(self.caller, provider)


@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Receive the browser from the provider, with a code or an error."""
    signed_in = request.user if request.user.is_authenticated else None
    try:
        count_request(CALLBACK, client_network(request))
        with limit_waiting(client_network(request), stranger=True):
            connector, undo_secret = services.link(provider, request.GET.dict(), signed_in=signed_in, now=utc_now())
    except (TooManyRequests, OAuthRefused, GrantRevoked, ProviderFailed, NotFound) as error:
        return _refusal(request, error)
    title = BACKENDS[connector.provider].title
    return _page(request, f"{title} is linked", {"linked": connector, "title": title, "undo": undo_secret})


@csrf_exempt  # the secret of the form authorizes this, and nothing of a browser's session
@require_POST
def undo(request: HttpRequest, provider: str) -> HttpResponse:
    """Undo a link that was just created in this browser."""
    try:
        count_request(CALLBACK, client_network(request))
        connector = services.undo_link(provider, request.POST.get("secret", ""), now=utc_now())
    except TooManyRequests as error:
        return _refusal(request, error)
    except NotFound as error:
        return _page(request, "Nothing undone", {"problem": error.reason}, status=400)
    return _page(request, "Undone", {"undone": connector, "title": BACKENDS[connector.provider].title})


def _refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    status = {ProviderFailed: 502, NotPermitted: 502, NotFound: 404, TooManyRequests: 429}.get(type(error), 400)
    problem = "Too many requests came from your address; wait a minute." if status == 429 else str(error)
    page = _page(request, "Not linked", {"problem": problem, "again": True}, status=status)
    if isinstance(error, TooManyRequests):
        page["Retry-After"] = error.headers["Retry-After"]
    return page


def _page(request: HttpRequest, heading: str, about: dict[str, Any], *, status: int = 200) -> HttpResponse:
    context = {"heading": heading, "back": f"{settings.BASE_URL}/connectors", **about}
    return TemplateResponse(request, "connectors/callback.html", context, status=status, headers=_PAGE_HEADERS)
