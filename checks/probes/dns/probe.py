"""The dns protocol: one question by UDP, repeated while no answer comes, and by TCP after a truncated answer."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import Any, NamedTuple

import dns.flags
from dns.rcode import FORMERR, NOERROR, NOTIMP, NXDOMAIN

from checks.evidence import BODY_CHARS, Evidence, Mask, shown_body
from checks.probes.dns.message import Reply, describe, make_query, match_reply, question
from checks.probes.dns.spec import DnsSpec
from checks.probes.dns.verdict import find_failure
from checks.probes.faults import explain_errno
from checks.probes.liveness import Wait
from checks.probes.loop import BlockedTarget, Loop, Probe
from checks.probes.resolver import Server
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault, timed_out

_MAX_MESSAGE = 65_535
_DATAGRAMS_PER_TURN = 8
# The socket takes datagrams of the server's address and port alone, and a forger has to guess ours, too.
_MAX_IGNORED = 1_000
# The wait before the second try, each further one is twice as long; and its part of a short deadline.
_TRY_SECONDS, _TRY_SHARE = 1.0, 1 / 8
_OTHER_ANSWER = Failure(
    ReasonCode.DNS_FAILURE, "The name server's answer by TCP does not match the question; check what is on that port."
)
_CUT = Failure(
    ReasonCode.PARTIAL_RESPONSE, "The name server ended the connection before its answer was complete; check it."
)
_CLOSED = Failure(
    ReasonCode.CONNECTION_FAILURE,
    "The name server cut its answer short by UDP, and ended the TCP connection without one; check its TCP port.",
)
_NO_MASK = Mask(())


class _Answer(NamedTuple):
    reply: Reply
    server: Server
    protocol: str


class DnsProbe(Probe[DnsSpec]):
    """One question. Each try has its own socket, so that its port is random, and keeps it: the answer may be late."""

    __slots__ = (
        *("_answer", "_asked", "_datagrams", "_edns", "_ignored", "_incoming"),
        *("_server", "_servers", "_stream", "_tries", "_wait", "_waits"),
    )

    def __init__(self, spec: DnsSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._asked = question(spec.name, spec.record_type)
        self._servers: list[Server] = []  # those that may still answer
        self._server: Server | None = None  # the last one that was asked
        self._tries = 0
        self._wait = min(_TRY_SECONDS, spec.timeout_ms / 1000 * _TRY_SHARE)
        self._waits = False  # for a second of the named server
        self._edns = True
        self._datagrams: list[socket.socket] = []
        self._ignored = 0
        self._stream: socket.socket | None = None
        self._incoming = bytearray()
        self._answer: _Answer | None = None

    def start(self) -> None:
        if self.spec.server is not None:
            self._servers = [Server(self.spec.server, self.spec.port)]
        else:
            resolver = self.loop.network.resolver
            self._servers = resolver.servers()
            self.waits = (resolver.liveness.watch(Wait()),)
        if not self._servers:
            self.fail(own_fault("it has no name server"))
            return
        if self.spec.server is None:
            self._begin()
        elif self.loop.network.permits(self.spec.server):
            self.loop.reserve(self, self.spec.server, self._begin)
        else:
            self.fail(BLOCKED)

    def expire(self) -> None:
        if self._answer is not None:  # another server's error
            self.finish()
            return
        if not self._tries:
            self.loop.postpone(self)
            return
        if self._stream is not None:
            waited_for = "the name server cut its answer short by UDP, and did not answer by TCP; check its TCP port"
        elif self._ignored:
            waited_for = "the name server sent nothing that answers the question; check what is on that port"
        elif self.spec.server is None:
            waited_for = "the name servers gave no answer; check that those of the zone are up"
        else:
            waited_for = "the name server gave no answer; check that it runs, and the firewalls in front of it"
        self.fail(timed_out(self.spec, waited_for))

    def find_failure(self) -> Failure | None:
        return None if self._answer is None else find_failure(self.spec, self._answer.reply, self.outcome)

    def evidence(self) -> Evidence:
        facts: list[tuple[str, str]] = []
        body, server = None, self._server
        if self._answer is not None:
            reply, server, protocol = self._answer
            facts = [
                ("protocol", protocol),
                ("response code", reply.rcode_name),
                ("flags", dns.flags.to_text(reply.flags & 0x87F0).lower()),
                ("size", f"{len(reply.wire)} bytes"),
                ("records", "{} answer, {} authority, {} additional".format(*reply.counts)),
            ]
            body = shown_body("\n".join(describe(reply, limit=BODY_CHARS)), _NO_MASK)
        if self._ignored:
            what = "message that does" if self._ignored == 1 else "messages that do"
            facts.append(("ignored", f"{self._ignored} {what} not answer the question"))
        address = None
        if server is not None and self.loop.network.permits(server.address):
            address = str(server)  # an address of the operator's network is not shown
        return Evidence(address=address, facts=tuple(facts), body=body)

    def close(self) -> None:
        for opened in self._datagrams if self._stream is None else (*self._datagrams, self._stream):
            self.loop.unwatch(opened)
            opened.close()
        self._datagrams.clear()
        self._stream = None

    def _begin(self) -> None:
        self.loop.call_later(self, self._wait, self._repeat)
        self._ask_next()

    def _repeat(self) -> None:
        self._wait *= 2
        self.loop.call_later(self, self._wait, self._repeat)
        if self._stream is None:
            self._ask_again(self._servers[self._tries % len(self._servers)], pauses=False)

    def _ask_again(self, server: Server, *, pauses: bool) -> None:
        """Send another datagram. To a server that the user named, in a second of its address."""
        if self.spec.server is None:
            self._ask(server)
        elif not self._waits:
            self._waits = True
            self.loop.reserve(self, server.address, partial(self._ask_in_turn, server), repeats=True, pauses=pauses)

    def _ask_in_turn(self, server: Server) -> None:
        self._waits = False
        if self._stream is None:
            self._ask(server)

    def _ask_next(self) -> None:
        """Ask the next server in turn."""
        self._ask(self._servers[self._tries % len(self._servers)])

    def _ask(self, server: Server) -> None:
        self._tries += 1
        self._server = server
        query = make_query(self._asked, edns=self._edns)
        try:
            opened = self._connect(server, socket.SOCK_DGRAM)
            self._datagrams.append(opened)
            self.loop.watch(self, opened, partial(self._receive, opened, server, query))
            opened.send(query)
        except BlockingIOError:
            pass  # lost, as on the network
        except BlockedTarget:
            self.fail(BLOCKED)
        except OSError as error:
            self._give_up(server, error)

    def _receive(self, opened: socket.socket, server: Server, query: bytes) -> None:
        for _ in range(_DATAGRAMS_PER_TURN):
            try:
                wire = opened.recv(_MAX_MESSAGE)
            except BlockingIOError:
                return
            except OSError as error:
                self._give_up(server, error)
                return
            for wait in self.waits:
                wait.end()
            reply = match_reply(wire, query, self._asked)
            if reply is not None:
                self._take(reply, server)
                return
            self._ignored += 1
            if self._ignored > _MAX_IGNORED:
                self.fail(Failure(ReasonCode.DNS_FAILURE, "The name server sent a flood of messages; check it."))
                return

    def _take(self, reply: Reply, server: Server) -> None:
        if time.monotonic() >= self.deadline:  # the loop looks at deadlines a little later
            self.expire()
            return
        if self.outcome.ttfb_ms is None:
            self.outcome.ttfb_ms = self.elapsed_ms()
        if reply.is_truncated and self._stream is None:
            self._ask_by_tcp(server)
        elif self._edns and reply.rcode in (FORMERR, NOTIMP):
            self._edns = False  # RFC 6891, 6.2.2: an old server
            if self._stream is not None:
                self._ask_by_tcp(server)
                return
            self.close()
            self._ask_again(server, pauses=True)
        else:
            self._answer = _Answer(reply, server, "UDP" if self._stream is None else "TCP")
            if reply.rcode not in (NOERROR, NXDOMAIN) and len(self._servers) > 1:
                self._leave(server)
                return
            self.outcome.latency_ms = self.elapsed_ms()
            self.finish()

    def _ask_by_tcp(self, server: Server) -> None:
        self.close()
        self._server = server
        query = make_query(self._asked, edns=self._edns)
        try:
            self._stream = stream = self._connect(server, socket.SOCK_STREAM)
        except BlockedTarget:
            self.fail(BLOCKED)
        except OSError as error:
            self._give_up(server, error)
        else:
            self._incoming.clear()
            self.loop.watch(self, stream, partial(self._send, stream, server, query), write=True)
            self.loop.call_later(self, self._wait, partial(self._leave_silent, stream, server))

    def _leave_silent(self, stream: socket.socket, server: Server) -> None:
        if self._stream is stream and len(self._servers) > 1:
            self._leave(server)

    def _send(self, stream: socket.socket, server: Server, query: bytes) -> None:
        if code := stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._give_up(server, OSError(code, os.strerror(code)))
            return
        try:
            stream.send(len(query).to_bytes(2, "big") + query)
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(server, error)
        else:
            self.loop.watch(self, stream, partial(self._receive_part, stream, server, query))

    def _receive_part(self, stream: socket.socket, server: Server, query: bytes) -> None:
        try:
            part = stream.recv(_MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            self._give_up(server, error)
            return
        incoming = self._incoming
        incoming += part
        size = int.from_bytes(incoming[:2], "big")
        if len(incoming) >= 2 and len(incoming) >= 2 + size:
            reply = match_reply(bytes(incoming[2 : 2 + size]), query, self._asked)
            if reply is None:
                self._give_up(server, _OTHER_ANSWER)
            else:
                self._take(reply, server)
        elif not part:
            self._give_up(server, _CUT if incoming else _CLOSED)

    def _give_up(self, server: Server, error: OSError | Failure) -> None:
        """Go on without a server that cannot be asked."""
        failure = explain_errno(error.errno or 0) if isinstance(error, OSError) else error
        if self.spec.server is not None or failure.reason_code is ReasonCode.WORKER_LOST:
            self.fail(failure)
        else:
            self._leave(server)

    def _leave(self, server: Server) -> None:
        """Ask the deployment's other servers, and accept the last error if there are none."""
        if server in self._servers:
            self._servers.remove(server)
        self.close()
        if self._servers:
            self._ask_next()
        elif self._answer is not None:
            self.finish()
        else:
            self.fail(own_fault("no name server could be asked", by_network=True))

    def _connect(self, server: Server, kind: socket.SocketKind) -> socket.socket:
        return self.loop.connect(server.address, server.port, kind, guarded=self.spec.server is not None)
