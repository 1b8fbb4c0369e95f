"""Where the links of alerts lead: to what they are about, for people with a token. It says nothing of it by itself."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse


def link(request: HttpRequest, kind: str, public_id: str | None = None) -> HttpResponse:
    """The same page whether there is such an incident or monitor, and whoever asks."""
    path = f"/v1/{kind}" if public_id is None else f"/v1/{kind}/{public_id}"
    text = (
        f"GET {settings.BASE_URL}{path}\n\n"
        f"shows this with your token: a session token, or one of the project. {settings.BASE_URL}/docs tells more.\n"
    )
    return HttpResponse(text, "text/plain; charset=utf-8")
