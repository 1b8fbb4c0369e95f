"""Webhooks: signed JSON, sent by POST. docs/use/webhooks.md describes them for receivers."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime

from alerts.messages import Message
from alerts.transports.base import ChannelKind, Config, Setting, UrlSetting, mask_url, matching, require_public_url
from core.ids import random_text
from notifications.outbox import SendResult

TOTAL_SEC = 10.0
MAX_ANSWER = 64 * 1024


def sign(body: bytes, *, secret: str, timestamp: int) -> str:
    """Return the value of `Pulsekeeper-Signature`. `timestamp` is `Pulsekeeper-Timestamp`, in seconds."""
    signed = str(timestamp).encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


class Webhook(ChannelKind):
    name = "webhook"
    label = "Webhook"
    icon = "link"
    about = "A signed POST request with JSON to your URL."
    settings = (
        UrlSetting(
            "url",
            "URL",
            check=lambda url: require_public_url(url, instead="a receiver knows us by the signature"),
            help="https:// or http://. Each alert is a POST request with a JSON body.",
            example="https://…",
        ),
        Setting(
            "secret",
            "Secret",
            check=matching(r"[ -~]{16,200}", "16 to 200 printable ASCII characters"),
            help="Signs each request. Generated if omitted. 16 to 200 characters.",
            required=False,
            default=lambda: f"whs_{random_text(32)}",
            strip=False,
        ),
    )

    def hint(self, config: Config) -> str:
        return mask_url(config["url"])

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from alerts.transports import http  # only workers load it

        body = json.dumps(message.webhook_body, separators=(",", ":")).encode()
        timestamp = int(now.timestamp())
        headers = {
            "Content-Type": "application/json",
            "Pulsekeeper-Delivery": key,
            "Pulsekeeper-Timestamp": str(timestamp),
            "Pulsekeeper-Signature": sign(body, secret=config["secret"], timestamp=timestamp),
        }
        return http.post(config["url"], body=body, headers=headers, total_sec=TOTAL_SEC, max_answer=MAX_ANSWER)
