"""Requests of agents, on the event loop: those that wait for leases hold no thread. See docs/operate/agents.md.

A message in the broker wakes the requests of agents for which the dispatcher has checks. What an agent says of itself
is written for all agents together.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from granian._granian import RSGIProtocolClosed

from checks.agent_protocol import LEASES, MAX_LEASES, OFFLINE_SEC, POLL_SEC, RESULTS, Lease, Leases, Poll
from config.bodies import BODY_SEC
from config.shares import ThreadLane
from core.addresses import client_of
from core.clock import utc_now
from core.credentials import lookup_of
from core.db import release_outside_transaction
from core.errors import Overloaded, RequestTimeout, TooManyRequests, Unauthorized, Unavailable, ValidationFailed
from core.metrics import Level
from locations.agents import AGENT_PREFIX, Sign, authenticate, is_known, note_signs, require_accepted
from locations.models import Agent
from monitors import handing
from monitors.agents import results
from monitors.agents.leases import Holder, take_leases

if TYPE_CHECKING:
    from wsgiref.types import WSGIEnvironment

    from granian._granian import RSGIHeaders
    from granian._granian import RSGIHTTPProtocol as HTTPProtocol

T = TypeVar("T")

logger = logging.getLogger(__name__)

PATHS = frozenset({LEASES, RESULTS})
FLUSH_SEC = 2.0
RECHECK_SEC = 60.0
"""How often a credential is looked up again, if the notes of signs of life did not. Its deletion is noticed at once."""
BURST, REFILL_SEC = 100, 0.05
"""Requests of an agent that need no wait, and the time until it may send another one."""
FULL_WAIT_SEC = 1.0
"""How long an agent without room waits."""
GONE_SEC = 0.005
"""How long the web server may take to say that a client has gone."""
_SHORT_DIGITS = 3
"""Of the length of a short request."""
_MINUTE = 60.0
_LISTEN_SEC = 1.0
# A broker that is gone without a word is noticed within 15 s: until then nothing wakes the requests that wait.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 2}

WAITING = Level("pulsekeeper_agents_waiting", "Agents whose requests for leases are held open.")


class Known:
    """An agent that this process has identified. Used only from the event loop."""

    def __init__(self, agent: Agent, *, valid_since: datetime) -> None:
        self.holder = Holder(agent.pk, agent.location_id, agent.location.public_id)
        self.valid_since = valid_since
        self.checked_at = self.seen_at = self._credited_at = time.monotonic()
        self._credit = float(BURST)
        self.client = ""
        """The address that last identified itself as the agent."""
        self.is_sending = False
        """Whether `poll` reads a request."""
        self.may_have = True
        """Whether checks may wait for it in the broker."""
        self.wake: asyncio.Event | None = None
        """Of its request that is held open."""
        self.sign: Sign | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def take_credit(self) -> None:
        """Raise TooManyRequests if the agent sends too many."""
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._credited_at) / REFILL_SEC)
        self._credited_at = now
        if self._credit < 1:
            raise TooManyRequests(wait=1.0)
        self._credit -= 1

    def note(self, poll: Poll | None = None, *, done: int = 0, lag_ms: int | None = None, seen: bool = True) -> None:
        """Note what a request says of the agent."""
        sign = self.sign = self.sign or Sign(self.holder.agent_id)
        now = time.monotonic()
        if seen:
            self.seen_at, sign.at = now, utc_now()
        if poll is not None:
            sign.version, sign.protocol, sign.network_down = poll.version, poll.protocol, poll.network_down
        if done:
            self._recent.append((now, done))
        while self._recent and self._recent[0][0] < now - _MINUTE:
            self._recent.popleft()
        sign.checks += done
        sign.checks_per_min = sum(count for _, count in self._recent)
        sign.lag_ms = lag_ms if lag_ms is not None else sign.lag_ms


class Agents:
    """All agents that ask this process. Used only from the event loop, except for what runs in the lane."""

    def __init__(self) -> None:
        self._lane = ThreadLane("agents", threads=2, at_once=1, queue=1_024, counts=None)
        self._known: dict[str, Known] = {}
        self._by_key: dict[int, Known] = {}
        self._closing = threading.Event()
        self._flush: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        WAITING.follow(lambda: sum(known.wake is not None for known in self._known.values()))
        threading.Thread(target=self._listen, args=(loop,), name="agents-listener", daemon=True).start()
        self._tick(loop)

    def close(self) -> None:
        """Answer all requests that wait: a process that stops waits for them."""
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()
        for known in self._known.values():
            if known.wake is not None:
                known.wake.set()

    def end(self) -> None:
        self._lane.close()

    async def answer(self, environ: WSGIEnvironment, exchange: HTTPProtocol, body: bytes) -> bytes:
        """Answer a request. Raises ApiError, or ConnectionError if the client disconnected."""
        client = client_of(environ).network
        known = await _available(self._identify(client, environ.get("HTTP_AUTHORIZATION", "")))
        known.client = client
        known.take_credit()
        if environ["PATH_INFO"] == LEASES:
            return await _available(self._lease(known, exchange, body))
        done, lag_ms = await _available(self._lane.run(client, _store, known.holder, body, known.valid_since))
        known.note(done=done, lag_ms=lag_ms)
        return b"{}"

    def find(self, headers: RSGIHeaders) -> Known | None:
        """Return the agent for `poll`: one that was identified, whose request is short and not one of several."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        known = self._known.get(credential) if scheme == "Bearer" else None
        if known is None or known.is_sending or not _is_recent(known) or "transfer-encoding" in headers:
            return None
        return known if 0 < len(headers.get("content-length", "")) <= _SHORT_DIGITS else None

    async def poll(self, known: Known, exchange: HTTPProtocol) -> bytes:
        """Answer a request for leases as `answer`, for less: most requests of a server with many agents are these."""
        known.take_credit()
        known.is_sending = True
        try:
            async with asyncio.timeout(BODY_SEC):
                body = await exchange()
        except TimeoutError:
            raise RequestTimeout from None
        except RSGIProtocolClosed as error:
            raise ConnectionError from error
        finally:
            known.is_sending = False
        return await _available(self._lease(known, exchange, body))

    async def _lease(self, known: Known, exchange: HTTPProtocol, body: bytes) -> bytes:
        try:
            poll = msgspec.json.decode(body, type=Poll)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValidationFailed(f"the body is not valid: {error}") from None
        try:
            require_accepted(poll.protocol)
        except Exception:
            known.note(poll, seen=False)
            raise
        known.note(poll)
        if known.wake is not None:
            known.wake.set()  # an earlier request, whose agent has probably gone
        wake = known.wake = asyncio.Event()
        room = 0 if poll.network_down else min(poll.room, MAX_LEASES)
        ends_at = time.monotonic() + min(poll.wait_sec, POLL_SEC if room else FULL_WAIT_SEC)
        has_waited = False
        try:
            while known.wake is wake:
                if room and known.may_have:
                    if has_waited and await _has_gone(exchange):
                        raise ConnectionError
                    known.may_have = False
                    leases, is_full = await self._lane.run(known.client, _take, known.holder, room)
                    known.may_have |= is_full  # a message may have come meanwhile
                    if leases:
                        return msgspec.json.encode(Leases(leases))
                    continue
                left = ends_at - time.monotonic()
                if left <= 0 or self._closing.is_set():
                    break
                wake.clear()
                await _wait(wake, left)
                has_waited = True
            return msgspec.json.encode(Leases([]))
        finally:
            if known.wake is wake:
                known.wake = None
                known.seen_at = time.monotonic()

    async def _identify(self, client: str, header: str) -> Known:
        """Return the agent of a credential. Raises Unauthorized."""
        scheme, _, credential = header.partition(" ")
        credential = credential.strip()
        known = self._known.get(credential)
        if scheme.lower() != "bearer" or (known is None and lookup_of(credential, prefix=AGENT_PREFIX) is None):
            raise Unauthorized
        if known is not None and _is_recent(known):
            return known
        agent = await self._lane.run(client, _find, credential)
        if agent is None:
            self._forget(credential)
            raise Unauthorized
        seen_at, offline_since = agent.last_seen_at, utc_now() - timedelta(seconds=OFFLINE_SEC)
        known = self._known.get(credential)
        if known is None or seen_at is None or seen_at < offline_since:
            was_away = seen_at is None or seen_at < offline_since
            known = Known(agent, valid_since=utc_now() if was_away else offline_since)
            self._known[credential] = self._by_key[agent.pk] = known
        known.checked_at = known.seen_at = time.monotonic()
        return known

    def _forget(self, credential: str) -> None:
        known = self._known.pop(credential, None)
        if known is not None:
            self._by_key.pop(known.holder.agent_id, None)
            if known.wake is not None:
                known.wake.set()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(FLUSH_SEC, self._tick, loop)
        signs = [known.sign for known in self._known.values() if known.sign is not None]
        if signs and (self._flush is None or self._flush.done()):
            for known in self._known.values():
                known.sign = None
            self._flush = loop.create_task(self._write(signs))
        silent_since = time.monotonic() - RECHECK_SEC
        for credential in [one for one, known in self._known.items() if known.seen_at < silent_since]:
            self._forget(credential)

    async def _write(self, signs: list[Sign]) -> None:
        now = time.monotonic()
        try:
            valid = await self._lane.run("agents", _note, signs)
        except (DatabaseError, InterfaceError, Overloaded) as error:
            logger.warning("signs of life of %d agents are lost: %s", len(signs), error)
            return
        for known in filter(None, (self._by_key.get(sign.agent_id) for sign in signs)):
            # The next request of another one looks it up, and is refused.
            known.checked_at = now if known.holder.agent_id in valid else 0.0

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake requests for which there is something, in a separate thread."""
        while not self._closing.is_set():
            try:
                broker = redis.Redis.from_url(
                    str(settings.REDIS_URL),
                    socket_connect_timeout=3,
                    socket_keepalive=True,
                    socket_keepalive_options=_KEEPALIVE,
                )
                messages: Any = broker.pubsub()  # type: ignore[no-untyped-call]
                messages.subscribe(handing.CHANNEL)
                # What was said before is not known.
                loop.call_soon_threadsafe(self._wake, None)
                while not self._closing.is_set():
                    message = messages.get_message(ignore_subscribe_messages=True, timeout=_LISTEN_SEC)
                    if message is not None:
                        loop.call_soon_threadsafe(self._wake, msgspec.json.decode(message["data"], type=list[int]))
            except (redis.RedisError, msgspec.DecodeError) as error:
                logger.debug("messages for agents are not received: %s", error)  # /readyz says that the broker is away
                self._closing.wait(_LISTEN_SEC)
            except RuntimeError:  # the loop has ended
                return

    def _wake(self, keys: Iterable[int] | None) -> None:
        """Wake the requests of these agents. A negative key is of one that was revoked; None stands for all."""
        for key in [*self._by_key] if keys is None else keys:
            known = self._by_key.get(abs(key))
            if known is None:
                continue
            known.may_have = True
            if key < 0 or keys is None:
                known.checked_at = 0.0
            if key < 0:
                self._known = {one: each for one, each in self._known.items() if each is not known}
                known.may_have = False
                wake, known.wake = known.wake, None
                if wake is not None:
                    wake.set()
            elif known.wake is not None:
                known.wake.set()


def _is_recent(known: Known) -> bool:
    now = time.monotonic()
    return now - known.checked_at < RECHECK_SEC and now - known.seen_at < OFFLINE_SEC


async def _available(work: Awaitable[T]) -> T:
    """Return what it returns. Raises Unavailable if PostgreSQL or the broker is away."""
    try:
        return await work
    except (DatabaseError, InterfaceError, redis.RedisError) as error:
        logger.warning("a request of an agent waits for PostgreSQL or the broker: %s", error)
        raise Unavailable from error


async def _has_gone(exchange: HTTPProtocol) -> bool:
    """Return whether the client has disconnected: it takes the event loop less to ask once than to be notified."""
    gone = asyncio.ensure_future(exchange.client_disconnect())
    try:
        await asyncio.wait({gone}, timeout=GONE_SEC)
        return gone.done()
    finally:
        gone.cancel()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, but not longer than this."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


def _find(credential: str) -> Agent | None:
    try:
        return authenticate(credential)
    finally:
        release_outside_transaction()


def _take(holder: Holder, room: int) -> tuple[list[Lease], bool]:
    """Return leases, and whether there may be more. Raises Unauthorized for an agent that was just revoked."""
    try:
        if not is_known(holder.agent_id):
            raise Unauthorized
        return take_leases(holder, room, now=utc_now())
    finally:
        release_outside_transaction()


def _store(holder: Holder, body: bytes, valid_since: datetime) -> tuple[int, int | None]:
    """Store results. Return how many they were, and the longest delay of one."""
    try:
        if not is_known(holder.agent_id):
            raise Unauthorized
        found = results.decode(body)
        results.store(holder, found, valid_since=valid_since, now=utc_now())
        lags = [max(0, each.took_ms - (each.latency_ms or 0)) for each in found]
        return len(found), max(lags, default=None)
    finally:
        release_outside_transaction()


def _note(signs: list[Sign]) -> set[int]:
    try:
        return note_signs(signs)
    finally:
        release_outside_transaction()
