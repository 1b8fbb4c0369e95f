"""What escalation policies add to incidents in the API, and the page of a link that acknowledges one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from core.addresses import client_network
from core.api.viewsets import ServiceViewSet, operation
from core.clock import utc_now
from core.errors import IncidentResolved, LimitReached, LinkExpired, NotEscalating, NotFound, TooManyRequests
from core.throttles import count_request
from incidents.models import Incident
from incidents.selectors import get_incident
from incidents.serializers import IncidentDetailSerializer
from incidents.services import acknowledge_by_link
from oncall import acknowledging, escalating

TAKE_BACK = "take_back"


class EscalationViewSet(ServiceViewSet):
    noun = "incident"
    lookup_url_kwarg = "incident_id"
    serializer_class = IncidentDetailSerializer

    def get_object(self, incident_id: str) -> Incident:
        return get_incident(self.caller, incident_id)

    @operation("unacknowledge", errors=(IncidentResolved, LimitReached))
    def unacknowledge(self, incident_id: str) -> Incident:
        """Take the acknowledgement of an incident back.

        Its escalation begins again with the first step. Nothing happens if it is not acknowledged.
        """
        return escalating.unacknowledge(self.caller, incident_id, now=self.now)

    @operation("escalate", errors=(NotEscalating,))
    def escalate(self, incident_id: str) -> Incident:
        """Run the next step of an incident's escalation now.

        Later steps count from now. If the step reaches no one, the one after it runs too.
        """
        return escalating.escalate(self.caller, incident_id, now=self.now)


@csrf_exempt  # a bare POST acknowledges: the secret in the address is the permission, and no session is used
@require_http_methods(["GET", "HEAD", "POST"])
def acknowledge_page(request: HttpRequest, key: str) -> HttpResponse:
    """The page of a link: GET shows the incident, POST acknowledges it, or takes that back."""
    now = utc_now()
    try:
        count_request("acknowledge-links", client_network(request))
        link = acknowledging.find(key, now=now)
        if request.method == "POST":
            take_back = request.POST.get("action") == TAKE_BACK
            act = escalating.unacknowledge_by_link if take_back else acknowledge_by_link
            act(link.user, link.incident.pk, now=now)
            link = acknowledging.find(key, now=now)
    except (NotFound, LinkExpired, LimitReached, TooManyRequests) as error:
        reason = "This link does not exist. Copy it whole." if isinstance(error, NotFound) else error.reason
        told = {"title": "Nothing to acknowledge", "reason": reason}
        page = render(request, "problem.html", told, status=error.status)
        for name, value in error.headers.items():
            page[name] = value
    else:
        incident = link.incident
        context: dict[str, Any] = {
            "incident": incident,
            "link": link,
            "others": acknowledging.others_notified(link),
            "now": now,
        }
        page = render(request, "oncall/acknowledge.html", context)
    # The address is a secret.
    page["Referrer-Policy"], page["Cache-Control"] = "no-referrer", "no-store"
    page["X-Robots-Tag"] = "noindex"
    return page
