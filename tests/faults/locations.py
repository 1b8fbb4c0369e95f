"""Cut, slow down and kill three locations while targets fail, and verify every status change and alert.

    python -m tests.faults.locations [--logs FOLDER]

Needs root and iproute2. Agents of three locations, each location in a network namespace of its own, check for a server
with the processes of the Procfile. Some targets never fail, some fail for less than `confirmation_sec` again and again,
and some fail until that is recorded. Meanwhile agents are killed, and each location loses the targets, then the server
as well, then all of them do.

The last line printed is one JSON object. `false_downs`: changes to down without an outage. `lost_changes`: outages, or
their ends, that were not recorded. `detection_p95_sec`: from the first failure of a target until its change can be
read. `takeover_sec`: the longest time from when an agent counts as offline until others had made a check that it had
leased. Exits 1 with what is wrong if a limit is broken.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import requests
import trustme
from cryptography.hazmat.primitives import serialization

from core.parent_death import die_with_parent
from tests.alerts.receiver import Receiver
from tests.faults.hosts import NamespaceHost, Network, isolated
from tests.faults.location_audit import Change, Limits, Outage, audit, percentile
from tests.faults.own_network import INTERNET, PORT, SERVERS
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import ROOT, Place, Tree
from tests.processes.waiting import until
from tests.site import Site
from tests.targets.server import Hang, Reset, Script, Seen, TargetServer, answer

RESOLVERS = Network("resolvers", 3)
"""Where `--connectivity` leads: a location that has lost the targets alone still reaches it."""
EVERYTHING = (RESOLVERS, INTERNET, SERVERS)
NAMES = ("fra", "ams", "nyc")
HOW: Sequence[Script] = ([answer(500)], [Hang()], [Reset()])
STEADY, BRIEF, REAL = 12, 12, 9
"""Monitors whose targets never fail, fail briefly, and, in each of two groups, fail until that is recorded."""
TIMEOUT_MS, LONG_TIMEOUT_MS = 2_000, 8_000
LIMITS = Limits(interval_sec=10, confirmation_sec=20, slack_sec=TIMEOUT_MS / 1000 + 2)
PATIENCE_SEC = 90
CUT_SEC, SETTLE_SEC = 15, 5
"""How long a location is cut from the targets alone, and until its last check of that time has ended."""
SLOW_SEC = 3.0
QUIET_SEC = 15  # while all locations are offline
BRIEF_SEC = (2.0, LIMITS.confirmation_sec - 3)
APART_SEC = (65.0, 80.0)
"""Between brief outages of a target: a lease that ends with its agent, and another check, which ends the failures."""


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201


class Targets:
    """A server with a path for each target, and the outages of each."""

    def __init__(self, server: TargetServer) -> None:
        self._failing: dict[int, Script] = {}
        self.outages: dict[int, list[Outage]] = defaultdict(list)
        self._site = server.serve(self._script, host=INTERNET.address)

    def url(self, number: int) -> str:
        return self._site.url(f"/{number}")

    def fail(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.outages[number].append(Outage(time.time()))
            self._failing[number] = HOW[number % len(HOW)]

    def mend(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._failing[number]
            self.outages[number][-1] = replace(self.outages[number][-1], ended=time.time())

    def _script(self, request: Seen) -> Script:
        return self._failing.get(int(request.path.strip("/")), [answer()])


@dataclass
class Agent:
    """An agent on the host of its location. Its first start joins with the token."""

    host: NamespaceHost
    folder: Path
    name: str
    token: str
    resolver: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def public_id(self) -> str:
        found: str = json.loads(self.state.read_text())["agent_id"]
        return found

    def start(self) -> None:
        command = [*self.host.command("root"), sys.executable, "-m", "pulsekeeper", "agent", "--name", self.name]
        if self.token:
            command += ["--server", f"https://{SERVERS.address}:{PORT}", "--join", self.token]
        variables = {"PULSEKEEPER_STATE": str(self.state), "SSL_CERT_FILE": str(self.folder / "authority.pem")}
        with (self.folder / f"agent-{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--connectivity", self.resolver],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        self.token = ""

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Fleet:
    """The monitors by what their targets do, as numbers of targets. `keys` are their primary keys."""

    keys: dict[int, int]
    steady: Sequence[int]
    brief: Sequence[int]
    first: Sequence[int]
    second: Sequence[int]


class Follower:
    """Reads the changes of the status, and notes when each could be read."""

    def __init__(self) -> None:
        self.changes: dict[int, list[Change]] = defaultdict(list)
        self._seen: set[int] = set()
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        yield
        self._ended.set()
        thread.join()

    def _follow(self) -> None:
        from django.db import connection

        from monitors.models import StatusChange

        while not self._ended.wait(0.2):
            # Those that confirm a first failure have no transition.
            for each in StatusChange.objects.filter(kind="status").exclude(pk__in=self._seen):
                self._seen.add(each.pk)
                change = Change(each.at.timestamp(), time.time(), down=each.after == "down")
                self.changes[each.monitor_id].append(change)
        connection.close()

    def is_all(self, keys: Iterable[int], *, down: bool) -> bool:
        """Return whether the last change of each of them was to down, or was not."""
        return all(bool(found := self.changes[key]) and found[-1].down is down for key in keys)


@dataclass
class Play:
    targets: Targets
    fleet: Fleet
    hosts: dict[str, NamespaceHost]
    agents: dict[str, Agent]
    follower: Follower
    receiver: Receiver
    seed: int
    calm: threading.Event = field(default_factory=threading.Event)
    """Set while no brief outage may begin."""
    takeovers: dict[str, float] = field(default_factory=dict)
    returns: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    checked_meanwhile: int = 0

    def run(self) -> None:
        fra, ams, nyc = (self.hosts[name] for name in NAMES)
        first, second = self.fleet.first, self.fleet.second
        ending = threading.Event()
        brief = threading.Thread(target=self._fail_briefly, args=(ending,), daemon=True)
        brief.start()

        note("an outage while all is well")
        self._outage([*first, *second])

        note("kill one of two agents of fra, and the agent of ams")
        killed = [self.agents["fra-1"], self.agents["ams-1"]]
        self._lose("killed agents", killed, by=partial(_kill, killed))
        for each in killed:
            each.start()

        note("cut each location from the targets alone")
        self.targets.fail(second)
        for host in (fra, ams, nyc):
            host.cut(INTERNET, silently=host is not ams)
            time.sleep(CUT_SEC)
            host.mend(INTERNET)
            time.sleep(SETTLE_SEC)
        self._end_outage(second)

        # Few targets: with a round trip of 3 s, a turn of the location takes longer than an interval.
        note("slow down nyc")
        with nyc.slow(INTERNET, delay_sec=SLOW_SEC), nyc.slow(SERVERS, delay_sec=SLOW_SEC):
            self._outage(first[: len(HOW)])

        note("cut fra from everything")
        self._lose("fra", [self.agents["fra-1"], self.agents["fra-2"]], by=partial(_cut, fra, silently=True))
        note("an outage with two locations")
        self._outage(first, ends=False)
        note("cut ams too")
        self._lose("ams", [self.agents["ams-1"]], by=partial(_cut, ams, silently=False))
        self._ended(first)
        note("an outage with one location")
        self._outage(second)
        note("cut all")
        self.calm.set()
        self._cut_all(nyc)
        note("let all locations return")
        self._let_return([fra, ams, nyc])
        note("an outage after that")
        self.calm.clear()
        self._outage([*first, *second])
        ending.set()
        brief.join()
        self._ended(range(len(self.fleet.keys)))

    def _outage(self, numbers: Collection[int], *, ends: bool = True) -> None:
        self.targets.fail(numbers)
        self._end_outage(numbers, ends=ends)

    def _end_outage(self, numbers: Collection[int], *, ends: bool = True) -> None:
        """Let targets work again once their outage is recorded, or should have been."""
        self.wait_for("the outage is recorded", partial(self._is_all, numbers, down=True))
        took = [self.follower.changes[self.fleet.keys[each]][-1].seen_at - self.targets.outages[each][-1].began
                for each in numbers]  # fmt: skip
        note(f"recorded after {min(took):.1f} to {max(took):.1f} s")
        self.targets.mend(numbers)
        if ends:
            self._ended(numbers)

    def _ended(self, numbers: Iterable[int]) -> None:
        self.wait_for("the end of the outage is recorded", partial(self._is_all, [*numbers], down=False))

    def _is_all(self, numbers: Collection[int], *, down: bool) -> bool:
        return self.follower.is_all([self.fleet.keys[number] for number in numbers], down=down)

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """The audit finds out which monitors it is about."""
        try:
            until(condition, PATIENCE_SEC, what)
        except AssertionError as error:
            self.wrong.append(str(error))

    def _lose(self, what: str, agents: Collection[Agent], *, by: Callable[[], object]) -> None:
        """Lose agents, and measure how long after they are offline others have made the checks that they had leased."""
        from checks.results.models import CheckResult
        from locations.models import Agent as Row
        from monitors.models import MonitorState

        rows = Row.objects.filter(public_id__in=[each.public_id for each in agents])
        by()
        began = time.monotonic()
        leased: dict[tuple[int, int], datetime] = {}
        while max((offline_at := _offline_at(rows)).values()) > time.time():
            if time.monotonic() - began > PATIENCE_SEC:
                self.wrong.append(f"{what}: not offline within {PATIENCE_SEC} s")
                return
            now = time.time()
            lost = [key for key, at in offline_at.items() if now < at < now + 2]
            for state in MonitorState.objects.filter(agent_id__in=lost, claimed_at__isnull=False):
                assert state.agent_id is not None
                assert state.claimed_at is not None
                leased[state.pk, state.agent_id] = state.claimed_at
            time.sleep(0.1)

        def taken_over() -> list[float] | None:
            """Return how long after its agent was offline each was made, or None until all are."""
            took = []
            for (monitor, agent), since in leased.items():
                made = CheckResult.objects.filter(monitor_id=monitor, checked_at__gt=since).order_by("checked_at")
                if (first := made.values_list("checked_at", flat=True).first()) is None:
                    return None
                took.append(first.timestamp() - offline_at[agent])
            return took

        if not leased:
            self.wrong.append(f"{what}: no check was leased to them")
            return
        try:
            times = until(taken_over, PATIENCE_SEC, f"{what}: others make all {len(leased)} checks")
        except AssertionError as error:
            self.wrong.append(str(error))
            return
        assert times is not None
        self.takeovers[what] = max(times)
        note(f"{what}: {len(leased)} checks taken over, the last {self.takeovers[what]:.1f} s after they were offline")

    def _cut_all(self, last: NamespaceHost) -> None:
        """Cut the last location, and verify that nothing is checked and no status changes."""
        from checks.results.models import CheckResult
        from monitors.models import MonitorState
        from monitors.stale import NOWHERE

        _cut(last, silently=True)
        cut_at = time.time() + LIMITS.slack_sec
        everyone = len(self.fleet.keys)
        self.wait_for("all monitors are shown as not checked",
                       lambda: MonitorState.objects.filter(fault=NOWHERE).count() == everyone)  # fmt: skip
        failing = [*self.fleet.first, *self.fleet.second]
        self.targets.fail(failing)
        time.sleep(QUIET_SEC - 1)
        self.targets.mend(failing)
        for number in failing:
            self.targets.outages[number].pop()
        self.checked_meanwhile = CheckResult.objects.filter(checked_at__gt=_moment(cut_at)).count()
        changed = [key for key, found in self.follower.changes.items() if any(each.seen_at > cut_at for each in found)]
        if changed:
            self.wrong.append(f"while all locations were cut the status of {len(changed)} monitors changed")

    def _let_return(self, hosts: Collection[NamespaceHost]) -> None:
        from monitors.models import MonitorState

        began = time.time()
        for host in hosts:
            _mend(host)
        unchecked = MonitorState.objects.exclude(last_checked_at__gt=_moment(began))
        self.wait_for("all monitors are checked again", lambda: not unchecked.exists())
        self.returns["all"] = time.time() - began
        note(f"all are checked again {self.returns['all']:.1f} s later")

    def _fail_briefly(self, ending: threading.Event) -> None:
        dice = random.Random(self.seed)
        begins = {number: time.monotonic() + dice.uniform(0, APART_SEC[0]) for number in self.fleet.brief}
        ends: dict[int, float] = {}
        while not ending.wait(0.1) or ends:
            now = time.monotonic()
            for number in [each for each, at in ends.items() if at <= now]:
                self.targets.mend([number])
                del ends[number]
                begins[number] = now + dice.uniform(*APART_SEC)
            for number in [each for each, at in begins.items() if at <= now]:
                if not (self.calm.is_set() or ending.is_set()):
                    del begins[number]
                    self.targets.fail([number])
                    ends[number] = now + dice.uniform(*BRIEF_SEC)
            if ending.is_set():
                time.sleep(0.1)


def _kill(agents: Iterable[Agent]) -> None:
    for each in agents:
        each.kill()


def _cut(host: NamespaceHost, *, silently: bool) -> None:
    for network in EVERYTHING:
        host.cut(network, silently=silently)


def _mend(host: NamespaceHost) -> None:
    for network in reversed(EVERYTHING):
        host.mend(network)


def _offline_at(agents: Any) -> dict[int, float]:
    """Return when each of these agents counts as offline."""
    seen: dict[int, datetime] = dict(agents.values_list("pk", "last_seen_at"))
    return {key: at.timestamp() + LIMITS.offline_sec for key, at in seen.items()}


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _issue_certificate(folder: Path) -> dict[str, str]:
    """Make a certificate of the server's address. Return the variables with which the web process serves https."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    issued = authority.issue_cert(SERVERS.address)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    for part in issued.cert_chain_pems:
        part.write_to_path(str(certificate), append=True)
    loaded = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {"GRANIAN_SSL_CERTIFICATE": str(certificate), "GRANIAN_SSL_KEYFILE": str(key)}


