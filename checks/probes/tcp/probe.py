"""One tcp check: connect, lead to TLS, send the body, and read what the rules ask for."""

from __future__ import annotations

import codecs
import socket
import ssl
from collections.abc import Callable
from typing import Any

from checks.evidence import Evidence, mask_of_body, shown_body, shown_hex, shown_line
from checks.probes.faults import CERTIFICATE_WANTED, explain_certificate, explain_handshake, insecure
from checks.probes.loop import Loop
from checks.probes.tcp.connecting import ConnectingProbe
from checks.probes.tcp.spec import TcpSpec
from checks.probes.tcp.starttls import INJECTED, Dialogue, NoTlsError, StrangeServerError
from checks.probes.tcp.tls import TlsSession, trusting
from checks.spec import ReasonCode, RuleType, certificate_facts
from checks.verdict import Failure, contains_bytes, find_broken_text_rule, own_fault, timed_out

READ_CAP = 64 * 1024
_PIECE = 64 * 1024
_REPLACEMENT = "\ufffd"  # replaces any byte that is not UTF-8
_SHOWN_BYTES = 8 * 1024  # of what was received; some may have to be masked

# What a check waits for until its deadline, and where to look.
_DIALOGUE = "the server did not start TLS; check that it speaks this protocol, and its load"
_HANDSHAKE = "the TLS handshake did not finish; check the server's load and its TLS settings"
_TAKEN = "the server did not take all of the body; check the application and its load"
_ANSWER = "the server accepted the connection but sent nothing; check the application and its load"


