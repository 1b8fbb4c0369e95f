"""Cut the uplink of the workers, and then take a target down while the uplink works.

    python -m tests.faults.own_network [monitors] [seconds] [link|silent]

Needs root and iproute2. `link` takes the link down; `silent` drops all packets. The last line printed is one JSON
object. `false_downs`: results and changes that report down while only the uplink was cut. `alerts`: those sent during
that time. `seconds_until_reported`: by /readyz. `seconds_until_checked`: all monitors, after the uplink returned.
`seconds_until_down`: the first monitor, after the target went down. Exits 1 if a false result was recorded.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import requests

from tests.alerts.receiver import Receiver
from tests.faults.hosts import NamespaceHost, Network, isolated
from tests.faults.reach import database_url, redis_url, relay_broker, relay_database
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place, Tree
from tests.processes.waiting import until
from tests.site import Site

PORT = 8000
PATIENCE = 180  # seconds, on a machine that is busy with other tests
PASSWORD = "correct horse battery"
OWNER = "owner@example.com"
TIMEOUT_MS = 3_000
PER_SECOND = 40  # checks


class Internet(Network):
    """A network with public addresses: private ones count as the operator's own."""

    @property
    def prefix(self) -> str:
        return "93.184.216"


SERVERS, INTERNET = Network("servers", 1), Internet("internet", 2)


def main() -> None:
    isolated("tests.faults.own_network")
    count, seconds, way = [*sys.argv[1:], *("10", "20", "link")[len(sys.argv) - 1 :]]
    for network in (SERVERS, INTERNET):
        network.power_on()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsekeeper-network-")))
        serve_privately(stack, folder)
        migrate(Place())
        database, broker = relay_database(SERVERS.address), relay_broker(SERVERS.address)
        for relay in (database, broker):
            stack.callback(relay.shutdown)
        receiver = stack.enter_context(Receiver(address=INTERNET.address))
        target, always = (stack.enter_context(Site(address=INTERNET.address)) for _ in range(2))
        workers = NamespaceHost("workers", 11, [SERVERS, INTERNET])
        workers.power_on()
        environment = os.environ | {
            "DATABASE_URL": database_url(database),
            "REDIS_URL": redis_url(broker),
            "CONNECTIVITY_TARGETS": urlsplit(always.url("/")).netloc,
            "BASE_URL": f"http://{SERVERS.address}:{PORT}",
            "ALLOWED_HOSTS": SERVERS.address,
            "GRANIAN_HOST": SERVERS.address,
            "THROTTLE_SCALE": "0",
            "PORT": str(PORT),
        }
        away = {"worker", "interactive"}
        places = [Place(kinds={"web", "beat", "dispatcher"}), Place(before=workers.command("root"), kinds=away)]
        stack.enter_context(Tree(environment, folder, counts={}, places=places))
        try:
            cut = Cut(workers, seconds=float(seconds), silently=way == "silent")
            found = _play(int(count), cut, target=target, receiver=receiver)
        except AssertionError as error:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in folder.glob("*-1.log"))
            raise SystemExit(f"{error}\n{logs}") from error
    print(json.dumps(found))  # noqa: T201
    sys.exit(1 if found["false_downs"] or found["alerts"] else 0)


@dataclass(frozen=True)
class Cut:
    """How the uplink of a host is cut, and for how long."""

    host: NamespaceHost
    seconds: float
    silently: bool


def _play(count: int, cut: Cut, *, target: Site, receiver: Receiver) -> dict[str, float]:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()
    from accounts.models import Plan
    from accounts.services import create_account
    from checks.results.models import CheckResult
    from core.clock import utc_now
    from core.metrics import read_levels
    from monitors.checking.own_network import silent_servers
    from monitors.models import MonitorState, StatusChange
    from tests.processes.client import Client

    until(lambda: _network_part() is not None, PATIENCE, "all processes run")
    Plan.objects.update(min_interval_sec=1, monitor_limit=count)
    create_account(email=OWNER, password=PASSWORD, plan="pro")
    downs = CheckResult.objects.filter(verdict="down"), StatusChange.objects.filter(after="down")

    def all_checked() -> bool:
        return not MonitorState.objects.exclude(last_checked_at__gt=since).exists()

    with Client(SimpleNamespace(port=PORT), OWNER, host=SERVERS.address) as client:
        client.post("/alert-channels", {"kind": "webhook", "url": receiver.url})
        body = {"interval_sec": max(2, count // PER_SECOND), "fail_threshold": 1, "timeout_ms": TIMEOUT_MS}
        for number in range(count):
            client.post("/monitors", body | {"name": f"Shop {number}", "url": target.url(f"/ok/{number}")})
        for _ in range(2):  # the second time, because after the first one the worker reports its state
            since = utc_now()
            until(all_checked, PATIENCE, "all are checked")
        until(lambda: not silent_servers(read_levels()), PATIENCE, "a server has answered the worker")
        assert not any(each.exists() for each in downs)
        receiver.calls.clear()

        cut_at = time.monotonic()
        cut.host.cut(INTERNET, silently=cut.silently)
        until(lambda: _network_part() not in (None, "ok"), PATIENCE, "/readyz reports it")
        reported_after = time.monotonic() - cut_at
        time.sleep(max(0.0, cut_at + cut.seconds - time.monotonic()))
        cut.host.mend(INTERNET)
        back_at, since = time.monotonic(), utc_now()
        until(all_checked, PATIENCE, "all are checked again")
        checked_after = time.monotonic() - back_at
        until(lambda: _network_part() == "ok", PATIENCE, "/readyz says that all is well")
        false_downs, alerts = sum(each.count() for each in downs), len(receiver.calls)
        for row in downs[0].values():
            print(f"back at {since}: {row}", file=sys.stderr)  # noqa: T201

        stopped_at = time.monotonic()
        target.stop()
        until(downs[1].exists, PATIENCE, "the outage is noticed")
        down_after = time.monotonic() - stopped_at
        until(lambda: receiver.calls, PATIENCE, "the alert arrives")
    return {
        "monitors": count,
        "false_downs": false_downs,
        "alerts": alerts,
        "seconds_cut": round(back_at - cut_at, 1),
        "seconds_until_reported": round(reported_after, 1),
        "seconds_until_checked": round(checked_after, 1),
        "seconds_until_down": round(down_after, 1),
    }


def _network_part() -> str | None:
    """Return what /readyz reports about the network, or None while it does not answer."""
    try:
        checks = requests.get(f"http://{SERVERS.address}:{PORT}/readyz", timeout=5).json()["checks"]
    except (requests.RequestException, ValueError):
        return None
    part: str = checks["network"]
    return part


if __name__ == "__main__":
    main()
