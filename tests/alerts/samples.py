"""What messages look like: the files in docs/samples/alerts, which `python -m tests.generated` writes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alerts.events import EventType, Payload
from alerts.messages import Message, render

FOLDER = Path(__file__).parents[2] / "docs" / "samples" / "alerts"
BASE_URL = "https://pulsekeeper.example"
NOW = datetime(2026, 11, 21, 3, 16, 47, tzinfo=UTC)


def at(hour: int, minute: int, second: int = 0, *, day: int = 21) -> int:
    """Return a time in November 2026 as epoch milliseconds."""
    return int(datetime(2026, 11, day, hour, minute, second, tzinfo=UTC).timestamp() * 1000)


DOWN = Payload(
    EventType.DOWN,
    at(3, 16, 45),
    monitor_id="mon_5f0a7Qm3xVb2LkTz8RwYcE",
    monitor="Shop checkout",
    url="https://shop.example/checkout/health",
    project="prj_Zk3nWq8sUe1TgYv6HdRpLa",
    incident_id="inc_b7Xc2Mf9QnJt4KyGwSzVhA",
    started_at=at(3, 12, 5),
    reason_code="http_failure",
    detail="The status is 503; any from 200 to 399 was expected.",
    evidence={
        "address": "198.51.100.7:443",
        "tls_version": "TLSv1.3",
        "tls_issuer": "R11, Let's Encrypt, US",
        "status_line": "HTTP/1.1 503 Service Unavailable",
        "headers": [["retry-after", "120"]],
        "body": "<!doctype html>\n<title>503</title>\n<h1>No server is available to handle this request.</h1>\n",
    },
)
RECOVERED = replace(DOWN, event_type=EventType.RECOVERED, at=at(3, 16, 40), resolved_at=at(3, 16, 40))

LOCATION_OFFLINE = Payload(
    EventType.LOCATION_OFFLINE,
    at(3, 16, 45),
    project="Shop",
    started_at=at(3, 15, 44),
    detail="None of its agents is connected.",
    location_id="loc_e5gkxqh2mzrw7p3ndv6ybt4cai",
    location="Office",
)
LOCATION_ONLINE = replace(
    LOCATION_OFFLINE,
    event_type=EventType.LOCATION_ONLINE,
    started_at=at(3, 13, 28),
    at=at(3, 16, 40),
    resolved_at=at(3, 16, 40),
    detail=None,
)
ON_CALL_GAP = Payload(
    EventType.ON_CALL_GAP,
    at(3, 16, 45),
    project="Shop",
    started_at=at(22, 0),
    resolved_at=at(7, 0, day=22),
    detail="No one is on call from Sat 2026-11-21 23:00 until Sun 2026-11-22 08:00 (Europe/Berlin).",
    schedule_id="ocs_q3mzrw7p3ndv6ybt4caie5gkxh",
    title="Nights",
)


def other(number: int, name: str, payload: Payload = DOWN, **changes: Any) -> Payload:
    changes = {"monitor_id": f"mon_{number:022d}", "incident_id": f"inc_{number:022d}"} | changes
    return replace(payload, monitor=name, url=f"https://{number}.shop.example/", **changes)


TIMEOUT: dict[str, Any] = {
    "reason_code": "timeout",
    "detail": "No answer within 10 s: the connection stood, and nothing came.",
}
SAMPLES: dict[str, list[Payload]] = {
    "down": [DOWN],
    "reminder": [replace(DOWN, event_type=EventType.REMINDER, started_at=at(21, 11, 30, day=19))],
    "recovered": [RECOVERED],
    "grouped": [
        DOWN,
        *(other(n, f"API {region}", **TIMEOUT) for n, region in enumerate(("Frankfurt", "Virginia", "Tokyo"), 1)),
        other(4, "Nightly backup", type="heartbeat", reason_code="heartbeat_missed", detail="No ping since 02:00."),
        other(5, "Blog", RECOVERED),
        other(
            6,
            "Status page",
            replace(DOWN, event_type=EventType.SLOW, started_at=None, reason_code=None),
            incident_id=None,
            detail="It took 4200 ms; from 2000 ms on it is slow.",
        ),
    ],
    "location_offline": [LOCATION_OFFLINE],
    "on_call_gap": [ON_CALL_GAP],
    "expiry": [
        Payload(
            EventType.CERTIFICATE,
            at(3, 16, 0),
            monitor_id=DOWN.monitor_id,
            monitor=DOWN.monitor,
            url=DOWN.url,
            project=DOWN.project,
            expires_at=at(12, 0, 0, day=28),
        )
    ],
}


def rendered(name: str) -> Message:
    return render(SAMPLES[name], key="dlv_Hq2vXn5TbWc8LsRm3KzYpE", base_url=BASE_URL, now=NOW)


def files(name: str) -> dict[str, str]:
    """Return the content of a sample's files, by name."""
    message = rendered(name)
    return {
        f"{name}.txt": f"Subject: {message.subject}\n\n{message.text}\n---- to a chat service ----\n{message.short}\n",
        f"{name}.html": message.html,
        f"{name}.json": json.dumps(message.webhook_body, indent=2) + "\n",
    }


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in SAMPLES:
        for file, text in files(name).items():
            (FOLDER / file).write_text(text)
