"""Messages as signed JSON, by POST. docs/use/webhooks.md is what receivers are told."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime
from functools import cache

import requests

from alerts.messages import Message
from alerts.transports.base import Outcome
from alerts.transports.http_errors import answered, failure
from core.egress import EgressGuard
from core.http import BodyTooLarge, GuardedSession
from core.outbound import guard, trust_store

TOTAL_SEC = 10.0
MAX_ANSWER = 64 * 1024


def sign(body: bytes, *, secret: str, timestamp: int) -> str:
    """The value of `Pulsekeeper-Signature`; `timestamp` is that of `Pulsekeeper-Timestamp`, in seconds."""
    signed = str(timestamp).encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def send(url: str, message: Message, *, secret: str, key: str, now: datetime) -> Outcome:
    body = json.dumps(message.webhook_body, separators=(",", ":")).encode()
    timestamp = int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "Pulsekeeper-Delivery": key,
        "Pulsekeeper-Timestamp": str(timestamp),
        "Pulsekeeper-Signature": sign(body, secret=secret, timestamp=timestamp),
    }
    session = _session(guard(), trust_store())
    try:
        response = session.post(url, data=body, headers=headers, allow_redirects=False)
    except BodyTooLarge as error:
        # The status came before the body, and it is what counts.
        if error.response is None:
            return Outcome(delivered=False, detail=failure(error, seconds=TOTAL_SEC))
        response = error.response
    except (requests.RequestException, UnicodeError) as error:  # UnicodeError: of a host name that is none
        return Outcome(delivered=False, detail=failure(error, seconds=TOTAL_SEC))
    if 200 <= response.status_code < 300:
        return Outcome(delivered=True, detail=f"The receiver answered {response.status_code}.")
    if 300 <= response.status_code < 400:
        return Outcome(
            delivered=False,
            detail=f"The receiver answered {response.status_code}; redirects of a webhook are not followed.",
        )
    return Outcome(delivered=False, detail=answered(response), retry=response.status_code != 410)


@cache
def _session(guard: EgressGuard, ca_file: str | None) -> GuardedSession:
    return GuardedSession(guard, ca_file=ca_file, total_sec=TOTAL_SEC, max_body=MAX_ANSWER)
