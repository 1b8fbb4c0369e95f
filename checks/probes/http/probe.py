"""The http protocol: one check as requests, one after the other, and what all of them together show."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime
from typing import Any

import pycurl

from checks.evidence import Mask, shown_body, shown_line, shown_url
from checks.probes.http.evidence import HttpEvidence, Redirect, shown_headers
from checks.probes.http.failures import explain, explain_body
from checks.probes.http.request import Request, as_get, first_request, redirected
from checks.probes.http.rules import decode_body
from checks.probes.http.spec import HttpSpec
from checks.probes.http.target import BadRequestError
from checks.probes.http.transfer import HEAD_CAP, Hop, Transfer
from checks.probes.http.verdict import Exchange, judge
from checks.probes.loop import Loop, Probe
from checks.probes.resolver import Answer
from checks.spec import CheckOutcome, ReasonCode
from checks.verdict import Failure, own_fault, timed_out

MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEAD_REFUSED = frozenset({405, 501})
_GRACE_SECONDS = 0.1  # how long past the deadline libcurl may keep a transfer


class IdleTransfers(deque[Transfer]):
    """Transfers to be reused by the probes of one thread."""


class HttpProbe(Probe[HttpSpec]):
    """One http check. It has a transfer while a request is out, none while it waits for a name."""

    __slots__ = (
        "_asked_at",
        "_connect_us",
        "_elapsed_us",
        "_idle",
        "_request",
        "_seen",
        "_sending",
        "_trail",
        "_transfer",
    )

    finding: Exchange

    def __init__(self, spec: HttpSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop, Exchange())
        self._idle: IdleTransfers = loop.resources[IdleTransfers]
        self._transfer: Transfer | None = None
        self._sending = False
        self._request: Request | None = None
        self._asked_at = 0.0
        self._elapsed_us = 0  # spent on earlier requests and on names, which libcurl does not see
        self._connect_us = 0
        self._trail: list[tuple[int, str]] = []  # the redirects followed: status, and where to
        self._seen: set[tuple[str, str]] | None = None

    def start(self) -> None:
        try:
            request = first_request(self.spec)
        except BadRequestError as error:
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, str(error)))
            return
        self._send(request)

    def expire(self) -> None:
        if not self._sending or self._transfer is None:
            self.fail(timed_out(self.spec, "the name servers gave no answer; check the domain's name servers"))
            return
        # libcurl forgot the transfer: its own timeout is earlier.
        self.loop.cancel_transfer(self._transfer.easy)
        self._take_response(pycurl.E_OPERATION_TIMEDOUT, "overdue")

    def judge(self, now: datetime) -> CheckOutcome:
        return judge(self.spec, self.finding, now=now)

    def close(self) -> None:
        if self._transfer is not None:
            self._idle.append(self._transfer)
            self._transfer = None

    def _send(self, request: Request) -> None:
        """Send a request once its host's addresses are known."""
        self._request = request
        host = request.target.host
        if host is None:
            self._transmit(request, None)
            return
        if (answer := self.loop.network.resolver.recall(host)) is not None:
            self._transmit(request, answer.addresses)
            return
        self.close()
        self._asked_at = time.monotonic()
        self.loop.resolve(self, host, self._take_answer)

    def _take_answer(self, answer: Answer) -> None:
        self._elapsed_us += int((time.monotonic() - self._asked_at) * 1_000_000)
        if self._request is None or answer.error is not None:
            error = answer.error or ""
            self.fail(own_fault(error) if answer.ours else Failure(ReasonCode.DNS_FAILURE, error))
        else:
            self._transmit(self._request, answer.addresses)

    def _transmit(self, request: Request, addresses: str | None) -> None:
        remaining_ms = round((self.deadline - time.monotonic()) * 1000)
        if remaining_ms <= 0:
            self.fail(timed_out(self.spec, "the time was used up before the request could be sent; raise the timeout"))
            return
        transfer, self._transfer = self._transfer, None  # lost, not reused, if libcurl refuses it
        if transfer is None:
            transfer = self._idle.pop() if self._idle else Transfer(self.loop.network)
        transfer.start(
            request,
            timeout_ms=remaining_ms,
            addresses=addresses,
            keep_body=bool(self.spec.rules),
            follow=self.spec.follow_redirects,
        )
        self.loop.transfer(self, transfer.easy, self._take_response)
        self._transfer = transfer
        if not self._sending:
            self._sending = True
            self.deadline += _GRACE_SECONDS

    def _take_response(self, code: int, message: str) -> None:
        """Read how the request ended: another one follows, or the exchange is complete."""
        self._sending = False
        self.deadline -= _GRACE_SECONDS
        request, transfer = self._request, self._transfer
        assert request is not None
        assert transfer is not None
        hop = transfer.finish(code, message)
        if hop.connect_us and not self._connect_us:
            self._connect_us = self._elapsed_us + hop.connect_us
        failure = explain(self.spec, hop, transfer)
        status = hop.status
        following: Request | Failure | None = failure
        if failure is None:
            if request.method == "HEAD" and status in _HEAD_REFUSED and self.spec.expect_status != status:
                following = as_get(request)
            elif self.spec.follow_redirects and status in _REDIRECTS:
                following = self._redirected(request, hop)
        if isinstance(following, Request):
            self._elapsed_us += hop.total_us
            self._send(following)
        else:
            self._complete(hop, transfer, following)

    def _redirected(self, request: Request, hop: Hop) -> Request | Failure:
        """Return the request that a redirect asks for, or why there is none."""
        if len(self._trail) == MAX_REDIRECTS:
            return _redirect_failure(f"there are more than {MAX_REDIRECTS} in a row")
        if not hop.location:
            return _redirect_failure(f"status {hop.status} came without a Location")
        try:
            following = redirected(
                request,
                self.spec,
                status=hop.status,
                location=hop.location.decode("utf-8", "surrogateescape"),
            )
        except BadRequestError as error:
            return _redirect_failure(f"status {hop.status} leads nowhere ({error})")
        if self._seen is None:
            self._seen = {(request.method, request.target.url)}
        if (following.method, following.target.url) in self._seen:
            return _redirect_failure("it leads back to where it came from, in a circle")
        self._seen.add((following.method, following.target.url))
        self._trail.append((hop.status, following.target.url))
        return following

    def _complete(self, hop: Hop, transfer: Transfer, failure: Failure | None) -> None:
        exchange = self.finding
        exchange.failure = failure
        exchange.http_status = hop.status or None
        if self._connect_us:
            exchange.connect_ms = self._connect_us // 1000
        if hop.ttfb_us:
            exchange.ttfb_ms = (self._elapsed_us + hop.ttfb_us) // 1000
        if failure is None or failure.reason_code is ReasonCode.REDIRECT_FAILURE:
            exchange.latency_ms = (self._elapsed_us + hop.total_us) // 1000
        if failure is None:
            exchange.body_fault = explain_body(transfer)
            if self.spec.rules:
                exchange.content_type = transfer.content_type()
                exchange.body = transfer.take_body()
                exchange.over_cap = transfer.over_cap
                exchange.unknown_coding = transfer.unknown_coding
        if transfer.tls:
            exchange.cert_expires_at = transfer.certificate_end()
        self.finish()

    def evidence(self) -> HttpEvidence:
        mask, transfer = Mask(self.spec.headers), self._transfer
        redirects = tuple(Redirect(status, shown_url(url, mask)) for status, url in self._trail)
        if transfer is None:  # none was sent, or not to the last redirect
            return HttpEvidence(redirects=redirects)
        return HttpEvidence(
            address=transfer.peer(),
            tls_version=transfer.tls_version,
            tls_issuer=shown_line((transfer.certificate(b"Issuer") or "").encode(), mask),
            status_line=shown_line(transfer.status_line, mask),
            headers=shown_headers(transfer.lines, mask),
            body=shown_body(
                decode_body(transfer.head, transfer.content_type()),
                mask,
                whole=len(transfer.head) < HEAD_CAP,
            ),
            redirects=redirects,
        )


def _redirect_failure(what: str) -> Failure:
    return Failure(
        ReasonCode.REDIRECT_FAILURE,
        f"The redirect cannot be followed: {what}; check the redirects, or watch their end.",
    )