def _make_monitors(targets: Targets, receiver: Receiver) -> Fleet:
    from accounts.models import Plan
    from accounts.services import create_account
    from alerts.models import AlertChannel
    from alerts.services import create_channel
    from core.clock import utc_now
    from monitors.models import MonitorState
    from monitors.services import create_monitor
    from projects.access import Caller

    assert Plan.objects.get(name=Plan.LOCAL).min_interval_sec <= LIMITS.interval_sec
    owner = create_account(email="a@example.com", password="a fine long password", plan=Plan.LOCAL)
    caller = Caller(owner)
    count = STEADY + BRIEF + 2 * REAL
    keys = {}
    for number in range(count):
        is_steady = number < STEADY
        is_patient = is_steady and number % 2
        given = {
            "type": "http",
            "name": str(number),
            "url": targets.url(number),
            "interval_sec": int(LIMITS.interval_sec),
            "timeout_ms": LONG_TIMEOUT_MS if is_patient else TIMEOUT_MS,
            "slow_ms": LONG_TIMEOUT_MS,
            # One failure that others did not refute is enough.
            "fail_threshold": 1 if is_steady else 2 + number % 2,
            "confirmation_sec": None if is_steady else int(LIMITS.confirmation_sec),
            "locations": [*NAMES],
        }
        keys[number] = create_monitor(caller, given, now=utc_now()).pk
        # The scheduler makes the first check. Checks are spread over the interval.
        due_at = utc_now() + timedelta(seconds=LIMITS.interval_sec * number / count)
        MonitorState.objects.filter(pk=keys[number]).update(claimed_at=None, slot_at=None, next_due_at=due_at)
    AlertChannel.objects.all().delete()
    create_channel(caller, {"kind": "webhook", "name": "hook", "url": f"{receiver.url}/hook"}, now=utc_now())
    groups = itertools.pairwise(itertools.accumulate((STEADY, BRIEF, REAL, REAL), initial=0))
    return Fleet(keys, *(range(begin, end) for begin, end in groups))


