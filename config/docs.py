"""`/docs`: openapi.json as a page. Everything it loads is ours; nothing comes from a CDN."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

# swagger-ui sets styles on elements; everything else is refused, above all to send anything elsewhere.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)


def docs(request: HttpRequest) -> HttpResponse:
    page = render(request, "config/docs.html")
    page["Content-Security-Policy"] = POLICY
    return page
