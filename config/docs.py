"""`/docs`: a page that renders openapi.json, without resources from other hosts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

# Swagger UI needs inline styles. Requests to other hosts are refused.
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