def _alerts(receiver: Receiver, fleet: Fleet) -> dict[int, list[str]]:
    """Return the events that were delivered, by monitor."""
    found: dict[int, list[str]] = defaultdict(list)
    for body in {call.key: call.json for call in receiver.calls}.values():
        for item in body.get("items", [body]):
            if item["monitor"] is not None:
                found[fleet.keys[int(item["monitor"]["name"])]].append(item["event"])
    return found


def _is_serving() -> bool:
    try:
        return requests.get(f"{os.environ['BASE_URL']}/healthz", verify=os.environ["SSL_CERT_FILE"], timeout=5).ok
    except requests.RequestException:
        return False


def _make_locations(folder: Path, hosts: dict[str, NamespaceHost], resolver: str) -> dict[str, Agent]:
    """Create the locations, and start two agents of fra and one of each other."""
    from core.clock import utc_now
    from locations.models import Agent as Row
    from locations.services import create_shared, issue_shared

    made = {}
    for name, host in hosts.items():
        _, token = create_shared(name, name=name, now=utc_now())
        made[f"{name}-1"] = Agent(host, folder, f"{name}-1", token, resolver)
    made["fra-2"] = Agent(hosts["fra"], folder, "fra-2", issue_shared("fra", now=utc_now()), resolver)
    for each in made.values():
        each.start()
    until(lambda: Row.objects.exclude(last_seen_at=None).count() == len(made), PATIENCE_SEC, "all agents are online")
    return made


