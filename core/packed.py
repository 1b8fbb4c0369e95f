"""Answers that are made once and sent many times: bytes, compressed in advance, with an ETag."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified


@dataclass(frozen=True, slots=True)
class Packed:
    """`gzipped` is empty if it would not be smaller."""

    body: bytes
    gzipped: bytes
    etag: str
    content_type: str


def pack(body: bytes, content_type: str) -> Packed:
    packed = gzip.compress(body, compresslevel=6, mtime=0)
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'
    return Packed(body, packed if len(packed) < len(body) else b"", etag, content_type)


def respond(request: HttpRequest, packed: Packed) -> HttpResponse:
    """Return the bytes, compressed if the client accepts gzip, or 304 if the client has them."""
    if packed.etag in request.META.get("HTTP_IF_NONE_MATCH", ""):
        response: HttpResponse = HttpResponseNotModified()
    else:
        is_gzipped = bool(packed.gzipped) and takes_gzip(request.META.get("HTTP_ACCEPT_ENCODING", ""))
        body = packed.gzipped if is_gzipped else packed.body
        response = HttpResponse(b"" if request.method == "HEAD" else body, packed.content_type)
        response["Content-Length"] = str(len(body))
        if is_gzipped:
            response["Content-Encoding"] = "gzip"
    response["ETag"] = packed.etag
    response["Vary"] = "Accept-Encoding"
    return response


def takes_gzip(accepted: str) -> bool:
    for coding in accepted.split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
