"""Query parameters and pages of lists. Invalid values are refused with 422."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import prefetch_related_objects
from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from core.api.converters import PUBLIC_ID, is_public_id
from core.clock import EPOCH, MAX_MS, from_ms
from core.db import release_connection
from core.errors import ValidationFailed
from core.waiting import limit_waiting

MAX_LIMIT = 1000
MAX_NUMBER = 2**63 - 1
HISTORY_LIMIT = 100
"""The default length of a page of something that grows without bounds."""
HEAVY_BYTES = 256 * 1024
"""How much of the rows of a list with a `weight` is in memory at the same time; more is streamed."""
LONG_LISTS = 2
"""How many streamed lists of an account are made at the same time."""
MAX_PAGE_CHARS = 200_000
"""How much text a page may have, which is up to six times as long in JSON, and takes four bytes a character before."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter. `read` returns its value, or None if the request does not have it."""

    name: str
    help: str

    def read(self, request: Request) -> Any:
        text = request.query_params.get(self.name)
        return None if text is None else self.parse(text)

    def parse(self, text: str) -> Any:
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def describe(self) -> OpenApiParameter:
        return OpenApiParameter(self.name, self.schema, description=self.help)


@dataclass(frozen=True, slots=True)
class IntParam(Param):
    """A whole number in ASCII digits: no sign, no blank, no other script."""

    minimum: int
    maximum: int
    default: int | None = None

    def read(self, request: Request) -> int | None:
        number: int | None = Param.read(self, request)
        return self.default if number is None else number

    def parse(self, text: str) -> int:
        # int() of endless digits is slow, so they are counted first.
        is_number = text.isascii() and text.isdigit() and len(text) <= 20
        if not (is_number and self.minimum <= int(text) <= self.maximum):
            raise ValidationFailed(f"must be a whole number from {self.minimum} to {self.maximum}.", field=self.name)
        return int(text)

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        return schema if self.default is None else schema | {"default": self.default}


@dataclass(frozen=True, slots=True)
class TimeParam(Param):
    """Epoch milliseconds."""

    maximum: int = MAX_MS

    def parse(self, text: str) -> datetime:
        return from_ms(IntParam(self.name, "", 0, self.maximum).parse(text))

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "format": "int64", "minimum": 0, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class ChoiceParam(Param):
    choices: Collection[str]

    def parse(self, text: str) -> str:
        if text not in self.choices:
            raise ValidationFailed(f"must be one of {', '.join(self.choices)}.", field=self.name)
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class TextParam(Param):
    max_length: int

    def parse(self, text: str) -> str:
        if len(text) > self.max_length:
            raise ValidationFailed(f"cannot have more than {self.max_length} characters.", field=self.name)
        if "\0" in text:  # which PostgreSQL does not compare
            raise ValidationFailed("cannot contain null characters.", field=self.name)
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.max_length}


@dataclass(frozen=True, slots=True)
class ListParam(Param):
    """A parameter that may repeat. `read` returns each of its values once, in the given order."""

    item: Param
    most: int = 20

    def read(self, request: Request) -> tuple[Any, ...]:
        given = request.query_params.getlist(self.name)
        if len(given) > self.most:
            raise ValidationFailed(f"can be given at most {self.most} times.", field=self.name)
        return tuple(map(self.item.parse, dict.fromkeys(given)))

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class IdParam(Param):
    def parse(self, text: str) -> str:
        if not is_public_id(text):
            raise ValidationFailed("is not a valid id.", field=self.name)
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{PUBLIC_ID}$"}


