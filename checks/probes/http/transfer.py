"""One http request at a time on a libcurl handle."""

from __future__ import annotations

import msgspec
import pycurl

from checks.probes.curl import Handle
from checks.probes.http.decoding import ACCEPTED, Decoder, NotInCodingError, TooMuchError, decoder_for
from checks.probes.http.request import Request
from checks.probes.loop import Network
from checks.spec import ReasonCode
from checks.verdict import Failure
from core.version import product_version

BODY_CAP = 1024 * 1024
HEAD_CAP = 8 * 1024  # of the body, kept as evidence; of what is shown some may have to be masked first
# What is sent beyond this without decoding to more than BODY_CAP is no compression.
_WIRE_CAP = BODY_CAP + 64 * 1024
_MOST_LINES = 100  # of the headers, kept as evidence
_LINE_CAP = 8 * 1024 + 1  # of each; one byte more than is read, so that a cut line is known as one
_VALUE_CAP = 1024  # of a Content-Type, and of all Content-Encodings together
# libcurl reads ten of these before it returns, and a chunked body may make a callback of each 6 bytes.
_BUFFER_BYTES = 4096

_NO_BYTES_TAKEN = 0  # what a write callback returns to end the transfer

_NOT_IN_CODING = Failure(
    ReasonCode.CONTENT_FAILURE,
    "The body cannot be decoded, because it is not in the Content-Encoding that the response declares; "
    "check the server's compression.",
)
_ENDS_TOO_EARLY = Failure(
    ReasonCode.PARTIAL_RESPONSE,
    "The response was cut short: its compressed body ends too early; check the application and the proxies before it.",
)


class Response(msgspec.Struct):
    """The result of one request. Times are microseconds since its start; 0 where that point was not reached.

    `code` is libcurl's result, 0 also if we ended the transfer because we had seen enough. `headers_ended` is False if
    the connection closed before, which libcurl accepts. `head` is the beginning of the decoded body. `body` is kept on
    request; it is only the first MiB if `over_cap`. `fault` is what is wrong with a body that is complete as far as
    HTTP can tell.
    """

    code: int = pycurl.E_OK
    message: str = ""
    status: int = 0
    total_us: int = 0
    connect_us: int = 0
    ttfb_us: int = 0
    status_line: bytes = b""
    lines: list[bytes] = []
    headers_ended: bool = False
    location: bytes | None = None
    content_type: str | None = None
    head: bytes = b""
    body: bytearray | None = None
    over_cap: bool = False
    unknown_coding: str | None = None
    fault: Failure | None = None


class Transfer(Handle):
    """A handle for http requests: reads headers and bodies up to their caps."""

    def __init__(self, network: Network) -> None:
        self._extra: dict[int, object] = {}  # options of the last request that a plain one does not set
        self._follow = False
        super().__init__(network)
        setopt = self.easy.setopt
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        # HTTP/1.1: a connection serves one request, so HTTP/2 would add a negotiation and share nothing.
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        setopt(pycurl.HTTP09_ALLOWED, 0)
        setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        setopt(pycurl.USERAGENT, f"Pulsekeeper/{product_version()}")
        setopt(pycurl.ACCEPT_ENCODING, ACCEPTED)
        setopt(pycurl.HTTP_CONTENT_DECODING, 0)  # done by our decoder
        setopt(pycurl.HEADERFUNCTION, self._take_header)
        setopt(pycurl.WRITEFUNCTION, self._take_body)

    def forget(self) -> None:
        super().forget()
        for option in self._extra:
            self.easy.unsetopt(option)
        self._extra = {}
        self.response = Response()
        self._received = 0
        self._on_wire = 0
        self._seen_enough = False
        self._content_encoding = b""
        self._decoder: Decoder | None = None

    def start(self, request: Request, *, timeout_ms: int, addresses: str | None, keep_body: bool, follow: bool) -> None:
        """Prepare a handle that knows of no request. Raises pycurl.error if libcurl refuses it.

        `addresses` are those of the target's host, None if the host is an address itself.
        """
        self._follow = follow
        if keep_body:
            self.response.body = bytearray()
        method = request.method
        body = b"" if request.body is None and method in {"POST", "PUT", "PATCH"} else request.body
        self.tls = request.target.scheme == "https"
        setopt = self.easy.setopt
        setopt(pycurl.URL, request.target.url)
        setopt(pycurl.TIMEOUT_MS, timeout_ms)
        setopt(pycurl.VERBOSE, int(self.tls))  # the only way to learn the TLS version
        if method == "HEAD":
            setopt(pycurl.NOBODY, 1)
        else:
            setopt(pycurl.HTTPGET, 1)  # also takes back NOBODY and POST
            if body is not None:
                setopt(pycurl.POST, 1)
                setopt(pycurl.POSTFIELDS, body)
            if method != "GET" or body is not None:
                self._extra[pycurl.CUSTOMREQUEST] = method
        if request.lines:
            self._extra[pycurl.HTTPHEADER] = request.lines
        if addresses is not None:
            # The plus lets the entry age out of libcurl's own cache; ours replaces it with every request.
            self._extra[pycurl.RESOLVE] = [f"+{request.target.host}:{request.target.port}:{addresses}"]
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
        response.status = getinfo(pycurl.RESPONSE_CODE)
        response.total_us = getinfo(pycurl.TOTAL_TIME_T)
        response.connect_us = getinfo(pycurl.CONNECT_TIME_T)
        if response.status_line:  # libcurl sets this time also if a transfer ended without an answer
            response.ttfb_us = getinfo(pycurl.STARTTRANSFER_TIME_T)
        content_type: bytes | None = self.easy.getinfo_raw(pycurl.CONTENT_TYPE)
        if content_type is not None:
            response.content_type = content_type[:_VALUE_CAP].decode("latin-1")
        return response

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
        if line[:5] == b"HTTP/":  # again after an interim answer
            response.status_line = line[:_LINE_CAP]
            response.lines = []
            response.location = None
            response.headers_ended = False
            self._content_encoding = b""
            return
        if response.headers_ended:
            return  # a trailer after a chunked body
        if len(response.lines) < _MOST_LINES:
            response.lines.append(line[:_LINE_CAP])
        if line[:17].lower() == b"content-encoding:" and len(self._content_encoding) < _VALUE_CAP:
            value = line[17:].strip()[:_VALUE_CAP]
            self._content_encoding += b"," + value if self._content_encoding else value
        elif self._follow and response.location is None and line[:9].lower() == b"location:" and self._redirects():
            response.location = line[9:].strip()

    def _redirects(self) -> bool:
        fields = self.response.status_line.split(maxsplit=2)
        return len(fields) > 1 and fields[1] in {b"301", b"302", b"303", b"307", b"308"}
