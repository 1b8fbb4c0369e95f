"""The settings of one tcp check, and the addresses that users enter. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from checks.probes.target import KEPT_ADDRESSES, BadAddressError, HostPort, parse_host_port
from checks.spec import CheckSpec, ContentRule

STARTTLS_PROTOCOLS = ("smtp", "imap", "pop3", "ftp", "postgres")
_STARTTLS = re.compile(f"starttls=({'|'.join(STARTTLS_PROTOCOLS)})")
_EXAMPLES = {"tcp": "tcp://db.example.com:5432", "tls": "tls://mail.example.com:993"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSpec(CheckSpec):
    """One tcp check. `host` is in ASCII, an address without brackets. `starttls` goes with `tls`.

    `rules` are text rules. With `as_hex` they compare with what was received as lower-case hex.
    """

    host: str
    port: int
    tls: bool = False
    starttls: str | None = None
    check_ssl: bool = False
    tls_verify: bool = True
    ca_certificate: str | None = None  # PEM, trusted in addition to the system's
    body: bytes | None = None
    rules: tuple[ContentRule, ...] = ()
    as_hex: bool = False

    def __repr__(self) -> str:  # without the body, which may contain a secret
        return f"TcpSpec({'tls' if self.tls else 'tcp'} {self.host} {self.port})"


@lru_cache(maxsize=KEPT_ADDRESSES)
def parse_tcp(url: str) -> tuple[HostPort, str | None]:
    """Return the server of a tcp:// or tls:// URL, and its STARTTLS protocol. Raises BadAddressError."""
    example = _EXAMPLES.get(url.partition(":")[0], _EXAMPLES["tcp"])
    server = parse_host_port(url, schemes=_EXAMPLES, example=example, has_query=True)
    if "?" not in url:
        return server, None
    if server.scheme == "tcp":
        raise BadAddressError(
            "cannot contain a query; STARTTLS is for tls://, for example tls://mail.example.com:587?starttls=smtp."
        )
    if (found := _STARTTLS.fullmatch(server.query)) is None:
        *others, last = STARTTLS_PROTOCOLS
        raise BadAddressError(
            f"accepts no query except starttls={', '.join(others)} or {last}, "
            "for example tls://mail.example.com:587?starttls=smtp."
        )
    return server, found[1]
