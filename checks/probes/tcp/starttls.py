"""The dialogues before TLS on an open connection: what to send, and what the server has to answer. Pure.

SMTP: RFC 3207, IMAP: RFC 9051 section 6.2.1, POP3: RFC 2595, FTP: RFC 4217, PostgreSQL: SSLRequest of its protocol.

Bytes behind the server's go-ahead arrive before the handshake. A client that later used them as if they were encrypted
could be deceived by an attacker who injected them, so they fail the check.
"""

from __future__ import annotations

from collections.abc import Generator

from checks.evidence import Mask, shown_line
from core.text import quote

# Of a whole dialogue; a long FTP banner has a few KB.
_MOST_BYTES = 16 * 1024
# Servers ask for a name with a dot. Ours would show the inside of the deployment; RFC 2606 reserves this one.
_NAME = b"pulsekeeper.invalid"
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"

# Yields what to send, or nothing to read on, and gets the lines of one reply.
Steps = Generator[bytes, list[bytes], None]


class StrangeServerError(Exception):
    """The server does not speak the protocol. The text is a sentence."""


class NoTlsError(Exception):
    """The server speaks the protocol and does not lead to TLS in a safe way. The text is a sentence without its end."""


class Dialogue:
    """One dialogue. Send `opening`, then what `feed` returns. `said` is the server's last line."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._has_numbered_replies = protocol in ("smtp", "ftp")
        self._may_interject = protocol == "imap"  # untagged lines, at any time before the go-ahead
        self._steps = _PROTOCOLS[protocol]()
        self._room = _MOST_BYTES
        self._partial = b""
        self._reply: list[bytes] = []
        self.said = b""
        self.opening = next(self._steps)

    def feed(self, chunk: bytes) -> bytes | None:
        """Process received bytes; empty means the end of the connection. Return what to send, None once TLS may begin.

        Raises StrangeServerError and NoTlsError.
        """
        if not chunk:
            raise StrangeServerError(
                f"The server closed the connection before TLS; check that it speaks {self._protocol}, and its log."
            )
        self._room -= len(chunk)
        if self._room < 0:
            raise StrangeServerError(
                f"The server sent more than {_MOST_BYTES // 1024} KiB before TLS; "
                f"check that {self._protocol} is its protocol."
            )
        if self._protocol == "postgres":
            lines, self._partial = [chunk[:1]], chunk[1:]
        else:
            *lines, self._partial = (self._partial + chunk).split(b"\n")
        for number, line in enumerate(lines, start=1):
            self.said = line
            self._reply.append(line.rstrip(b"\r"))
            if self._has_numbered_replies and not _is_whole(self._reply):
                continue
            reply, self._reply = self._reply, []
            rest = [*lines[number:], *([self._partial] if self._partial else [])]
            try:
                command = self._steps.send(reply)
            except StopIteration:
                if rest:
                    raise NoTlsError(INJECTED) from None
                return None
            if command:
                if not all(self._may_interject and line.startswith(b"*") for line in rest):
                    raise StrangeServerError(
                        "The server sent more than one reply at once; check the proxies in front of it."
                    )
                return command
        return b""


INJECTED = (
    "plain text came behind the server's go-ahead for TLS, as in an injection attack; "
    "check the server, and the proxies in front of it"
)


def _is_whole(lines: list[bytes]) -> bool:
    """Return whether a reply of SMTP or FTP ends here: `250-` goes on until a line begins with `250 `."""
    first, last = lines[0], lines[-1]
    if not (first[:3].isdigit() and first[3:4] == b"-"):
        return True
    return last[:3] == first[:3] and last[3:4] in (b"", b" ")


def _greeted(line: bytes, start: bytes, protocol: str) -> None:
    if not line.upper().startswith(start):
        raise StrangeServerError(
            f"The server does not greet as one for {protocol}: it sent {_quoted(line)}; "
            "check the host and the port, and the server's log."
        )


def _agreed(line: bytes, start: bytes, command: str) -> None:
    if not line.upper().startswith(start):
        raise NoTlsError(f"the server refuses {command} with {_quoted(line)}; check its TLS settings and its log")


def _quoted(line: bytes) -> str:
    return quote(shown_line(line, Mask(())) or "")


def _smtp() -> Steps:
    reply = yield b""
    _greeted(reply[-1], b"220", "smtp")
    reply = yield b"EHLO " + _NAME + b"\r\n"
    _agreed(reply[-1], b"250", "EHLO")
    if not any(line[4:].upper().split()[:1] == [b"STARTTLS"] for line in reply):
        raise NoTlsError("the server does not offer STARTTLS; check its TLS settings")
    reply = yield b"STARTTLS\r\n"
    _agreed(reply[-1], b"220", "STARTTLS")


def _imap() -> Steps:
    reply = yield b""
    _greeted(reply[0], b"* OK", "imap")
    reply = yield b"a STARTTLS\r\n"
    while reply[0].startswith(b"* "):
        reply = yield b""
    _agreed(reply[0], b"A OK", "STARTTLS")


def _pop3() -> Steps:
    reply = yield b""
    _greeted(reply[0], b"+OK", "pop3")
    reply = yield b"STLS\r\n"
    _agreed(reply[0], b"+OK", "STLS")


def _ftp() -> Steps:
    reply = yield b""
    while reply[-1].startswith(b"120"):  # ready in some minutes
        reply = yield b""
    _greeted(reply[-1], b"220", "ftp")
    reply = yield b"AUTH TLS\r\n"
    _agreed(reply[-1], b"234", "AUTH TLS")


def _postgres() -> Steps:
    reply = yield _SSL_REQUEST
    if reply[0] == b"N":
        raise NoTlsError("the server refuses TLS; switch it on in the PostgreSQL server's settings")
    _greeted(reply[0], b"S", "postgres")


_PROTOCOLS = {"smtp": _smtp, "imap": _imap, "pop3": _pop3, "ftp": _ftp, "postgres": _postgres}