@dataclass(frozen=True, slots=True)
class Pages:
    """How a list is divided into pages: bare arrays with `limit`, `cursor` and a `Link: …; rel="next"` header.

    By default in the order of primary keys, so that later rows never shift earlier pages. `fetch` returns a queryset.
    `default` is the limit if the request gives none; None returns all rows.
    """

    newest_first: bool = False
    default: int | None = None
    weight: Any = None
    """An expression for the length of a row in characters, for lists whose rows may not all fit into memory."""
    few: int = MAX_LIMIT
    """How many rows, without prefetched ones, fit into memory."""

    def parameters(self) -> list[OpenApiParameter]:
        cursor = OpenApiParameter("cursor", str, description="From the Link header of the previous page.")
        return [self._limit.describe(), cursor]

    def respond(
        self, request: Request, fetch: Callable[..., Any], serialize: Callable[[Sequence[Any]], Any]
    ) -> HttpResponseBase:
        """Raises ValidationFailed for an invalid limit or cursor, and TooManyRequests for too many long lists."""
        queryset = fetch().order_by("-pk" if self.newest_first else "pk")
        limit, after = self._limit.read(request), _read_cursor(request, numbers=1)
        if after is not None:
            queryset = queryset.filter(**{"pk__lt" if self.newest_first else "pk__gt": after[0]})
        if self.weight is not None:
            return self._respond_weighed(request, queryset, limit, serialize)
        rows = list(queryset if limit is None else queryset[: limit + 1])
        position = (rows[limit - 1].pk,) if limit is not None and len(rows) > limit else None
        return self._respond(request, serialize(rows[:limit]), next_from=position)

    def _respond_weighed(
        self, request: Request, queryset: Any, limit: int | None, serialize: Callable[..., Any]
    ) -> HttpResponseBase:
        """Return a short and light list directly. Otherwise compute the weight of all rows, and stream a heavy list."""
        weighed = queryset.annotate(list_weight=self.weight)
        few = self.few if limit is None else min(limit, self.few)
        rows = list(weighed.prefetch_related(None)[: few + 1])
        if (len(rows) <= few or few == limit) and sum(row.list_weight for row in rows) <= HEAVY_BYTES:
            prefetch_related_objects(rows, *queryset._prefetch_related_lookups)
            return self._respond(request, serialize(rows[:few]), next_from=(rows[few - 1].pk,) if rows[few:] else None)
        del rows
        found = weighed.prefetch_related(None).values_list("pk", "list_weight")
        weights = list(found if limit is None else found[: limit + 1])
        position = (weights[limit - 1][0],) if limit is not None and len(weights) > limit else None
        batches = list(_batches(weights[:limit]))
        if len(batches) == 1:
            return self._respond(request, serialize(list(queryset.filter(pk__in=batches[0]))), next_from=position)
        return self._stream(request, queryset, batches, serialize, next_from=position)

    def _stream(
        self,
        request: Request,
        queryset: Any,
        batches: Iterable[list[int]],
        serialize: Callable[..., Any],
        *,
        next_from: tuple[int] | None,
    ) -> HttpResponseBase:
        caller: Any = request.user  # a Caller of `projects.access`, which is a higher floor
        with take_place(f"lists {caller.account}", most=LONG_LISTS) as place:
            pieces = json_pieces(serialize(list(queryset.filter(pk__in=keys))) for keys in batches)
            response = stream(pieces, place)
        self._announce(request, response, next_from=next_from)
        return response

    @property
    def _limit(self) -> IntParam:
        text = "Page size. If there are more items, a Link header with rel=next has the URL of the next page."
        return IntParam("limit", text, 1, MAX_LIMIT, self.default)

    def _respond(self, request: Request, page: Any, *, next_from: tuple[int, ...] | None) -> Response:
        response = Response(page)
        self._announce(request, response, next_from=next_from)
        return response

    def _announce(self, request: Request, response: HttpResponseBase, *, next_from: tuple[int, ...] | None) -> None:
        """Add a Link header to the next page, if there is one."""
        if next_from is not None:
            query = request.query_params.copy()
            query["cursor"] = base64.urlsafe_b64encode(".".join(map(str, next_from)).encode()).decode()
            address = request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
            response["Link"] = f'<{address}>; rel="next"'


