"""One http request at a time on a libcurl handle, whose sockets pass the egress guard."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ssl import cert_time_to_seconds

import msgspec
import pycurl

from checks.probes.http.decoding import ACCEPTED, Decoder, NotInCodingError, TooMuchError, decoder_for
from checks.probes.http.request import Request
from checks.probes.http.spec import HttpSpec
from checks.probes.loop import CIPHERS, Network
from checks.probes.target import join_host_port
from checks.probes.trust import trusted_folder
from checks.spec import ReasonCode
from checks.verdict import Failure
from core.version import product_version

BODY_CAP = 1024 * 1024
HEAD_CAP = 8 * 1024  # of the body, kept as evidence; more than is shown, because masking may shorten it
# More encoded bytes than this for less than BODY_CAP decoded ones are not compression but an attack.
_WIRE_CAP = BODY_CAP + 64 * 1024
_MOST_LINES = 100  # of the headers, kept as evidence
_LINE_CAP = 8 * 1024 + 1  # of each; one byte more than is read, so that a cut line is known as one
_VALUE_CAP = 1024  # of a Content-Type, and of all Content-Encodings together
# libcurl reads ten of these before it returns, and a chunked body may make a callback of each 6 bytes.
_BUFFER_BYTES = 4096

# libcurl reads three digits and ignores what follows them.
_STATUS_LINE = re.compile(rb"HTTP/\S+\s+[1-9][0-9]{2}(?:\s|$)", re.IGNORECASE)
_TLS_NOTE = b"SSL connection using "
_NO_BYTES_TAKEN = 0  # what a write callback returns to end the transfer

_NOT_IN_CODING = Failure(
    ReasonCode.CONTENT_FAILURE,
    "The body cannot be decoded, because it is not in the Content-Encoding that the response declares; "
    "check the server's compression.",
)
_ENDS_TOO_EARLY = Failure(
    ReasonCode.PARTIAL_RESPONSE,
    "The response was cut short: its compressed body ends too early; check the application and the proxies in front of "
    "it.",
)


class Response(msgspec.Struct):
    """The result of one request. Times are microseconds since its start; 0 where that point was not reached.

    `code` is libcurl's result, 0 also if we ended the transfer because we had seen enough. `headers_ended` is False if
    the connection closed before, which libcurl accepts. `head` is the beginning of the decoded body. `body` is kept on
    request; it is only the first MiB if `over_cap`. `fault` is what is wrong with a body that is complete as far as
    HTTP can tell. `bad_status_line`: this one, or that of an interim answer, has no status of three digits.
    """

    code: int = pycurl.E_OK
    message: str = ""
    status: int = 0
    total_us: int = 0
    connect_us: int = 0
    ttfb_us: int = 0
    status_line: bytes = b""
    bad_status_line: bool = False
    lines: list[bytes] = []
    headers_ended: bool = False
    location: bytes | None = None
    content_type: str | None = None
    head: bytes = b""
    body: bytearray | None = None
    over_cap: bool = False
    unknown_coding: str | None = None
    fault: Failure | None = None


class _HandedOver(socket.SocketType):
    """pycurl duplicates the descriptor it is given and drops the socket, which would warn of being left open.

    The class in C, because that in Python takes a few microseconds to create.
    """

    def __del__(self) -> None:
        self.close()


class Transfer:
    """A libcurl easy handle, used for one request after another, each on a new connection.

    It reads headers and bodies up to their caps. libcurl calls back in the loop's thread. A callback must not raise:
    pycurl would print it.
    """

    def __init__(self, network: Network) -> None:
        self.easy = pycurl.Curl()
        self._permits = network.permits
        self._ca_file = network.ca_file
        self._extra: dict[int, object] = {}  # options of the last request that a plain one does not set
        self._follow = False
        self._form: tuple[bool, ...] | None = None  # what the options that take few values were set for
        self.tls = False  # whether the request uses TLS
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
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        # HTTP/1.1: a connection serves one request, so HTTP/2 would add a negotiation and share nothing.
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        setopt(pycurl.HTTP09_ALLOWED, 0)
        setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        setopt(pycurl.USERAGENT, f"Pulsekeeper/{product_version()}")
        setopt(pycurl.ACCEPT_ENCODING, ACCEPTED)
        setopt(pycurl.HTTP_CONTENT_DECODING, 0)  # done by our decoder
        setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        setopt(pycurl.DEBUGFUNCTION, self._take_note)
        setopt(pycurl.HEADERFUNCTION, self._take_header)
        setopt(pycurl.WRITEFUNCTION, self._take_body)

    def forget(self) -> None:
        """Drop what is known of the last request."""
        for option in self._extra:
            self.easy.unsetopt(option)
        self._extra = {}
        self.refused_address = False  # the guard refused at least one
        self.opened_socket = False
        self.socket_error: OSError | None = None
        self.address: tuple[str, int] | None = None  # the last one that a socket was opened to
        self.tls_version: str | None = None
        self.response = Response()
        self._received = 0
        self._on_wire = 0
        self._seen_enough = False
        self._content_encoding = b""
        self._decoder: Decoder | None = None

    def start(self, request: Request, spec: HttpSpec, *, timeout_ms: int, addresses: Sequence[str]) -> None:
        """Prepare a handle that knows of no request. Raises pycurl.error if libcurl refuses it.

        `addresses` are those of the target's host, none if the host is an address itself.
        """
        self._follow = spec.follow_redirects
        if spec.rules:
            self.response.body = bytearray()
        method = request.method
        body = b"" if request.body is None and method in {"POST", "PUT", "PATCH"} else request.body
        self.tls = request.target.scheme == "https"
        setopt = self.easy.setopt
        setopt(pycurl.URL, request.target.url)
        setopt(pycurl.TIMEOUT_MS, timeout_ms)
        form = (self.tls, spec.tls_verify, method == "HEAD", body is not None)
        if form != self._form:
            self._form = form
            setopt(pycurl.VERBOSE, int(self.tls))  # the only way to learn the TLS version
            setopt(pycurl.SSL_VERIFYPEER, int(spec.tls_verify))
            setopt(pycurl.SSL_VERIFYHOST, 2 if spec.tls_verify else 0)
            if method == "HEAD":
                setopt(pycurl.NOBODY, 1)
            else:
                setopt(pycurl.HTTPGET, 1)  # also takes back NOBODY and POST
                if body is not None:
                    setopt(pycurl.POST, 1)
        if spec.tls_verify and spec.ca_certificate is not None:
            # It takes the place of the file, and the folder has the file's certificates. `forget` takes both back.
            self._extra[pycurl.CAINFO_BLOB] = spec.ca_certificate.encode()
            if self._ca_file is not None:
                self._extra[pycurl.CAPATH] = trusted_folder(self._ca_file)
        if method != "HEAD":
            if body is not None:
                setopt(pycurl.POSTFIELDS, body)
            if method != "GET" or body is not None:
                self._extra[pycurl.CUSTOMREQUEST] = method
        if request.lines:
            self._extra[pycurl.HTTPHEADER] = request.lines
        if addresses:
            # The plus lets the entry age out of libcurl's own cache; ours replaces it with every request.
            self._extra[pycurl.RESOLVE] = [f"+{request.target.host}:{request.target.port}:{','.join(addresses)}"]
        for option, value in self._extra.items():
            setopt(option, value)

    def finish(self, code: int, message: str) -> Response:
        """Return the result of a request that libcurl ended with `code`."""
        getinfo = self.easy.getinfo
        response = self.response
        if code == pycurl.E_WRITE_ERROR and self._seen_enough:
            code = pycurl.E_OK  # we hung up
        elif code == pycurl.E_OK and self._decoder is not None and not self._decoder.whole:
            response.fault = _ENDS_TOO_EARLY
        response.code = code
        response.message = message
        response.status = 0 if response.bad_status_line else getinfo(pycurl.RESPONSE_CODE)
        response.total_us = getinfo(pycurl.TOTAL_TIME_T)
        response.connect_us = getinfo(pycurl.CONNECT_TIME_T)
        if response.status_line:  # libcurl sets this time also if a transfer ended without an answer
            response.ttfb_us = getinfo(pycurl.STARTTRANSFER_TIME_T)
        content_type: bytes | None = self.easy.getinfo_raw(pycurl.CONTENT_TYPE)
        if content_type is not None:
            response.content_type = content_type[:_VALUE_CAP].decode("latin-1")
        return response

    def tls_established(self) -> bool:
        return bool(self.easy.getinfo(pycurl.APPCONNECT_TIME_T))

    def peer(self) -> str | None:
        """The address that was connected to, or else the last one that was tried, with its port."""
        host: str = self.easy.getinfo(pycurl.PRIMARY_IP)
        peer = (host, int(self.easy.getinfo(pycurl.PRIMARY_PORT))) if host else self.address
        return None if peer is None else join_host_port(*peer)

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

    def _open_socket(self, _purpose: int, address: pycurl.CurlSockAddr) -> socket.SocketType | int:
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

    def _take_body(self, chunk: bytes) -> int | None:
        if self.response.location is not None:
            return self._hang_up()  # of a redirect only its Location matters
        if not self._content_encoding:
            return self._keep(chunk)
        if self._on_wire == 0:
            self._decoder, self.response.unknown_coding = decoder_for(self._content_encoding)
        self._on_wire += len(chunk)
        if self._decoder is None:
            return self._keep(chunk)
        try:
            for piece in self._decoder.feed(chunk):
                if self._keep(piece) is not None:
                    return _NO_BYTES_TAKEN
        except NotInCodingError:
            self.response.fault = _NOT_IN_CODING
            return self._hang_up()
        except TooMuchError:
            return self._hang_up(over_cap=True)
        return self._hang_up(over_cap=True) if self._on_wire > _WIRE_CAP else None

    def _keep(self, piece: bytes) -> int | None:
        """Take decoded bytes up to the cap. Return what the callback has to return."""
        response = self.response
        room = BODY_CAP - self._received
        size = len(piece)
        if len(response.head) < HEAD_CAP:
            response.head += piece[: HEAD_CAP - len(response.head)]
        if response.body is not None:
            response.body += piece if size <= room else piece[:room]
        if size > room:
            return self._hang_up(over_cap=True)
        self._received += size
        return None

    def _hang_up(self, *, over_cap: bool = False) -> int:
        self.response.over_cap = over_cap
        self._seen_enough = True
        return _NO_BYTES_TAKEN

    def _take_header(self, line: bytes) -> None:
        response = self.response
        if len(line) < 3:  # the blank line
            response.headers_ended = True
            return
        start = line[:17].lower()
        if start.startswith(b"http/"):  # again after an interim answer
            response.status_line = line[:_LINE_CAP]
            if not _STATUS_LINE.match(line):
                response.bad_status_line = True
            response.lines = []
            response.location = None
            response.headers_ended = False
            self._content_encoding = b""
            return
        if response.headers_ended:
            return  # a trailer after a chunked body
        if len(response.lines) < _MOST_LINES:
            response.lines.append(line[:_LINE_CAP])
        if start == b"content-encoding:" and len(self._content_encoding) < _VALUE_CAP:
            value = line[17:].strip()[:_VALUE_CAP]
            self._content_encoding += b"," + value if self._content_encoding else value
        elif self._follow and response.location is None and start.startswith(b"location:") and self._redirects():
            response.location = line[9:].strip()

    def _redirects(self) -> bool:
        fields = self.response.status_line.split(maxsplit=2)
        return len(fields) > 1 and fields[1] in {b"301", b"302", b"303", b"307", b"308"}


@lru_cache(maxsize=4096)
def _parse_certificate_end(text: str) -> datetime | None:
    """Parse `Jan  5 09:34:43 2018 GMT`. Return None if the text is invalid."""
    try:
        return datetime.fromtimestamp(cert_time_to_seconds(text), UTC)
    except (ValueError, OverflowError, OSError):
        return None
