"""What every protocol on libcurl shares: a handle whose sockets pass the egress guard, and failures to connect."""

from __future__ import annotations

import errno
import os
import socket
from datetime import UTC, datetime
from functools import lru_cache
from ssl import cert_time_to_seconds

import pycurl

from checks.probes.loop import Network
from checks.spec import ReasonCode
from checks.verdict import BLOCKED, Failure, own_fault

_TLS_NOTE = b"SSL connection using "

# X509_V_ERR_… of OpenSSL's x509_vfy.h, as CURLINFO_SSL_VERIFYRESULT gives them.
_NO_ISSUER = (
    "the certificate's issuer is unknown, or the server leaves out an intermediate certificate; install the full chain"
)
_CERTIFICATE_FAULTS = {
    9: "the certificate is not valid yet; check its dates and the server's clock",
    10: "the certificate has expired; renew it",
    18: "the certificate is self-signed, so nobody vouches for it; install one of a public authority",
    19: "the certificate comes from a self-signed authority that is not trusted; install one of a public authority",
    20: _NO_ISSUER,
    21: _NO_ISSUER,
    23: "the certificate was revoked; replace it",
    24: "an authority in the certificate's chain may not issue certificates; install one of a public authority",
    26: "the certificate is not meant for servers; install one that is",
    28: "the certificate's authority is rejected for servers; install one of a public authority",
    62: "the certificate was issued for another host name; check the URL, or add the name to the certificate",
    64: "the certificate was issued for another address; check the URL, or add the address to the certificate",
    66: "the certificate's key is too weak; replace it",
    67: "the key of an authority in the certificate's chain is too weak; replace the certificate",
    68: "the certificate's signature is too weak; replace it",
}
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
_CERTIFICATE_WANTED = "alert certificate required"
# By words of libcurl's message.
_HANDSHAKE_FAULTS = {
    ("wrong version number", "packet length"): (
        "the server does not speak TLS on this port; check the scheme and the port of the URL"
    ),
    ("protocol version", "unsupported protocol"): "the server offers no TLS version from 1.2 on; update it",
    ("handshake failure", "no shared cipher"): (
        "the server and Pulsekeeper share no way of encryption; check the server's TLS settings"
    ),
    ("unrecognized name",): "the server has no certificate for this host name; check its virtual hosts",
    (_CERTIFICATE_WANTED, "bad certificate"): (
        "the server asks for a client certificate, which Pulsekeeper has none of; exempt the URL from it"
    ),
    ("eof", "reset"): "the server ended the connection during the TLS handshake; check its TLS settings",
}
# These say something about this worker and nothing about the target.
_OWN_CODES = frozenset(
    {pycurl.E_OUT_OF_MEMORY, pycurl.E_FAILED_INIT, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_WRITE_ERROR}
)
_CONNECT_FAULTS = {
    errno.ECONNREFUSED: "the connection was refused; nothing seems to listen on that port, so check the server",
    errno.ECONNRESET: "the connection was reset; check the server and the firewalls before it",
    errno.EHOSTUNREACH: "the host cannot be reached; check that it runs, and the routes to it",
    errno.ENETUNREACH: "its network cannot be reached; check the addresses in its DNS, and the routes to them",
    errno.ETIMEDOUT: "the connection attempt got no answer; check that the host runs, and the firewalls before it",
}


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
    late_refusal = code == pycurl.E_RECV_ERROR and _CERTIFICATE_WANTED in message.lower()
    in_handshake = handle.tls and connected and not handle.tls_established()
    if code in _TLS_CODES or late_refusal or (code in _TOO_LONG_CODES and in_handshake):
        fault = _explain_tls(handle, code, message)
        if check_ssl:
            return Failure(ReasonCode.TLS_FAILURE, f"SSL problem: {fault}.")
        return Failure(ReasonCode.CONNECTION_FAILURE, f"No secure connection: {fault}.")
    return own_fault(pycurl.easy_strerror(code)) if code in _OWN_CODES else None


def _explain_connect(handle: Handle) -> Failure:
    error = handle.socket_error
    if handle.refused_address and not handle.opened_socket and error is None:
        return BLOCKED
    if error is not None and not handle.opened_socket:
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
            return own_fault(os.strerror(error.errno))
        return Failure(
            ReasonCode.CONNECTION_FAILURE,
            "No connection: its kind of address is not supported here; give its name an IPv4 address.",
        )
    fault = _CONNECT_FAULTS.get(
        int(handle.easy.getinfo(pycurl.OS_ERRNO)), "the connection failed; check the server and the routes to it"
    )
    return Failure(ReasonCode.CONNECTION_FAILURE, f"No connection: {fault}.")


def _explain_tls(handle: Handle, code: int, message: str) -> str:
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        fault = _CERTIFICATE_FAULTS.get(int(handle.easy.getinfo(pycurl.SSL_VERIFYRESULT)))
        if fault is not None:
            return fault
        if "subject name" in message or "does not match" in message:
            return _CERTIFICATE_FAULTS[62]
        return "the certificate could not be verified; check it and its chain"
    if code in _TOO_LONG_CODES:
        return "the server's certificate is too large to be read; install a smaller one"
    message = message.lower()
    if code == _NO_CLIENT_CERTIFICATE:
        message = _CERTIFICATE_WANTED
    for words, fault in _HANDSHAKE_FAULTS.items():
        if any(word in message for word in words):
            return fault
    return "the TLS handshake failed; check the server's TLS settings"
