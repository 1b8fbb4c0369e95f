"""Describe the Bearer scheme in openapi.json."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tokens.authentication.BearerAuthentication"
    name = "Bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A session token (`ses_…`, of POST /v1/sessions) or a project token "
            "(`svc_…`, of POST /v1/tokens).",
        }
