"""Map exceptions to responses in the shape of the Error object."""

from __future__ import annotations

import logging
import math
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions, status
from rest_framework.response import Response

from core.errors import ApiError, NotFound, Overloaded, TooManyRequests

logger = logging.getLogger(__name__)


def error_body(code: str, reason: str | None = None, limit: int | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"error": code}
    if reason:
        body["reason"] = reason
    if limit is not None:
        body["limit"] = limit
    return body


def _join(path: str, field: object) -> str:
    if field == "non_field_errors":
        return path
    if isinstance(field, int):
        return f"{path}[{field}]"
    return f"{path}.{field}" if path else str(field)


def first_reason(detail: Any, path: str = "") -> str:
    """DRF's nested error detail as one sentence that names the field: `request_headers[1].name: …`."""
    if isinstance(detail, dict):
        for field, inner in detail.items():
            if inner:
                return first_reason(inner, _join(path, field))
    if isinstance(detail, list):
        for index, inner in enumerate(detail):
            if isinstance(inner, dict | list):
                if inner:
                    return first_reason(inner, f"{path}[{index}]")
            else:
                return first_reason(inner, path)
    return f"{path}: {detail}" if path else str(detail)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Every exception of a view of `/v1`. DRF calls it; what it does not know is a crash, logged and hidden."""
    code, answer, headers = _answer_to(error, context.get("view"))
    return Response(answer, status=code, headers=headers)


def json_error(error: ApiError | exceptions.APIException) -> JsonResponse:
    """The same answer, for a view of `/v1` that is none of DRF's."""
    code, answer, headers = _answer_to(error, None)
    return JsonResponse(answer, status=code, headers=headers)


def _answer_to(error: Exception, view: object) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers."""
    headers: dict[str, str] = {}
    match error:
        case TooManyRequests() | exceptions.Throttled():
            code, answer = 429, error_body(TooManyRequests.code, TooManyRequests.reason)
            headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 1)))
        case ApiError():
            code, answer = error.status, error_body(error.code, error.reason, error.limit)
            if isinstance(error, Overloaded):
                headers["Retry-After"] = "1"
        case exceptions.ValidationError():
            code, answer = 422, error_body("validation_error", first_reason(error.detail))
        case exceptions.ParseError():
            code, answer = 422, error_body("validation_error", str(error.detail))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            code, answer = 401, error_body("unauthorized", "A valid Bearer token is needed.")
        case exceptions.MethodNotAllowed():
            code, answer = 405, error_body("method_not_allowed", str(error.detail))
        case exceptions.UnsupportedMediaType():
            code, answer = 415, error_body("unsupported_media_type", "Send application/json.")
        case Http404():
            code, answer = 404, error_body(NotFound.code, NotFound.reason)
        case PermissionDenied() | exceptions.PermissionDenied():
            code, answer = 403, error_body("forbidden", "Your role does not allow this.")
        case _:
            logger.error("unhandled error in %s", type(view).__name__, exc_info=error)
            code, answer = (
                500,
                error_body("internal_error", "Something broke on our side; it has been logged."),
            )
    if code == status.HTTP_401_UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return code, answer, headers


def json_bad_request(request: HttpRequest, exception: Exception) -> JsonResponse:
    """Django's own refusals before any view: a wrong Host header, a hostile cookie."""
    return JsonResponse(error_body("bad_request", "The request could not be understood."), status=400)


def json_not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    return JsonResponse(error_body(NotFound.code, "There is no such address."), status=404)


def json_server_error(request: HttpRequest) -> JsonResponse:
    return JsonResponse(error_body("internal_error", "Something broke on our side; it has been logged."), status=500)