def _batches(weights: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Divide keys with their weights into batches that fit into memory."""
    batch: list[int] = []
    room = HEAVY_BYTES
    for key, weight in weights:
        if batch and weight > room:
            yield batch
            batch, room = [], HEAVY_BYTES
        batch.append(key)
        room -= weight
    yield batch


def take_place(account: str, *, most: int, kind: str = "") -> ExitStack:
    """Return a place of `limit_waiting` that another thread may give back: the one that sends the last part."""
    context, place, limit = copy_context(), ExitStack(), limit_waiting(account, most=most, kind=kind)
    context.run(limit.__enter__)
    place.callback(context.run, limit.__exit__, None, None, None)
    return place


def stream(
    pieces: Iterable[bytes], place: ExitStack, *, content_type: str = JSONRenderer.media_type
) -> StreamingHttpResponse:
    """Return a response of these pieces. The account keeps `place` until its client has the last one."""
    response = StreamingHttpResponse(pieces, content_type=content_type)
    response._resource_closers.append(place.pop_all().close)  # type: ignore[attr-defined]
    return response


def json_pieces(batches: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield a JSON array of the objects in all batches. The connection is in the pool while a client reads."""
    renderer, before = JSONRenderer(), b"["
    for batch in batches:
        part = b"".join(piece for row in batch for piece in (b",", renderer.render(row)))
        if not connection.in_atomic_block:  # which only tests are in
            release_connection()
        if part:
            yield before + part[1:]
            before = b","
    yield b"]" if before == b"," else b"[]"


HISTORY = Pages(newest_first=True, default=HISTORY_LIMIT)


@dataclass(frozen=True, slots=True)
class TimePages(Pages):
    """Newest first by a time and a number of each row. `fetch` takes `limit` and `before`, the position of the last
    row of the previous page, and returns a list.

    `chars` returns the length of a row's long texts, if it has any: a page ends before its row that exceeds
    MAX_PAGE_CHARS.
    """

    default: int | None = HISTORY_LIMIT
    time: str = "created_at"
    number: str = "pk"
    chars: Callable[[Any], int] | None = None

    def respond(
        self, request: Request, fetch: Callable[..., Any], serialize: Callable[[Sequence[Any]], Any]
    ) -> Response:
        limit, before = self._limit.read(request) or HISTORY_LIMIT, self._before(request)
        rows, has_more = self._read(fetch, limit, before)
        return self._respond(request, serialize(rows), next_from=self._position(rows[-1]) if has_more else None)

    def _read(
        self, fetch: Callable[..., Any], limit: int, before: tuple[datetime, int] | None
    ) -> tuple[list[Any], bool]:
        """Return the rows of a page, and whether there are more. Rows with a long text are read in small batches."""
        rows: list[Any] = []
        chars = 0
        while True:
            wanted = limit + 1 - len(rows)
            if self.chars:
                wanted = min(wanted, HISTORY_LIMIT + 1)
            batch = fetch(limit=wanted, before=before)
            for row in batch:
                chars += self.chars(row) if self.chars else 0
                if len(rows) == limit or (rows and chars > MAX_PAGE_CHARS):
                    return rows, True
                rows.append(row)
            if len(batch) < wanted:
                return rows, False
            before = getattr(rows[-1], self.time), getattr(rows[-1], self.number)

    def _before(self, request: Request) -> tuple[datetime, int] | None:
        found = _read_cursor(request, numbers=2)
        if found is None:
            return None
        if found[0] > MAX_MS * 1000:
            raise _invalid_cursor()
        return EPOCH + found[0] * _MICROSECOND, found[1]

    def _position(self, row: Any) -> tuple[int, int]:
        return (getattr(row, self.time) - EPOCH) // _MICROSECOND, getattr(row, self.number)


def _read_cursor(request: Request, *, numbers: int) -> tuple[int, ...] | None:
    """Return the numbers of the cursor, or None for the first page."""
    text = request.query_params.get("cursor")
    if text is None:
        return None
    try:
        decoded = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode("ascii")
        found = tuple(int(part) for part in decoded.split(".") if len(part) <= 19)
    except (ValueError, binascii.Error):
        found = ()
    if len(found) != numbers or not all(0 <= number <= MAX_NUMBER for number in found):
        raise _invalid_cursor()
    return found


def _invalid_cursor() -> ValidationFailed:
    return ValidationFailed("is not a cursor that a Link header gave.", field="cursor")
