"""The http protocol: one check as requests, one after the other, and what all of them together show."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import pycurl
from msgspec.structs import replace

from checks.evidence import Mask, shown_body, shown_line, shown_url
from checks.probes.http.evidence import HttpEvidence, shown_headers
from checks.probes.http.request import BadRequestError, Request, first_request, redirected
from checks.probes.http.rules import decode_body
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import HEAD_CAP, Response, Transfer
from checks.probes.http.verdict import explain, find_failure
from checks.probes.loop import Loop, Probe
from checks.spec import ReasonCode, certificate_facts
from checks.verdict import Failure, timed_out

MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEAD_REFUSED = frozenset({405, 501})
_HEAVY_BYTES = 64 * 1024
_GRACE_SECONDS = 0.1  # how long past the deadline libcurl may keep a transfer


class IdleTransfers(deque[Transfer]):
    """Transfers to be reused by the probes of one thread."""


class BadRedirectError(ValueError):
    """The redirect cannot be followed. The text is part of a sentence."""


class HttpProbe(Probe[HttpSpec]):
    """One http check. It has a transfer from each request on, and none while it waits for a name."""

    __slots__ = ("_asked_at", "_connect_us", "_elapsed_us", "_idle", "_request", "_seen", "_trail", "_transfer")

    _request: Request

    def __init__(self, spec: HttpSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._idle: IdleTransfers = loop.resources[IdleTransfers]
        self._transfer: Transfer | None = None
        self._asked_at = 0.0
        self._elapsed_us = 0  # spent on earlier requests and on names, which libcurl does not see
        self._connect_us = 0
        self._trail: list[tuple[int, str]] = []  # the redirects followed: status, and where to
        self._seen: set[tuple[str, str]] | None = None

    def start(self) -> None:
        try:
            self._send(first_request(self.spec))
        except BadRequestError as error:
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, str(error)))

    def expire(self) -> None:
        if self._transfer is None:
            self.fail(timed_out(self.spec, "the name servers gave no answer; check the domain's name servers"))
            return
        # libcurl forgot the transfer: its own timeout is earlier.
        self.loop.cancel_transfer(self._transfer.easy)
        self._take_response(pycurl.E_OPERATION_TIMEDOUT, "overdue")

    def is_heavy(self) -> bool:
        body = None if self._transfer is None else self._transfer.response.body
        return bool(self.spec.rules) and len(body or b"") > _HEAVY_BYTES

    def may_repeat(self) -> bool:
        return not self.spec.only_2xx

    def find_failure(self) -> Failure | None:
        return None if self._transfer is None else find_failure(self.spec, self._transfer.response)

    def close(self) -> None:
        if self._transfer is not None:
            self._transfer.forget()  # its body, too
            self._idle.append(self._transfer)
            self._transfer = None

    def _send(self, request: Request) -> None:
        """Send a request once its host's addresses are known."""
        self.close()
        self._request = request
        if request.target.host is None:
            self._transmit(())
        else:
            self._asked_at = time.monotonic()
            self.loop.resolve(self, request.target.host, self._take_addresses)

    def _take_addresses(self, addresses: Sequence[str]) -> None:
        self._elapsed_us += int((time.monotonic() - self._asked_at) * 1_000_000)
        self._transmit(addresses)

    def _transmit(self, addresses: Sequence[str]) -> None:
        remaining_ms = round((self.deadline - time.monotonic()) * 1000)
        if remaining_ms <= 0:
            self.fail(timed_out(self.spec, "the time was used up before the request could be sent; raise the timeout"))
            return
        transfer = self._idle.pop() if self._idle else Transfer(self.loop.network)
        transfer.start(self._request, self.spec, timeout_ms=remaining_ms, addresses=addresses)
        self.loop.transfer(self, transfer.easy, self._take_response)
        self._transfer = transfer  # lost, not reused, if libcurl refuses it
        self.deadline += _GRACE_SECONDS

    def _take_response(self, code: int, message: str) -> None:
        """Read how the request ended: another one follows, or the check is complete."""
        self.deadline -= _GRACE_SECONDS
        transfer = self._transfer
        assert transfer is not None
        response = transfer.finish(code, message)
        if response.connect_us and not self._connect_us:
            self._connect_us = self._elapsed_us + response.connect_us
        self.failure = explain(self.spec, transfer)
        if self.failure is None:
            try:
                following = self._following(response)
            except BadRedirectError as error:
                self.failure = Failure(
                    ReasonCode.REDIRECT_FAILURE,
                    f"The redirect cannot be followed: {error}; check the redirects, or watch their end.",
                )
            else:
                if following is not None:
                    self._elapsed_us += response.total_us
                    self._send(following)
                    return
        outcome = self.outcome
        outcome.http_status = response.status or None
        if not self.spec.follow_redirects:  # they would be those of one of several requests
            if self._connect_us:
                outcome.connect_ms = self._connect_us // 1000
            if response.ttfb_us:
                outcome.ttfb_ms = (self._elapsed_us + response.ttfb_us) // 1000
        if self.failure is None or self.failure.reason_code is ReasonCode.REDIRECT_FAILURE:
            outcome.latency_ms = (self._elapsed_us + response.total_us) // 1000
        if transfer.tls:
            outcome.cert_expires_at = transfer.certificate_end()
        self.finish()

    def _following(self, response: Response) -> Request | None:
        """Return the request that a response asks for, None if it is the last one. Raises BadRedirectError."""
        request, status = self._request, response.status
        if request.method == "HEAD" and status in _HEAD_REFUSED and self.spec.expect_status != status:
            return replace(request, method="GET")
        if not self.spec.follow_redirects or status not in _REDIRECTS:
            return None
        if len(self._trail) == MAX_REDIRECTS:
            raise BadRedirectError(f"there are more than {MAX_REDIRECTS} in a row")
        if not response.location:
            raise BadRedirectError(f"status {status} came without a Location")
        location = response.location.decode("utf-8", "surrogateescape")
        try:
            following = redirected(request, self.spec, status=status, location=location)
        except BadRequestError as error:
            raise BadRedirectError(f"status {status} leads nowhere ({error})") from error
        if self._seen is None:
            self._seen = {(request.method, request.target.url)}
        if (following.method, following.target.url) in self._seen:
            raise BadRedirectError("it leads back to where it came from, in a circle")
        self._seen.add((following.method, following.target.url))
        self._trail.append((status, following.target.url))
        return following

    def evidence(self) -> HttpEvidence:
        mask, transfer = Mask(self.spec.headers), self._transfer
        redirects = tuple((status, shown_url(url, mask)) for status, url in self._trail)
        if transfer is None:  # none was sent, or not to the last redirect
            return HttpEvidence(redirects=redirects)
        response = transfer.response
        return HttpEvidence(
            address=transfer.peer(),
            tls_version=transfer.tls_version,
            tls_issuer=shown_line((transfer.certificate(b"Issuer") or "").encode(), mask),
            facts=certificate_facts(verifies=self.spec.tls_verify, ca_certificate=self.spec.ca_certificate)
            if transfer.tls
            else (),
            status_line=shown_line(response.status_line, mask),
            headers=shown_headers(response.lines, mask),
            body=shown_body(
                decode_body(response.head, response.content_type), mask, whole=len(response.head) < HEAD_CAP
            ),
            redirects=redirects,
        )
