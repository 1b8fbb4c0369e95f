"""Bare arrays with `limit`, `cursor` and a `Link: …; rel="next"` header (decision 17)."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from core.api.query import int_param
from core.errors import ValidationFailed

MAX_LIMIT = 1000
MAX_NUMBER = 2**63 - 1


def limit_of(request: Request) -> int | None:
    """How many rows are asked for at most; None where the caller leaves it to us."""
    return int_param(request, "limit", minimum=1, maximum=MAX_LIMIT)


def cursor_of(request: Request, *, numbers: int) -> tuple[int, ...] | None:
    """The numbers that `with_next` put into the cursor, None on the first page."""
    text = request.query_params.get("cursor")
    if text is None:
        return None
    try:
        decoded = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
        found = tuple(int(part) for part in decoded.split(".") if len(part) <= 19)
    except (ValueError, binascii.Error):
        found = ()
    if len(found) != numbers or not all(0 <= number <= MAX_NUMBER for number in found):
        raise ValidationFailed("is not a cursor that a Link header gave.", field="cursor")
    return found


def with_next(request: Request, response: Response, *position: int) -> Response:
    """Announce a further page, that begins after `position`: the last row's place in the order, in numbers."""
    text = ".".join(map(str, position))
    query = request.query_params.copy()
    query["cursor"] = base64.urlsafe_b64encode(text.encode()).decode()
    address = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
    response["Link"] = f'<{address}>; rel="next"'
    return response


class Page:
    """One page of a queryset in the order of its ids; later rows never shift earlier pages.

    `default` is the limit where the caller gives none. Newest first, a page begins where the one before ended.
    """

    def __init__(
        self,
        request: Request,
        queryset: QuerySet[Any],
        *,
        newest_first: bool = False,
        default: int | None = None,
    ) -> None:
        self._request = request
        limit, after = limit_of(request) or default, cursor_of(request, numbers=1)
        queryset = queryset.order_by("-pk" if newest_first else "pk")
        if after is not None:
            queryset = queryset.filter(**{"pk__lt" if newest_first else "pk__gt": after[0]})
        rows = list(queryset if limit is None else queryset[: limit + 1])
        self._more = limit is not None and len(rows) > limit
        self.rows: list[Any] = rows[:limit]

    def response(self, data: Any) -> Response:
        response = Response(data)
        return with_next(self._request, response, self.rows[-1].pk) if self._more else response


def page_parameters(*, default: int | None = None) -> list[OpenApiParameter]:
    """The query parameters of a list, for its description in openapi.json."""
    limit: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
    return [
        OpenApiParameter(
            "limit",
            limit if default is None else limit | {"default": default},
            description="How many at most; a further page is announced by a Link header with rel=next.",
        ),
        OpenApiParameter("cursor", str, description="From the Link header of the page before."),
    ]
