"""What every protocol on libcurl shares: a handle whose sockets pass the egress guard, and failures to connect."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from functools import lru_cache
from ssl import cert_time_to_seconds

import pycurl

from checks.probes.ciphers import CIPHERS
from checks.probes.faults import (
    CERTIFICATE_WANTED,
    errno_of,
    explain_certificate,
    explain_errno,
    explain_handshake,
    insecure,
)
from checks.probes.loop import Network
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault

_TLS_NOTE = b"SSL connection using "

_NO_CLIENT_CERTIFICATE = 98  # pycurl has no name for it
_TLS_CODES = frozenset(
    {
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CIPHER,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_SSL_INVALIDCERTSTATUS,
        pycurl.E_SSL_ISSUER_ERROR,
        _NO_CLIENT_CERTIFICATE,
    }
)
TOO_LARGE = 100  # pycurl has no name for it
# During a handshake, libcurl met a field of the certificate that is longer than it takes.
_TOO_LONG_CODES = frozenset({TOO_LARGE, pycurl.E_OUT_OF_MEMORY})
# These say something about this worker and nothing about the target.
_OWN_CODES = frozenset(
    {pycurl.E_OUT_OF_MEMORY, pycurl.E_FAILED_INIT, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_WRITE_ERROR}
)


class _HandedOver(socket.socket):
    """pycurl duplicates the descriptor it is given and drops the socket, which would warn of being left open."""

    def __del__(self) -> None:
        self.close()


class Handle:
    """A libcurl easy handle, used for one transfer after another, each on a connection of its own.

    libcurl calls back in the loop's thread. A callback must not raise: pycurl would print it.
    """

    def __init__(self, network: Network) -> None:
        self.easy = pycurl.Curl()
        self._permits = network.permits
        self.tls = False  # whether the transfer uses TLS
        self.forget()
        setopt = self.easy.setopt
        setopt(pycurl.NOSIGNAL, 1)  # we are one thread of many
        setopt(pycurl.FRESH_CONNECT, 1)
        setopt(pycurl.FORBID_REUSE, 1)
        # Nothing from the environment.
        setopt(pycurl.PROXY, "")
        setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        setopt(pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2)
        setopt(pycurl.SSL_CIPHER_LIST, CIPHERS)
        setopt(pycurl.SSL_SESSIONID_CACHE, 0)
        setopt(pycurl.OPT_CERTINFO, 1)
        if network.ca_file is not None:
            setopt(pycurl.CAINFO, network.ca_file)
            # Without a folder beside it, the multi handle parses the file once and keeps it.
            setopt(pycurl.CAPATH, None)
        setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        setopt(pycurl.DEBUGFUNCTION, self._take_note)

    def forget(self) -> None:
        """Drop what is known of the last transfer."""
        self.refused_address = False  # the guard refused at least one
        self.opened_socket = False
        self.socket_error: OSError | None = None
        self.address: tuple[str, int] | None = None  # the last one that a socket was opened to
        self.tls_version: str | None = None

    def tls_established(self) -> bool:
        return bool(self.easy.getinfo(pycurl.APPCONNECT_TIME_T))

    def peer(self) -> str | None:
        """The address that was connected to, or else the last one that was tried, with its port."""
        host: str = self.easy.getinfo(pycurl.PRIMARY_IP)
        peer = (host, int(self.easy.getinfo(pycurl.PRIMARY_PORT))) if host else self.address
        if peer is None:
            return None
        return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"

    def certificate(self, field: bytes) -> str | None:
        """A field of the server's certificate, as OpenSSL prints it; libcurl has those of a refused one too.

        `Expire date` is its end, `Issuer` who signed it.
        """
        if not self.tls:
            return None
        chain: list[tuple[tuple[bytes, bytes], ...]] = self.easy.getinfo_raw(pycurl.INFO_CERTINFO)
        for name, value in chain[0] if chain else ():
            if name == field:
                return value.decode("utf-8", "replace")
        return None

    def certificate_end(self) -> datetime | None:
        text = self.certificate(b"Expire date")
        return None if text is None else _parse_certificate_end(text)

    def _open_socket(self, _purpose: int, address: pycurl.CurlSockAddr) -> socket.socket | int:
        host = address.addr[0]
        if not isinstance(host, str) or not self._permits(host):
            self.refused_address = True
            return pycurl.SOCKET_BAD
        try:
            opened = _HandedOver(address.family, address.socktype, address.protocol)
        except OSError as error:  # out of descriptors, or no such address family on this machine
            self.socket_error = error
            return pycurl.SOCKET_BAD
        self.opened_socket = True
        self.address = (host, address.addr[1])
        return opened

    def _take_note(self, kind: int, text: bytes) -> None:
        """Read libcurl's log: `SSL connection using TLSv1.3 / …`, once the handshake is through."""
        if kind == pycurl.INFOTYPE_TEXT and text.startswith(_TLS_NOTE):
            self.tls_version = text[len(_TLS_NOTE) :].split(b" ", 1)[0].decode("latin-1")


@lru_cache(maxsize=4096)
def _parse_certificate_end(text: str) -> datetime | None:
    """`Jan  5 09:34:43 2018 GMT` to a time; None for what no certificate should say."""
    try:
        return datetime.fromtimestamp(cert_time_to_seconds(text), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def explain_connection(handle: Handle, code: int, message: str, *, connected: bool, check_ssl: bool) -> Failure | None:
    """Return why there is no connection, TLS included; None for results that have another cause."""
    if code == pycurl.E_COULDNT_CONNECT:
        return _explain_connect(handle)
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return Failure(ReasonCode.DNS_FAILURE, "The name of the target could not be resolved; check its DNS records.")
    # TLS 1.3 asks for a client certificate when the handshake is through, which libcurl calls a broken read.
    late_refusal = code == pycurl.E_RECV_ERROR and CERTIFICATE_WANTED in message.lower()
    in_handshake = handle.tls and connected and not handle.tls_established()
    if code in _TLS_CODES or late_refusal or (code in _TOO_LONG_CODES and in_handshake):
        return insecure(_explain_tls(handle, code, message), check_ssl=check_ssl)
    return own_fault(pycurl.easy_strerror(code)) if code in _OWN_CODES else None


def _explain_connect(handle: Handle) -> Failure:
    error = handle.socket_error
    if handle.refused_address and not handle.opened_socket and error is None:
        return BLOCKED
    if error is not None and not handle.opened_socket:
        return explain_errno(error.errno or 0)
    number = int(handle.easy.getinfo(pycurl.OS_ERRNO))
    return explain_errno(errno_of(OSError(number, ""), "" if handle.address is None else handle.address[0]))


def _explain_tls(handle: Handle, code: int, message: str) -> str:
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return explain_certificate(int(handle.easy.getinfo(pycurl.SSL_VERIFYRESULT)), message)
    if code in _TOO_LONG_CODES:
        return "the server's certificate is too large to be read; install a smaller one"
    return explain_handshake(CERTIFICATE_WANTED if code == _NO_CLIENT_CERTIFICATE else message)
