"""Query parameters: whole numbers, choices and ids, refused with 422 where they are anything else (decision 42)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rest_framework.request import Request

from core.api.converters import PUBLIC_ID
from core.errors import ValidationFailed


def int_param(request: Request, name: str, *, minimum: int, maximum: int) -> int | None:
    """The number, None where the parameter is not given. Digits only: no sign, no blank, no other script's."""
    text = request.query_params.get(name)
    if text is None:
        return None
    # int() of endless digits is slow, so they are counted first.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and minimum <= int(text) <= maximum):
        raise ValidationFailed(f"must be a whole number from {minimum} to {maximum}.", field=name)
    return int(text)


def choice_param(request: Request, name: str, choices: Iterable[str]) -> str | None:
    """The choice, None where the parameter is not given."""
    text = request.query_params.get(name)
    allowed = list(choices)
    if text is not None and text not in allowed:
        raise ValidationFailed(f"must be one of {', '.join(allowed)}.", field=name)
    return text


def id_param(request: Request, name: str) -> str | None:
    """What may be an id of something, None where the parameter is not given."""
    text = request.query_params.get(name)
    if text is not None and not re.fullmatch(PUBLIC_ID, text):
        raise ValidationFailed("is no id.", field=name)
    return text
