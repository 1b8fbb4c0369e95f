"""Start the targets of cases, and return how to reach each."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tests.targets.catalogue import Case, Closed, Full, Place
from tests.targets.certificates import Certificates
from tests.targets.datagrams import Datagrams
from tests.targets.names import NameServer
from tests.targets.resolvers import Resolving
from tests.targets.server import Routes, Script, Seen, Site, TargetServer, Unasked

# No case depends on the speed of the machine: only cases about latency set a threshold.
_UNHURRIED = {"slow_ms": 9_000}


class Stage:
    """The places of all cases, and one name server for all their names. A context manager."""

    def __init__(self, cases: Iterable[Case], certificates: Certificates) -> None:
        self._cases = tuple(cases)
        self._certificates = certificates
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._held = ExitStack()
        self._server = TargetServer()
        self.ca_file = certificates.ca_file
        self.inputs: dict[str, dict[str, Any]] = {}  # case id -> MonitorInput

    def __enter__(self) -> Stage:
        self._held.enter_context(self._server)
        zone = {name: said for case in self._cases for name, said in case.zone.items()}
        # In a separate thread: behind hundreds of handshakes its answers would be late, and A or AAAA records missing.
        self.names: NameServer = self._held.enter_context(TargetServer()).serve_names(zone)
        for case in self._cases:
            url = _filled(case.url, self._put_up(case))
            self.inputs[case.id] = {**_UNHURRIED, **case.settings, "url": url}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _put_up(self, case: Case) -> Mapping[str, str]:
        """Key of a place -> its origin."""
        while True:
            try:
                return self._listen_all(case)
            except OSError as error:
                # The port is free at one address and taken at another; the next attempt gets another port.
                if error.errno != errno.EADDRINUSE:
                    raise

    def _listen_all(self, case: Case) -> Mapping[str, str]:
        origins: dict[str, str] = {}
        ports: dict[str, int] = {}
        for key, place in case.places.items():
            ports[key] = self._listen(place, origins, port=ports[place.port_of] if place.port_of else 0)
            scheme = place.scheme or ("https" if place.tls else "http")
            host = place.name or (f"[{place.host}]" if ":" in place.host else place.host)
            origins[key] = f"{scheme}://{host}:{ports[key]}"
        return origins

    def _listen(self, place: Place, origins: Mapping[str, str], *, port: int) -> int:
        """Return the current port of the place. `origins` is read only when a script is played."""
        routes = place.routes
        if isinstance(routes, Closed | Full):
            listening = self._held.enter_context(_bound(place.host, port))
            taken: int = listening.getsockname()[1]
            if isinstance(routes, Full):
                listening.listen(0)
                first = self._held.enter_context(socket.socket(listening.family))
                first.connect(listening.getsockname())  # occupies the only place in the queue
            return taken
        if isinstance(routes, Datagrams):
            return self._server.serve_datagrams(routes, host=place.host, port=port).port
        if isinstance(routes, Resolving):
            return self._server.serve_resolver(routes, host=place.host).port
        tls = self._context(place.tls) if place.tls is not None else None
        if not isinstance(routes, Unasked):
            routes = _filling(routes, origins)
        return self._server.serve(routes, host=place.host, port=port, tls=tls).port

    def _context(self, name: str) -> ssl.SSLContext:
        if name not in self._contexts:
            self._contexts[name] = getattr(self._certificates, name)()
        return self._contexts[name]


def _bound(host: str, port: int) -> socket.socket:
    """Reserve the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket(family))
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind((host, port))
        stack.pop_all()
    return taken


def _filled(text: str, origins: Mapping[str, str]) -> str:
    for key, origin in origins.items():
        text = text.replace(f"@{key}@", origin)
    return text


def _filling(routes: Routes, origins: Mapping[str, str]) -> Callable[[Seen], Script]:
    """Return the same routes, with the origins of other places in their scripts."""
    site = Site("", 0, routes, "")

    def fill(seen: Seen) -> Script:
        marks = {f"@{key}@".encode(): origin.encode() for key, origin in origins.items()}
        return [_replaced(step, marks) if isinstance(step, bytes) else step for step in site.script_for(seen)]

    return fill


def _replaced(step: bytes, marks: Mapping[bytes, bytes]) -> bytes:
    for mark, origin in marks.items():
        step = step.replace(mark, origin) if mark in step else step
    return step
