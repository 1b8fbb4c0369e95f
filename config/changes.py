"""Streams of changes to open pages, on the event loop: server-sent events without data. See docs/adr/0047.

After an event a page fetches what it shows, as it does by itself from time to time. One query a second serves all
streams of the process, and no stream has a thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter as Count
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import DatabaseError, InterfaceError

from config.shares import Memory, ThreadLane, count_refusal
from core.db import release_outside_transaction
from core.errors import Overloaded, TooManyRequests
from core.metrics import Level
from dashboard.changes import Feed, Follower, Place, still_followers

if TYPE_CHECKING:
    from granian._granian import RSGIHTTPProtocol as HTTPProtocol
    from granian._granian import RSGIHTTPStreamTransport

logger = logging.getLogger(__name__)

EVERY_SEC = 1.0
RECHECK_SEC = 30.0
"""How often sessions and memberships are checked again."""
SILENT_SEC = 20.0
"""After this time without an event, a stream gets a comment, so that proxies do not close it as idle."""
STREAM_BYTES, MEMORY_BYTES = 32 * 1024, 32 * 1024 * 1024
"""Memory of a stream, for the connection, the request and its task; and of all streams."""
STREAMS_OF_ACCOUNT, STREAMS_OF_SESSION = 32, 4
"""Pages of a browser share one stream if they can. With more, they would use up its six connections to a host."""
MOST_AT_ONCE = 25
"""Events of one look. Each makes a page fetch its list, so with more the others wait for the next look."""
BURST, REFILL_SEC = 5, 10.0
"""Events of a stream that need no wait, and the time until it may have another one."""
_RETRY_MS = (1_000, 10_000)
"""When a browser asks again after the end of its stream: at random, so that not all do at once after a restart."""
_CHANGED, _COMMENT = b"data: changed\n\n", b":\n\n"
_OWN = "changes"  # among the clients of the lane

STREAMS = Level("pulsekeeper_change_streams", "Browsers that follow changes.")


class Stream:
    """One browser. Used only from the event loop."""

    __slots__ = ("_credit", "_credited_at", "_transport", "ended", "follower", "sent_at")

    def __init__(self, transport: RSGIHTTPStreamTransport, follower: Follower) -> None:
        self.follower = follower
        self.ended = asyncio.get_running_loop().create_future()
        self.sent_at = self._credited_at = time.monotonic()
        self._credit = float(BURST)
        self._transport: RSGIHTTPStreamTransport | None = transport

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        self._transport = None  # granian ends the response when the last reference is gone

    def take_credit(self) -> bool:
        """Return whether an event may be sent now."""
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._credited_at) / REFILL_SEC)
        self._credited_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    async def send(self, data: bytes) -> None:
        if self._transport is None:
            return
        self.sent_at = time.monotonic()
        try:
            await self._transport.send_bytes(data)
        except RuntimeError:  # granian's, without a specific base class: the client disconnected
            self.end()


class Streams:
    """All streams of the process. Used only from the event loop, except for what runs in the lane."""

    def __init__(self, lane: ThreadLane) -> None:
        self._lane = lane
        self._memory = Memory("changes", size=MEMORY_BYTES, part=0.25)
        self._of: Count[int | str] = Count()
        """Streams by account and by session."""
        self._open: dict[Stream, None] = {}
        self._due: dict[Stream, None] = {}
        """Streams with an unsent change, in the order of the changes."""
        self._feed: Feed | None = None
        self._checked_at = 0.0
        self._look: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        STREAMS.follow(lambda: len(self._open))
        self._tick(loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(EVERY_SEC, self._tick, loop)
        if self._look is None or self._look.done():
            if self._open:
                self._look = loop.create_task(self._look_for_changes())
            else:
                self._feed = None

    def close(self) -> None:
        """End all streams: a process that stops waits for its requests."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in self._open:
            stream.end()

    @contextmanager
    def place(self, client: str, follower: Follower) -> Iterator[None]:
        """Reserve a place for a stream. Raises TooManyRequests, or Overloaded."""
        if self._is_closed:
            raise Overloaded
        account, session = own = (follower.user_id, follower.session_key)
        if self._of[account] >= STREAMS_OF_ACCOUNT or self._of[session] >= STREAMS_OF_SESSION:
            count_refusal("changes", is_own=True)
            raise TooManyRequests(wait=RECHECK_SEC)
        with self._memory.taken(client, STREAM_BYTES):
            self._of.update(own)
            try:
                yield
            finally:
                self._of -= Count[int | str](own)  # drops those without streams

    async def serve(self, exchange: HTTPProtocol, headers: list[tuple[str, str]], follower: Follower) -> None:
        """Keep a stream open until its client, its session or this process ends."""
        stream = Stream(exchange.response_stream(200, headers), follower)
        gone = asyncio.ensure_future(exchange.client_disconnect())
        gone.add_done_callback(lambda _: stream.end())
        if self._feed is None:
            self._feed, self._checked_at = Feed(follower.since), time.monotonic()
        self._open[stream] = None
        try:
            await stream.send(b"retry: %d\n\n" % random.randint(*_RETRY_MS))  # noqa: S311
            await stream.ended
        finally:
            stream.end()
            gone.cancel()
            del self._open[stream]
            self._due.pop(stream, None)

    async def _look_for_changes(self) -> None:
        assert self._feed is not None
        streams, followers = [*self._open], None
        if time.monotonic() - self._checked_at > RECHECK_SEC:
            followers = [stream.follower for stream in streams]
        try:
            places, valid = await self._lane.run(_OWN, _ask, self._feed, followers)
        except (DatabaseError, InterfaceError, Overloaded) as error:
            logger.debug("changes were not read: %s", error)  # pages poll until this works again
            return
        if valid is not None:
            self._checked_at = time.monotonic()
            for stream in streams:
                if found := valid.get(stream.follower.session_key):
                    stream.follower = found
                else:
                    stream.end()
        for stream in self._open:
            if not stream.ended.done() and (places is None or not places.isdisjoint(stream.follower.places)):
                self._due[stream] = None
        await self._send()

    async def _send(self) -> None:
        sent = 0
        for stream in [*self._due]:
            if sent == MOST_AT_ONCE:
                break
            if stream not in self._due:  # its client disconnected since
                continue
            del self._due[stream]
            if stream.take_credit():
                await stream.send(_CHANGED)
                sent += 1
            else:  # others that may have an event go first
                self._due[stream] = None
        silent_since = time.monotonic() - SILENT_SEC
        for stream in [*self._open]:
            if stream.sent_at < silent_since:
                await stream.send(_COMMENT)


def _ask(feed: Feed, followers: Sequence[Follower] | None) -> tuple[set[Place] | None, dict[str, Follower] | None]:
    """Return where something changed, and who may still follow if `followers` are given. Runs in a thread."""
    try:
        valid = None if followers is None else still_followers(followers)
        return feed.read(), valid
    finally:
        release_outside_transaction()
