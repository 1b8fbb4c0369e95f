"""A tenant's target answers what is slow to read, while a monitor of another tenant is checked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.client import PASSWORD, Client, manage
from tests.processes.conftest import data_dir, start  # noqa: F401
from tests.processes.up import Start
from tests.processes.waiting import until
from tests.targets.server import Pause, Script, TargetServer, answer

BAIT = answer(503, b"", "Location: " + "?" * 60_000)
FINE: Script = [Pause(0.5), answer(200, b"fine")]  # under way half of the time
JSON_BAIT = answer(200, b'{"a":' * 64 + b"[" + b"1," * 500_000 + b"1]" + b"}" * 64)
HOSTILE, HEALTHY = 4, 10  # results of each kind that are waited for
PATIENCE = 240


def monitor(client: Client, url: str, **given: Any) -> str:
    body = {"url": url, "method": "GET", "interval_sec": 1, "fail_threshold": 1}
    made: str = client.post("/monitors", body | {"timeout_ms": 10_000, "slow_ms": 10_000} | given)["id"]
    return made


def results(client: Client, monitor_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/monitors/{monitor_id}/checks?limit=100")
    return found


@pytest.mark.usefixtures("data_dir")
def test_a_hostile_target_delays_no_other_account(
    start: Start,  # noqa: F811
    clean_environment: dict[str, str],
) -> None:
    up = start(ADMIN_PASSWORD=PASSWORD, THROTTLE_SCALE="0")
    up.wait_until_up()
    manage(
        up,
        "from accounts.models import Plan; from accounts.services import create_account\n"
        "Plan.objects.update(min_interval_sec=1)\n"
        "for name in ('hostile', 'healthy'):\n"
        f"    create_account(email=f'{{name}}@example.com', password={PASSWORD!r}, plan='pro')",
        clean_environment,
    )
    paths = [".".join("a" * (64 - number)) for number in range(4)]
    with (
        TargetServer() as targets,
        Client(up, "healthy@example.com") as victim,
        Client(up, "hostile@example.com") as attacker,
    ):
        healthy = monitor(victim, targets.serve(FINE).url())
        hostile = [
            *(monitor(attacker, targets.serve([BAIT]).url(f"/{number}")) for number in range(3)),
            monitor(attacker, targets.serve([BAIT]).url("/redirected"), follow_redirects=True),
            monitor(
                attacker,
                targets.serve([JSON_BAIT]).url(),
                type="api",
                content_rules=[{"type": "json_field", "path": path} for path in paths],
            ),
        ]

        def over() -> bool:
            found = results(victim, healthy)
            if any(result["status"] != "up" for result in found):
                return True
            counts = [len(results(attacker, each)) for each in hostile]
            return len(found) >= HEALTHY and min(counts) >= HOSTILE

        until(over, PATIENCE, "all are checked several times")
        found = results(victim, healthy)
        assert [(result["status"], result["detail"]) for result in found] == [("up", None)] * len(found)
        assert {result["status"] for result in results(attacker, hostile[0])} == {"down"}
