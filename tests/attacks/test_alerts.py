"""Hanging receivers of one account, and their effect on other accounts and the operator."""

from __future__ import annotations

import re
import threading
from typing import Any

import requests
from celery import Celery

from alerts.testing import TESTS_OF_OWNER
from tests.alerts.receiver import Receiver
from tests.attacks.conftest import Stage
from tests.processes.client import Client
from tests.processes.waiting import until
from tests.targets.server import Seen, answer

ATTEMPTS = 40
PATIENCE_SEC = 60
DRAFT_TIMEOUT_MS = 4_000
"""With the 5 s allowed for a queue, less than a hanging channel test of Apprise."""


def flood(stage: Stage, channel_id: str) -> None:
    """Hand ATTEMPTS tests of a channel to the workers, as many web processes would, each within its own cap."""
    found = stage.database.execute("SELECT id FROM alerts_alertchannel WHERE public_id = %s", [channel_id])
    row = found.fetchone()
    assert row is not None
    with Celery(broker=stage.servers.redis_url, set_as_current=False) as web:
        for number in range(ATTEMPTS):
            web.send_task("alerts.tasks.send_test", [row[0], f"reply:{number}"], queue="alerts", expires=PATIENCE_SEC)


def test_hanging_channel_tests_of_one_account_delay_no_other(stage: Stage) -> None:
    url = stage.hanging.url("/topic").replace("http://", "ntfys://")
    held = stage.attacker.post("/alert-channels", {"kind": "apprise", "apprise_url": url})["id"]
    before = stage.hanging.connections
    with Receiver() as receiver:
        mine = stage.neighbour.post("/alert-channels", {"kind": "webhook", "url": receiver.url})["id"]
        flood(stage, held)
        until(lambda: stage.hanging.connections - before >= TESTS_OF_OWNER, PATIENCE_SEC, "some hang")
        draft = {"url": stage.quiet.url(), "timeout_ms": DRAFT_TIMEOUT_MS}
        assert stage.neighbour.post("/monitors/test", draft)["status"] in ("up", "slow")
        assert stage.neighbour.post(f"/alert-channels/{mine}/test")["delivered"] is True
        assert stage.neighbour.post("/monitors", draft)["status"] in ("up", "slow")
        assert requests.get(f"{stage.address}/readyz", timeout=PATIENCE_SEC).status_code == 200


def make_monitor(client: Client, url: str) -> str:
    body = {"url": url, "name": "Shop", "fail_threshold": 1, "timeout_ms": 20_000}
    made = client.post("/monitors", body)
    assert made["status"] in ("up", "slow")
    monitor_id: str = made["id"]
    return monitor_id


def test_a_dead_webhook_raises_no_alarm_and_delays_no_other(stage: Stage) -> None:
    broken = threading.Event()

    def routes(_: Seen) -> list[bytes]:
        return [answer(500 if broken.is_set() else 200)]

    target = stage.targets.serve(routes)
    with Receiver() as receiver:
        dead = stage.hook_owner.post("/alert-channels", {"kind": "webhook", "url": stage.hanging.url("/dead")})["id"]
        mine = stage.neighbour.post("/alert-channels", {"kind": "webhook", "url": receiver.url})["id"]
        theirs = [make_monitor(stage.hook_owner, target.url(f"/{number}")) for number in range(2)]
        own = make_monitor(stage.neighbour, target.url("/own"))
        broken.set()
        for monitor_id in theirs:
            stage.hook_owner.post(f"/monitors/{monitor_id}/checks")
        until(lambda: len(deliveries(stage.hook_owner, dead)) == 2, PATIENCE_SEC, "both outages are announced")
        stage.neighbour.post(f"/monitors/{own}/checks")
        until(lambda: any(own.encode() in call.body for call in receiver.calls), PATIENCE_SEC, "the alert arrives")

        def has_failed_often() -> bool:
            # As if each had waited for an hour, whether it was tried or waits for the other.
            stage.database.execute(
                "UPDATE alerts_delivery SET next_try_at = next_try_at - interval '1 hour'"
                " WHERE state = 'waiting' AND leased_until IS NULL AND next_try_at > now() - interval '1 hour'"
            )
            lags.append(alert_lag(stage))
            ready.add(requests.get(f"{stage.address}/readyz", timeout=PATIENCE_SEC).status_code)
            attempts: list[int] = [one["attempts"] for one in deliveries(stage.hook_owner, dead)]
            return sum(attempts) >= 4

        lags: list[float] = []
        ready: set[int] = set()
        until(has_failed_often, 2 * PATIENCE_SEC, "the dead webhook is tried again and again")
        # Deadlines of the neighbour's heartbeats from other tests may be missed during this test.
        about_own = [
            (one["state"], one["attempts"], item["news"])
            for one in deliveries(stage.neighbour, mine)
            for item in one["items"]
            if item["monitor_id"] == own
        ]
        assert about_own == [("sent", 1, "down")]
    assert max(lags) < 600, "no alert of an hour counts"
    assert ready == {200}


def deliveries(client: Client, channel_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/alert-channels/{channel_id}/deliveries")
    return found


def alert_lag(stage: Stage) -> float:
    text = requests.get(f"{stage.address}/metrics", timeout=PATIENCE_SEC).text
    (found,) = re.findall(r"^pulsekeeper_alert_lag_seconds ([\d.e+-]+)$", text, re.MULTILINE)
    return float(found)
