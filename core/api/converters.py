"""`<id:…>` in a path: what a public id can be made of. Anything else (a NUL byte, say) is an unknown address."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import StringConverter

PUBLIC_ID = "[0-9A-Za-z_-]{1,64}"


class PublicId(StringConverter):
    regex = PUBLIC_ID


register_converter(PublicId, "id")