def _play(stack: ExitStack, folder: Path) -> tuple[dict[str, Any], list[str]]:
    for network in EVERYTHING:
        network.power_on()
    hosts = {name: NamespaceHost(name, number, EVERYTHING) for number, name in enumerate(NAMES, start=11)}
    for host in hosts.values():
        host.power_on()
    serve_privately(stack, folder)
    os.environ.update(
        _issue_certificate(folder),
        SSL_CERT_FILE=str(folder / "authority.pem"),
        BASE_URL=f"https://{SERVERS.address}:{PORT}",
        ALLOWED_HOSTS=SERVERS.address,
        GRANIAN_HOST=SERVERS.address,
        CONNECTIVITY_TARGETS="",
        PORT=str(PORT),
    )
    migrate(Place())
    django.setup()
    resolver = stack.enter_context(Site(address=RESOLVERS.address))
    receiver = stack.enter_context(Receiver(address=INTERNET.address))
    targets = Targets(stack.enter_context(TargetServer()))
    stack.enter_context(Tree(os.environ, folder, counts={}))
    until(_is_serving, PATIENCE_SEC, "the server answers")
    agents = _make_locations(folder, hosts, urlsplit(resolver.url("/")).netloc)
    for each in agents.values():
        stack.callback(each.kill)
    follower = Follower()
    fleet = _make_monitors(targets, receiver)
    stack.enter_context(follower.running())
    until(lambda: follower.is_all(fleet.keys.values(), down=False), PATIENCE_SEC, "all monitors are up")
    play = Play(targets, fleet, hosts, agents, follower, receiver, seed=1)
    began = time.monotonic()
    play.run()
    return _judge(play, seconds=time.monotonic() - began)


