"""Monitor a target through an outage and through killed processes, on the real process tree."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.processes.client import Client, manage
from tests.processes.up import Up
from tests.processes.waiting import until
from tests.site import Site


def stored(up: Up, environment: dict[str, str], *monitor_ids: str) -> dict[str, Any]:
    """Return results as [claim, verdict, checked_at] and changes as [before, after, at], in epoch ms."""
    code = f"""
import json
from monitors.models import Monitor
of = {{"monitor_id__in": list(Monitor.objects.filter(public_id__in={monitor_ids!r}).values_list("pk", flat=True))}}
from checks.results.models import CheckResult
from core.clock import to_ms
from monitors.models import StatusChange
results = CheckResult.objects.filter(**of).order_by("claim").values_list("claim", "verdict", "checked_at")
changes = StatusChange.objects.filter(**of).order_by("pk").values_list("before", "after", "at")
print(json.dumps([
    [[c, v, to_ms(at)] for c, v, at in results], [[b, a, to_ms(at)] for b, a, at in changes]
]))
"""
    results, changes = json.loads(manage(up, code, environment))
    return {"results": results, "changes": changes}


def kill(up: Up, name: str) -> None:
    """Kill a process and wait until it runs again."""
    pid = up.pid_of(name)
    psutil.Process(pid).send_signal(signal.SIGKILL)
    until(lambda: up.pid_of(name) != pid, 60, f"{name} was restarted")


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    client = Client(up)
    yield client
    client.close()


def test_a_monitor_is_followed_through_an_outage(up: Up, client: Client, clean_environment: dict[str, str]) -> None:
    with Site() as site:
        # The worker for first checks is stopped, so the status is null until the scheduler makes the check.
        interactive = psutil.Process(up.pid_of("interactive"))
        interactive.suspend()
        try:
            body = {"url": site.url("/ok"), "interval_sec": 1, "timeout_ms": 1000, "fail_threshold": 2}
            made = client.post("/monitors", body)
            assert (made["status"], made["status_since"], made["uptime_24h"]) == (None, None, None)
            seen = [client.wait_for(made["id"], "up")]
        finally:
            interactive.resume()
        site.stop()
        seen.append(client.wait_for(made["id"], "down"))
        site.start()
        seen.append(client.wait_for(made["id"], "up"))
        # Read while the target answers, as the monitor goes down again without it.
        found = stored(up, clean_environment, made["id"])
    times = [monitor["status_since"] for monitor in seen]
    assert times == sorted(times)
    steps = zip([None, "up", "down"], ["up", "down", "up"], times, strict=True)
    assert found["changes"] == [[before, after, at] for before, after, at in steps]
    verdicts = {at: verdict for _, verdict, at in found["results"]}
    assert [verdicts[at] for at in times] == ["up", "down", "up"], "each change is the time of a stored result"
    run = [verdict for _, verdict, at in found["results"] if times[0] <= at <= times[1]]
    assert run[-3:] == ["up", "down", "down"], "down with the second failure in a row, not with the first"
    claims = [claim for claim, _, _ in found["results"]]
    assert len(claims) == len(set(claims))


def test_killed_worker_and_beat_lose_no_more_than_a_lease(
    up: Up, client: Client, clean_environment: dict[str, str]
) -> None:
    with Site() as site:
        body = {"url": site.url("/ok"), "interval_sec": 1, "timeout_ms": 1000, "fail_threshold": 1}
        monitor_id = client.post("/monitors", body)["id"]
        hanging = client.post("/monitors", body | {"url": site.url("/hang")})["id"]
        for name in ("worker", "beat"):
            begun = site.hung
            until(lambda begun=begun: site.hung > begun, 60, "a check is running")  # type: ignore[misc]
            kill(up, name)
            for watched in (monitor_id, hanging):
                client.wait_for_another_check(watched)
        assert client.monitor(monitor_id)["status"] == "up"
        changes = [change[:2] for change in stored(up, clean_environment, monitor_id, hanging)["changes"]]
        # A monitor that was stale until the lease of its lost check expired has two changes between equal statuses.
        real = [(before, after) for before, after in changes if before != after]
        assert real == [(None, "up"), (None, "down")], "no false change"

    manage(
        up,
        "from checks.results.models import CheckResult; from django.db.models import Count;"
        "assert not CheckResult.objects.values('monitor_id', 'claim').annotate(n=Count('*')).filter(n__gt=1)",
        clean_environment,
    )
