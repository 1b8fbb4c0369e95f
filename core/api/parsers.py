"""JSON in, JSON out, and nothing else."""

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
    # int() of a long run of digits is quadratic; one that is merely too large is left to its field to refuse.
    if len(digits) > 40:
        raise ValueError("a number has too many digits")
    return int(digits)


class JsonParser(BaseParser):
    """Strict JSON: no NaN, no lone surrogates, no NUL, no nesting that exhausts the stack."""

    media_type = "application/json"
    max_bytes: int | None = None  # for the few bodies that may be larger than all others

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        limit = self.max_bytes or settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise BodyTooLarge(limit=limit)
        try:
            value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_whole)
            # "\ud800" passes json.loads but can be stored nowhere: the encoder finds it wherever it hides.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise ParseError(f"The body is not valid JSON: {type(error).__name__}.") from None
        return value


class AlwaysJson(BaseContentNegotiation):
    """Answers are JSON whatever `Accept` says: an error in a shape nobody asked for beats a bare 406."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        wanted = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == wanted), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return JSONRenderer(), JSONRenderer.media_type
