"""One check under way: which request comes next, and what all of them together say."""

from __future__ import annotations

from checks.evidence import Evidence, Mask, Redirect, shown_body, shown_headers, shown_line, shown_url
from checks.probes.http.failures import explain, explain_body, parse_certificate_end, timed_out
from checks.probes.http.request import BadRequestError, Request, as_get, first_request, redirected
from checks.probes.http.rules import decode_body
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import HEAD_CAP, Hop, Transfer
from checks.spec import ReasonCode
from checks.verdict import Exchange, Failure

MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEAD_REFUSED = frozenset({405, 501})


class Probe:
    """The state of one check. `deadline` is in seconds of the monotonic clock.

    `request` is what to send next, None once `exchange` says how it ended.
    """

    __slots__ = (
        "_connect_us",
        "_elapsed_us",
        "_seen",
        "_trail",
        "deadline",
        "exchange",
        "request",
        "spec",
    )

    def __init__(self, spec: HttpSpec, *, now: float) -> None:
        self.spec = spec
        self.deadline = now + spec.timeout_ms / 1000
        self.exchange = Exchange()
        self.request: Request | None = None
        self._elapsed_us = 0  # spent on earlier requests and on names
        self._connect_us = 0
        self._trail: list[tuple[int, str]] = []  # the redirects followed: status, and where to
        self._seen: set[tuple[str, str]] | None = None
        try:
            self.request = first_request(spec)
        except BadRequestError as error:
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, str(error)))

    def remaining_ms(self, now: float) -> int:
        """Whole milliseconds until the deadline, never negative."""
        return max(0, round((self.deadline - now) * 1000))

    def spend(self, seconds: float) -> None:
        """Count time that libcurl does not see: the wait for a name."""
        self._elapsed_us += int(seconds * 1_000_000)

    def fail(self, failure: Failure) -> None:
        self.request = None
        self.exchange.failure = failure

    def run_out(self, doing: str) -> None:
        self.fail(timed_out(self.spec, doing))

    def advance(self, hop: Hop, transfer: Transfer) -> None:
        """Take in how the current request ended: another one follows, or the exchange is complete."""
        request = self.request
        if request is None:
            return
        if hop.connect_us and not self._connect_us:
            self._connect_us = self._elapsed_us + hop.connect_us
        failure = explain(self.spec, hop, transfer)
        status = hop.status
        if failure is None:
            if request.method == "HEAD" and status in _HEAD_REFUSED and self.spec.expect_status != status:
                self._elapsed_us += hop.total_us
                self.request = as_get(request)
                return
            if self.spec.follow_redirects and status in _REDIRECTS:
                failure = self._follow(request, hop)
                if failure is None:
                    return
        self._complete(hop, transfer, failure)

    def _follow(self, request: Request, hop: Hop) -> Failure | None:
        """Set the request that a redirect asks for, or say why there is none."""
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
        self._elapsed_us += hop.total_us
        self.request = following
        return None

    def _complete(self, hop: Hop, transfer: Transfer, failure: Failure | None) -> None:
        exchange = self.exchange
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
        if transfer.https and (text := transfer.certificate(b"Expire date")) is not None:
            exchange.cert_expires_at = parse_certificate_end(text)
        self.request = None

    def evidence(self, transfer: Transfer | None) -> Evidence:
        """What was seen of the target; `transfer` is that of the last request, None where none was sent."""
        mask = Mask(self.spec.headers)
        redirects = tuple(Redirect(status, shown_url(url, mask)) for status, url in self._trail)
        if transfer is None:
            return Evidence(redirects=redirects)
        return Evidence(
            address=_spelled(transfer.peer()),
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


def _spelled(peer: tuple[str, int] | None) -> str | None:
    if peer is None:
        return None
    host, port = peer
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _redirect_failure(what: str) -> Failure:
    return Failure(
        ReasonCode.REDIRECT_FAILURE,
        f"The redirect cannot be followed: {what}; check the redirects, or watch their end.",
    )