class TcpProbe(ConnectingProbe):
    """One tcp check. `_take` is what receives bytes in this phase, and gets none at the end of the connection."""

    __slots__ = (
        *("_awaited", "_broken", "_decoder", "_dialogue", "_received"),
        *("_tail", "_take", "_then", "_tls", "_unsent", "_where"),
    )

    _take: Callable[[bytes], None]
    _then: Callable[[], None]

    def __init__(self, spec: TcpSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._dialogue: Dialogue | None = None
        self._tls: TlsSession | None = None
        self._unsent = memoryview(b"")
        self._awaited: list[Any] = []  # texts that were not received yet
        self._received = bytearray()
        self._decoder: codecs.IncrementalDecoder | None = None  # where a text has characters that stand for others
        self._tail = ""  # of what it decoded, as a text may be cut in two
        self._where = "The answer"
        self._broken: OSError | None = None

    def connected(self) -> None:
        if self.spec.starttls is not None:
            self._dialogue = Dialogue(self.spec.starttls)
            self.waits_for = _DIALOGUE
            self._send(self._dialogue.opening, self._await_reply)
        elif self.spec.tls:
            self._begin_tls()
        else:
            self._serve()

    def expire(self) -> None:
        if self._received:
            self._where = "What the server sent until the deadline"
            self._conclude()
        else:
            self.fail(timed_out(self.spec, self.waits_for))

    def find_failure(self) -> Failure | None:
        spec, received = self.spec, self._received
        if broken := find_broken_text_rule(spec.rules, received, where=self._where, as_hex=spec.as_hex):
            return broken
        if spec.rules and not received:
            return Failure(
                ReasonCode.CONNECTION_FAILURE,
                "The server closed the connection without sending anything; check the application and its log.",
            )
        return None

    def evidence(self) -> Evidence:
        mask, tls, spec = mask_of_body(self.spec.body), self._tls, self.spec
        facts: list[tuple[str, str]] = []
        if self._dialogue is not None and (said := shown_line(self._dialogue.said, mask)):
            facts.append((f"{spec.starttls} before TLS", said))
        head = bytes(self._received[:_SHOWN_BYTES])
        if head:
            facts.append(("received", f"{len(self._received):,} bytes"))
        if head and spec.as_hex and not mask.hides(head.decode("utf-8", "replace")):
            facts.append(("received in hex", shown_hex(head)))
        if tls is not None:
            facts += certificate_facts(verifies=spec.tls_verify, ca_certificate=spec.ca_certificate)
        certificate = tls.certificate() if tls is not None else None
        return Evidence(
            address=self.peer(),
            tls_version=tls.version() if tls is not None else None,
            tls_issuer=shown_line(certificate.issuer.encode(), mask) if certificate is not None else None,
            facts=tuple(facts),
            body=shown_body(head.decode("utf-8", "replace"), mask, whole=len(head) == len(self._received)),
        )

    # Bytes

    def _send(self, data: bytes, then: Callable[[], None]) -> None:
        """Send `data`, then call `then`."""
        self._unsent = memoryview(data)
        self._then = then
        self._send_on()

    def _send_on(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            self.loop.watch(self, self.socket, self._send_on, write=True)
        except OSError as error:
            if self.waits_for is _TAKEN and self.spec.rules:
                self._broken = error
                self._await_answer()  # the server may have answered before it hung up
            else:
                self._break(error)
        else:
            self._then()

    def _read(self, waits_for: str, take: Callable[[bytes], None]) -> None:
        self.waits_for = waits_for
        self._take = take
        self.loop.watch(self, self.socket, self._receive)

    def _receive(self) -> None:
        try:
            chunk = self.socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
        else:
            self._take(chunk)

    def _break(self, error: OSError) -> None:
        """End because the connection broke."""
        if self.waits_for is _HANDSHAKE:
            self._refuse_tls(error)
            return
        how = "reset" if isinstance(error, ConnectionResetError) else "broken off"
        when = {
            _DIALOGUE: "before TLS",
            _TAKEN: "before the body was sent",
            _ANSWER: f"after {len(self._received)} bytes of an answer",
        }[self.waits_for]
        detail = f"The connection was {how} {when}; check the application, its log, and the firewalls in front of it."
        self.fail(Failure(ReasonCode.CONNECTION_FAILURE, detail))

    # STARTTLS

    def _await_reply(self) -> None:
        self._read(_DIALOGUE, self._take_reply)

    def _take_reply(self, chunk: bytes) -> None:
        assert self._dialogue is not None
        if chunk:
            self._note_first_byte()
        try:
            command = self._dialogue.feed(chunk)
        except StrangeServerError as error:
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, str(error)))
            return
        except NoTlsError as error:
            self.fail(self._insecure(str(error)))
            return
        if command:
            self._send(command, self._await_reply)
        elif command is None:
            if self._has_more():
                self.fail(self._insecure(INJECTED))
            else:
                self._begin_tls()

    def _has_more(self) -> bool:
        """Return whether bytes wait to be read. The end of the connection is left to the handshake."""
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    # TLS

    def _begin_tls(self) -> None:
        self.waits_for = _HANDSHAKE
        try:
            context = trusting(self.loop.network.ca_file, self.spec.ca_certificate, verifies=self.spec.tls_verify)
        except OSError:
            self.fail(own_fault("its file of trusted authorities cannot be read"))
            return
        try:
            self._tls = TlsSession(context, self.spec.host)
        except ValueError:
            self.fail(self._insecure("no certificate can be for this host name; check the URL"))
            return
        self._shake_hands(self._tls)

    def _shake_hands(self, tls: TlsSession) -> None:
        try:
            is_complete = tls.shake_hands()
        except ssl.SSLError as error:
            self._refuse_tls(error)
        else:
            self._send(tls.outgoing(), self._serve if is_complete else self._await_handshake)

    def _await_handshake(self) -> None:
        self._read(_HANDSHAKE, self._take_handshake)

    def _take_handshake(self, chunk: bytes) -> None:
        assert self._tls is not None
        try:
            self._tls.feed(chunk)
        except ssl.SSLError as error:
            self._refuse_tls(error)
        else:
            self._shake_hands(self._tls)

    def _refuse_tls(self, error: OSError) -> None:
        self._note_certificate()
        if isinstance(error, ssl.SSLCertVerificationError):
            fault = explain_certificate(error.verify_code, error.verify_message)
        else:
            # Sockets say "Broken pipe" of a connection that was reset.
            fault = explain_handshake(str(error) if isinstance(error, ssl.SSLError) else "reset")
        self.fail(self._insecure(fault))

    def _insecure(self, fault: str) -> Failure:
        return insecure(fault, check_ssl=self.spec.check_ssl)

    def _note_certificate(self) -> None:
        if self._tls is not None and (certificate := self._tls.certificate()) is not None:
            self.outcome.cert_expires_at = certificate.end

    # The body and the answer

    def _serve(self) -> None:
        """Send the body over the connection that stands now."""
        spec = self.spec
        self._note_certificate()
        if not spec.body:
            self._await_answer()
            return
        self.waits_for = _TAKEN
        if self._tls is None:
            self._send(spec.body, self._await_answer)
            return
        try:
            self._tls.encrypt(spec.body)
        except ssl.SSLError as error:
            self._break(error)
        else:
            self._send(self._tls.outgoing(), self._await_answer)

    def _await_answer(self) -> None:
        spec = self.spec
        if not spec.rules:
            self._conclude()
            return
        values = [rule.value for rule in spec.rules if rule.type is RuleType.TEXT_CONTAINS]
        if not spec.as_hex and any(_REPLACEMENT in value for value in values):
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        in_bytes = not spec.as_hex and self._decoder is None
        self._awaited = [value.encode("utf-8", "surrogatepass") for value in values] if in_bytes else values
        if self._tls is None:
            self._read(_ANSWER, self._take_answer)
            return
        self._read(_ANSWER, self._take_encrypted)
        self._take_decrypted(self._tls)  # what came with the end of the handshake

    def _take_encrypted(self, chunk: bytes) -> None:
        assert self._tls is not None
        try:
            self._tls.feed(chunk)
        except ssl.SSLError as error:
            self._break(error)
        else:
            self._take_decrypted(self._tls)

    def _take_decrypted(self, tls: TlsSession) -> None:
        try:
            content = tls.read()
        except ssl.SSLError as error:
            # TLS 1.3 asks for a client certificate when the handshake is through.
            if CERTIFICATE_WANTED in str(error):
                self._refuse_tls(error)
            else:
                self._break(error)
            return
        if content:
            self._take_answer(content)
        if tls.ended and not self.ended:
            self._take_answer(b"")

    def _take_answer(self, chunk: bytes) -> None:
        """Take content. It is enough once all texts were found, or at the cap, or at the end of the connection."""
        if not chunk:
            if self._broken is not None:  # the failed `send` took the reset
                self._break(self._broken)
                return
            if not self._received:
                self._where = "The server closed the connection without sending anything: its answer"
            self._conclude()
            return
        self._note_first_byte()
        received = self._received
        known = len(received)
        received += chunk[: READ_CAP - known]
        if self._decoder is not None:
            text = self._tail + self._decoder.decode(received[known:])
            self._awaited = [value for value in self._awaited if value not in text]
            self._tail = text[-max(map(len, self._awaited), default=1) :]
        elif self._awaited:
            self._awaited = [value for value in self._awaited if not self._has_come(value, known)]
        if not self._awaited:
            self._conclude()
        elif len(received) == READ_CAP:
            self._where = f"The answer (its first {READ_CAP // 1024} KiB)"
            self._conclude()

    def _has_come(self, value: Any, known: int) -> bool:
        """Return whether a text ends in what was received after `known` bytes.

        In UTF-8 a valid text is contained exactly if its bytes are.
        """
        since = self._received[max(0, known - len(value)) :]  # a text may be cut in two
        return contains_bytes(since.hex(), value) if self.spec.as_hex else value in since

    def _note_first_byte(self) -> None:
        if self.outcome.ttfb_ms is None:
            self.outcome.ttfb_ms = self.elapsed_ms()

    def _conclude(self) -> None:
        self.outcome.latency_ms = self.elapsed_ms()
        self.finish()
