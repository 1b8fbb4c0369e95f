"""The target of one tenant sends responses that are slow to judge, while monitors of another tenant are checked."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.attacks.conftest import Stage
from tests.processes.client import Client
from tests.processes.waiting import until
from tests.targets.server import Pause, Script, TargetServer, answer

BAIT = answer(503, b"", "Location: " + "?" * 60_000)
FINE: Script = [Pause(0.5), answer(200, b"fine")]  # pending half of the time
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


def test_a_hostile_target_delays_no_other_account(stage: Stage) -> None:
    paths = [".".join("a" * (64 - number)) for number in range(4)]
    with (
        TargetServer() as targets,
        Client(stage.up, "healthy@example.com") as victim,
        Client(stage.up, "hostile@example.com") as attacker,
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
            counts = counted(stage)
            if counts[healthy, "down"]:
                return True
            checks = {each: sum(counts[each, verdict] for verdict in ("up", "slow", "down")) for each in hostile}
            return counts[healthy, "up"] >= HEALTHY and min(checks.values()) >= HOSTILE

        until(over, PATIENCE, "all are checked several times")
        found = results(victim, healthy)
        assert [(result["status"], result["detail"]) for result in found] == [("up", None)] * len(found)
        assert {result["status"] for result in results(attacker, hostile[0])} == {"down"}
        for client, monitor_id in ((victim, healthy), *((attacker, each) for each in hostile)):
            assert client.send("DELETE", f"/monitors/{monitor_id}").ok


def counted(stage: Stage) -> Counter[tuple[str, str]]:
    """Return how many results each monitor has of each verdict. Asking the API so often would be throttled."""
    found = stage.database.execute(
        "SELECT public_id, verdict, count(*) FROM checks_checkresult"
        " JOIN monitors_monitor ON monitors_monitor.id = monitor_id GROUP BY 1, 2"
    )
    return Counter({(public_id, verdict): count for public_id, verdict, count in found})
