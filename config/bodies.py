"""Read the bodies of requests, with limits of size, time, number and memory for each client."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from django.conf import settings

from config.shares import Memory, count_refusal
from core.addresses import client_of
from core.errors import BodyTooLarge, Overloaded, RequestTimeout, TooManyRequests
from monitors.heartbeats.incoming import MAX_BODY_BYTES

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from granian._granian import RSGIHTTPProtocol as HTTPProtocol

BODY_SEC = 20.0
"""Timeout of reading a body."""
BODIES_OF_CLIENT = 32
"""Limit on bodies of one client that are read at the same time."""
ANONYMOUS_BYTES = 64 * 1024
"""Limit on bodies of requests without a credential. Sign-in, sign-up and the forms of status pages are far smaller."""
WEIGHT = 4
"""Memory that a request uses for each byte of its body: granian's copy, ours, and what Django parses."""
MEMORY_BYTES, ANONYMOUS_MEMORY_BYTES = 64 * 1024 * 1024, 16 * 1024 * 1024
"""All bodies of requests that are not answered yet, by their weight."""
FREE_PARTS, PART_BYTES = 200, 512
"""A body arrives in parts, chunks or packets, and each takes the event loop a tenth of a millisecond. After the first
FREE_PARTS, parts must have PART_BYTES on average."""
_STEP = 16 * 1024
_CREDENTIAL = re.compile(r"bearer +(ses|svc|agk)_[a-z2-7]{68} *", re.IGNORECASE)


class Bodies:
    """The bodies of all requests of the process. Used only from the event loop."""

    def __init__(self) -> None:
        self.reading: Counter[str] = Counter()
        self.memory = Memory("bodies", size=MEMORY_BYTES, part=0.25)
        self.anonymous = Memory("anonymous_bodies", size=ANONYMOUS_MEMORY_BYTES, part=0.25)


class Body:
    """The body of one request, and the memory that the request occupies until its response is sent."""

    __slots__ = ("_all", "_client", "_memory", "_taken", "content")

    def __init__(self, bodies: Bodies) -> None:
        self.content = b""
        self._all = bodies
        self._taken = 0
        self._client = ""
        self._memory = bodies.anonymous

    def release(self) -> None:
        if self._taken:
            self._memory.give_back(self._client, self._taken)
            self._taken = 0

    async def read(self, environ: WSGIEnvironment, exchange: HTTPProtocol) -> None:
        """Read the whole body. Raises BodyTooLarge, RequestTimeout, TooManyRequests, Overloaded or ConnectionError."""
        limit = settings.MAX_BODY_BYTES
        if _may_be_known(environ):
            self._memory = self._all.memory
        else:
            limit = min(limit, ANONYMOUS_BYTES)
        length = environ.get("CONTENT_LENGTH")
        if length is not None and int(length) > limit:
            raise BodyTooLarge(limit=limit)
        await self._receive(environ, exchange, length=length and int(length), limit=limit)
        if len(self.content) > limit:
            raise BodyTooLarge(limit=limit)
        if length is not None and len(self.content) < int(length):
            raise ConnectionError

    async def read_beginning(self, environ: WSGIEnvironment, exchange: HTTPProtocol) -> None:
        """Read the beginning of a signal's body, or less if it is late or memory is short: the signal counts."""
        if environ["REQUEST_METHOD"] == "POST":
            with suppress(BodyTooLarge, RequestTimeout, TooManyRequests, Overloaded):
                length = min(int(environ.get("CONTENT_LENGTH", _STEP)), MAX_BODY_BYTES)
                await self._receive(environ, exchange, length=length, limit=MAX_BODY_BYTES - 1)
            self.content = self.content[:MAX_BODY_BYTES]

    async def _receive(
        self, environ: WSGIEnvironment, exchange: HTTPProtocol, *, length: int | None, limit: int
    ) -> None:
        """Read the body until it ends or exceeds the limit. Memory for the declared length is taken before that.

        Raises BodyTooLarge for too many parts, RequestTimeout, TooManyRequests or Overloaded.
        """
        self._client = client_of(environ).network
        reading = self._all.reading
        if reading[self._client] >= BODIES_OF_CLIENT:
            count_refusal(self._memory.name, is_own=True)
            raise TooManyRequests(wait=BODY_SEC)
        self._take(length or _STEP)
        reading[self._client] += 1
        body = bytearray()
        parts = 0
        try:
            async with asyncio.timeout(BODY_SEC):
                async for part in exchange:
                    body += part
                    parts += 1
                    if parts > FREE_PARTS + len(body) // PART_BYTES:
                        raise BodyTooLarge("The body has too many small chunks.", limit=limit)
                    if len(body) > limit:
                        break
                    if len(body) * WEIGHT > self._taken:
                        self._take(_STEP)
        except TimeoutError:
            raise RequestTimeout from None
        finally:
            self.content = bytes(body)
            reading[self._client] -= 1
            if not reading[self._client]:
                del reading[self._client]

    def _take(self, size: int) -> None:
        self._memory.take(self._client, size * WEIGHT)
        self._taken += size * WEIGHT


def has_body(environ: WSGIEnvironment) -> bool:
    """Return whether the request has a body. Remove the header of a chunked one, whose length will be known."""
    is_chunked = environ.pop("HTTP_TRANSFER_ENCODING", None) is not None
    return is_chunked or environ.get("CONTENT_LENGTH", "0") != "0"


def _may_be_known(environ: WSGIEnvironment) -> bool:
    """Return whether the request has a credential that could be valid."""
    if _CREDENTIAL.fullmatch(environ.get("HTTP_AUTHORIZATION", "")):
        return True
    return f"{settings.SESSION_COOKIE_NAME}=" in environ.get("HTTP_COOKIE", "")
