"""`<id:…>` in a path: what a public id can be made of. Anything else (a NUL byte, say) is an unknown address."""

from __future__ import annotations

import re

from django.urls import register_converter
from django.urls.converters import StringConverter

PUBLIC_ID = "[0-9A-Za-z_-]{1,64}"


def is_public_id(text: str) -> bool:
    """Return whether the text has the form of a public id. Values in forms are as arbitrary as those in paths."""
    return re.fullmatch(PUBLIC_ID, text) is not None


class PublicId(StringConverter):
    regex = PUBLIC_ID


register_converter(PublicId, "id")