def _judge(play: Play, *, seconds: float) -> tuple[dict[str, Any], list[str]]:
    """Return the figures, and what is wrong."""
    from alerts.models import Delivery
    from checks.results.models import CheckResult
    from monitors.models import StatusChange

    open_ones = Delivery.objects.filter(state__in=[Delivery.State.GATHERING, Delivery.State.WAITING])
    waiting = StatusChange.objects.filter(processed_at=None)
    play.wait_for("all alerts are delivered", lambda: not (waiting.exists() or open_ones.exists()))
    keys, end = play.fleet.keys, time.time()
    outages = {keys[number]: found for number, found in play.targets.outages.items()}
    found = audit([*keys.values()], outages, play.follower.changes, _alerts(play.receiver, play.fleet),
                  limits=LIMITS, end=end)  # fmt: skip
    p95 = percentile(found.detection_sec, 0.95)
    steady = CheckResult.objects.filter(verdict="down", monitor_id__in=[keys[number] for number in play.fleet.steady])
    figures = {
        "monitors": len(keys),
        "false_downs": found.false_downs,
        "lost_changes": found.lost_changes + found.false_ups,
        "alerts_for_short_outages": found.alerts_for_short_outages,
        "false_alerts": found.false_alerts,
        "lost_alerts": found.lost_alerts,
        "checks_while_all_were_cut": play.checked_meanwhile,
        "refuted": steady.filter(confirmed=False).count(),
        "not_refuted": steady.exclude(confirmed=False).count(),
        "outages": len(found.detection_sec),
        "short_outages": sum(len(play.targets.outages[number]) for number in play.fleet.brief),
        "detection_p95_sec": None if p95 is None else round(p95, 1),
        "detection_max_sec": round(max(found.detection_sec, default=0.0), 1),
        "takeover_sec": round(max(play.takeovers.values(), default=0.0), 1),
        "return_sec": round(play.returns.get("all", 0.0), 1),
        "seconds": round(seconds),
    }
    wrong = [*found.errors, *play.wrong]
    if p95 is None or p95 > LIMITS.detection_sec:
        wrong.append(f"detection_p95_sec: {p95}, at most {LIMITS.detection_sec:g}")
    wrong += [
        f"takeover_sec: {what}: {took:.1f}, at most {LIMITS.takeover_sec:g}"
        for what, took in play.takeovers.items()
        if took > LIMITS.takeover_sec
    ]
    if play.checked_meanwhile:
        wrong.append(f"{play.checked_meanwhile} results while all locations were cut")
    if figures["not_refuted"]:
        wrong.append(f"{figures['not_refuted']} failures count although their targets never failed")
    if not figures["refuted"]:
        wrong.append("no location saw a failure that others refuted: nothing was tested")
    return figures, wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=Path, help="copy all logs into this folder at the end")
    given = parser.parse_args()
    isolated("tests.faults.locations")
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-locations-") as name, ExitStack() as stack:
        folder = Path(name)
        if given.logs:
            stack.callback(_copy_logs, folder, given.logs)
        figures, wrong = _play(stack, folder)
    for line in wrong:
        note(line)
    print(json.dumps(figures))  # noqa: T201
    sys.exit(bool(wrong))


def _copy_logs(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for log in source.glob("*.log"):
        shutil.copy(log, target)


if __name__ == "__main__":
    main()
