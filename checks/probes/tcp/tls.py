"""TLS without sockets: it consumes received bytes and returns the bytes to send.

Not libcurl: with CONNECT_ONLY, a connection whose server has sent bytes that were not read yet counts as dead in the
connection pool of the multi handle, and any other transfer that starts may close it.
"""

from __future__ import annotations

import _ssl
import ssl
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509

from checks.probes.loop import CIPHERS
from checks.probes.trust import trusted_folder

_PIECE = 16 * 1024  # the largest TLS record
# Of one connection, handshake included. What is read of the content is limited elsewhere, but records may be empty.
_MOST_BYTES = 512 * 1024


class Certificate(NamedTuple):
    end: datetime
    issuer: str  # as libcurl shows it: `C = US, O = Let's Encrypt, CN = R3`


def read_certificate(der: bytes) -> Certificate | None:
    try:
        leaf = x509.load_der_x509_certificate(der)
        issuer = ", ".join(f"{part.rfc4514_attribute_name} = {part.value!s}" for part in leaf.issuer)
        return Certificate(leaf.not_valid_after_utc, issuer)
    except (ValueError, TypeError, x509.InvalidVersion):
        return None


def trusting(ca_file: str | None, ca_certificate: str | None = None, *, verifies: bool = True) -> ssl.SSLContext:
    """Return a context that verifies chain and host name, like http checks do. Raises OSError for an unusable file."""
    folder = trusted_folder(ca_file) if verifies and ca_certificate is not None and ca_file is not None else None
    return _context(ca_file, folder, ca_certificate, verifies=verifies)


@lru_cache(maxsize=64)
def _context(ca_file: str | None, folder: str | None, ca_certificate: str | None, *, verifies: bool) -> ssl.SSLContext:
    # The key of the cache is the whole certificate, so that checks share a context only if they trust the same.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_RENEGOTIATION  # costs us a handshake, and the server a few bytes
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_certificate is not None:
        context.load_verify_locations(capath=folder, cadata=ca_certificate)
    elif ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca_file)
    return context


class TlsSession:
    """One connection's TLS, as its client. Its methods raise ssl.SSLError for what the server does wrong."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """Raises ValueError if the host cannot be a server's name."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host.removesuffix("."))
        self._room = _MOST_BYTES
        self.ended = False  # the server sends no more

    def feed(self, chunk: bytes) -> None:
        """Process received bytes; empty means the end of the connection."""
        self._room -= len(chunk)
        if self._room < 0:
            raise ssl.SSLError("excessive message size")
        if chunk:
            self._incoming.write(chunk)
        else:
            self._incoming.write_eof()

    def shake_hands(self) -> bool:
        """Return whether the handshake is complete."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        """Return what was received so far."""
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(_PIECE):
                pieces.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:  # without a farewell in TLS, as many servers do
            self.ended = True
        return b"".join(pieces)

    def encrypt(self, content: bytes) -> None:
        self._object.write(content)

    def outgoing(self) -> bytes:
        """Return the bytes to send now."""
        return self._outgoing.read()

    def version(self) -> str | None:
        return self._object.version()

    def certificate(self) -> Certificate | None:
        """Return the server's certificate, also if it was refused; None if there is none or it cannot be read."""
        # Public from Python 3.13 on. The public `getpeercert` knows only of certificates that were accepted.
        chain = self._object._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        return read_certificate(chain[0].public_bytes(_ssl.ENCODING_DER)) if chain else None
