"""JSON requests and responses, and no other format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from core.errors import BodyTooLarge


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    # int() of many digits is quadratic. Fields refuse numbers that are merely too large.
    if len(digits) > 40:
        raise ValueError("a number has too many digits")
    return int(digits)


class JsonParser(BaseParser):
    """Strict JSON: no NaN, no lone surrogates, no NUL, no nesting that exhausts the stack."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: Any = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        operation = getattr((parser_context or {}).get("view"), "current_operation", None)
        limit = getattr(operation, "max_bytes", None) or settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise BodyTooLarge(limit=limit)
        try:
            value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_whole)
            # json.loads accepts lone surrogates like "\ud800", which cannot be stored: encoding finds them.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise ParseError(f"The body is not valid JSON: {type(error).__name__}.") from None
        return value


class AlwaysJson(BaseContentNegotiation):
    """Answer in JSON regardless of `Accept`: an error in JSON is more helpful than a bare 406."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        wanted = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == wanted), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return JSONRenderer(), JSONRenderer.media_type
