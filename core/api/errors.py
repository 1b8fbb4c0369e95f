"""Map exceptions to responses in the shape of the Error object."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from core import errors
from core.postgresql.availability import is_outage

logger = logging.getLogger(__name__)


def error_body(error: errors.ApiError | type[errors.ApiError]) -> dict[str, Any]:
    """Return the Error object."""
    body: dict[str, Any] = {"error": error.code, "reason": error.reason, **error.details}
    return body if error.limit is None else body | {"limit": error.limit}


def _join(path: str, field: object) -> str:
    if field == "non_field_errors":
        return path
    if isinstance(field, int):
        return f"{path}[{field}]"
    return f"{path}.{field}" if path else str(field)


def validation_failed(detail: Any, path: str = "") -> errors.ValidationFailed:
    """Return the first of DRF's nested error details, with the path of its field: `request_headers[1].name`."""
    for key, inner in detail.items() if isinstance(detail, dict) else enumerate(detail):
        field = path if isinstance(detail, list) and isinstance(inner, str) else _join(path, key)
        if isinstance(inner, str):
            return errors.ValidationFailed(inner, field=field)
        if inner:
            return validation_failed(inner, field)
    return errors.ValidationFailed(str(detail), field=path)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception of a view of `/v1`, for DRF. Unknown exceptions are logged and hidden."""
    known = _as_api_error(error)
    if known is None:
        logger.error("unhandled error in %s", type(context.get("view")).__name__, exc_info=error)
        known = errors.ApiError()
    return Response(error_body(known), status=known.status, headers=known.headers)


def json_error(error: errors.ApiError) -> JsonResponse:
    """Return the same response from a view that is not DRF's."""
    return JsonResponse(error_body(error), status=error.status, headers=error.headers)


def _as_api_error(error: Exception) -> errors.ApiError | None:
    if isinstance(error, errors.ApiError):
        return error
    if is_outage(error):
        return errors.Unavailable()
    match error:
        case exceptions.Throttled():
            return errors.TooManyRequests(wait=getattr(error, "wait", None))
        case exceptions.ValidationError():
            return validation_failed(error.detail)
        case exceptions.ParseError():
            return errors.ValidationFailed(str(error.detail))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return errors.Unauthorized()
        case exceptions.MethodNotAllowed():
            return errors.MethodNotAllowed(str(error.detail))
        case exceptions.UnsupportedMediaType():
            return errors.UnsupportedMediaType()
        case Http404():
            return errors.NotFound()
        case PermissionDenied() | exceptions.PermissionDenied():
            return errors.Forbidden()
    return None
