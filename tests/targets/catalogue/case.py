"""A case of the catalogue: what a target does, the monitor's settings, and the expected result. Data only."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.targets.datagrams import Datagrams
from tests.targets.names import Name
from tests.targets.resolvers import Resolving
from tests.targets.server import Routes

MIB = 1024 * 1024
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNLIMITED = b"HTTP/1.1 200 OK\r\n\r\n"  # a body that ends with the connection
LEAST: Mapping[str, Any] = {"timeout_ms": 1000}  # the API's minimum
SHORT: Mapping[str, Any] = {"timeout_ms": 2000}  # for targets that stall, also on a busy machine


@dataclass(frozen=True)
class Closed:
    """A port without a listener."""


@dataclass(frozen=True)
class Full:
    """A port that does not answer attempts to connect: its queue of connections is full."""


@dataclass(frozen=True)
class Place:
    """An address with a listener. In scripts `@key@` is the origin of another place.

    `name` replaces the address in the URL, `tls` is a context of `Certificates`, `scheme` that of the URL if it
    differs from the protocol, `port_of` the place whose port is used too, at another address.
    """

    routes: Routes | Datagrams | Resolving | Closed | Full
    host: str = "127.0.0.1"
    name: str | None = None
    tls: str | None = None
    scheme: str | None = None
    port_of: str | None = None


Target = Routes | Datagrams | Place | Mapping[str, Place]


@dataclass(frozen=True)
class Case:
    """`settings`: fields of the API's MonitorInput except the url, which is `url` with `@key@` replaced.

    `about`: one sentence in the present tense on what the target does. `words`: expected in the detail.
    """

    id: str
    group: str
    about: str
    places: Mapping[str, Place]
    settings: Mapping[str, Any]
    status: str
    reason_code: str | None = None
    words: str = ""
    http_status: int | None = None
    zone: Mapping[str, Name] = field(default_factory=dict)
    url: str = "@main@/"


class Group:
    """Collect the cases of one class."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases: list[Case] = []

    def up(self, name: str, about: str, target: Target, *, http_status: int | None = 200, **given: Any) -> None:
        self._add(name, about, target, status="up", http_status=http_status, **given)

    def slow(self, name: str, about: str, target: Target, *, http_status: int | None = 200, **given: Any) -> None:
        self._add(name, about, target, status="slow", words="which is slow", http_status=http_status, **given)

    def down(
        self,
        name: str,
        about: str,
        target: Target,
        reason_code: str,
        words: str,
        *,
        http_status: int | None = None,
        **given: Any,
    ) -> None:
        self._add(
            name, about, target, status="down", reason_code=reason_code, words=words, http_status=http_status, **given
        )

    def _add(
        self,
        name: str,
        about: str,
        target: Target,
        *,
        zone: Mapping[str, Name] | None = None,
        url: str = "@main@/",
        status: str,
        reason_code: str | None = None,
        words: str = "",
        http_status: int | None,
        **settings: Any,
    ) -> None:
        """Other arguments are settings. Without a method or type a case uses GET."""
        if "type" not in settings:
            settings.setdefault("method", "GET")
        self.cases.append(
            Case(
                id=name,
                group=self.name,
                about=about,
                places=_places(target),
                settings=settings,
                status=status,
                reason_code=reason_code,
                words=words,
                http_status=http_status,
                zone=zone or {},
                url=url,
            )
        )


def _places(target: Target) -> Mapping[str, Place]:
    if isinstance(target, Place):
        return {"main": target}
    if isinstance(target, Mapping):
        places = {key: value for key, value in target.items() if isinstance(value, Place)}
        if places:
            return places
    return {"main": Place(target)}  # type: ignore[arg-type]  # a mapping without places is Routes


def contains(text: str) -> dict[str, str]:
    return {"type": "text_contains", "value": text}


def lacks(text: str) -> dict[str, str]:
    return {"type": "text_absent", "value": text}


def holds(path: str, equals: str | None = None) -> dict[str, str]:
    rule = {"type": "json_field", "path": path}
    return rule if equals is None else rule | {"equals": equals}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def squeezed(body: bytes) -> bytes:
    """Compress reproducibly with gzip."""
    return gzip.compress(body, mtime=0)
