"""Bare arrays with `limit`, `cursor` and a `Link: …; rel="next"` header (decision 17)."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import ValidationFailed

MAX_LIMIT = 1000
M = TypeVar("M", bound=Model)


def _limit(request: Request) -> int | None:
    text = request.query_params.get("limit")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= MAX_LIMIT):
        raise ValidationFailed(f"must be a whole number from 1 to {MAX_LIMIT}.", field="limit")
    return int(text)


def _cursor(request: Request) -> int | None:
    text = request.query_params.get("cursor")
    if text is None:
        return None
    try:
        last = int(base64.urlsafe_b64decode(text.encode()).decode("ascii"))
    except (ValueError, binascii.Error):
        last = -1
    if not 0 <= last < 2**63:
        raise ValidationFailed("is not a cursor that a Link header gave.", field="cursor")
    return last


class Page:
    """One page of a queryset in the order of its ids; later rows never shift earlier pages."""

    def __init__(self, request: Request, queryset: QuerySet[Any]) -> None:
        self._request = request
        self._limit = _limit(request)
        after = _cursor(request)
        queryset = queryset.order_by("pk")
        if after is not None:
            queryset = queryset.filter(pk__gt=after)
        rows = list(queryset if self._limit is None else queryset[: self._limit + 1])
        self._more = self._limit is not None and len(rows) > self._limit
        self.rows: list[Any] = rows[: self._limit]

    def response(self, data: Any) -> Response:
        response = Response(data)
        if self._more:
            cursor = base64.urlsafe_b64encode(str(self.rows[-1].pk).encode()).decode()
            query = self._request.query_params.copy()
            query["cursor"] = cursor
            address = self._request.build_absolute_uri(f"{self._request.path}?{query.urlencode()}")
            response["Link"] = f'<{address}>; rel="next"'
        return response


def page_parameters() -> list[OpenApiParameter]:
    """The query parameters of a list, for its description in openapi.json."""
    return [
        OpenApiParameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
            description="How many at most; a further page is announced by a Link header with rel=next.",
        ),
        OpenApiParameter("cursor", str, description="From the Link header of the page before."),
    ]
