"""The system of `tests.faults.plays`: all processes, real servers, Prometheus, targets and jobs.

PostgreSQL's clock can be set and its disk filled. The link of workers to the internet can be cut. The history is in
another PostgreSQL, which can be frozen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import psutil
import psycopg
import requests
import yaml

from tests.alerts.inbox import Inbox
from tests.alerts.receiver import Receiver
from tests.faults.hosts import NamespaceHost, Server, as_user, postgres, redis
from tests.faults.own_network import INTERNET, PORT, SERVERS
from tests.faults.rehearsal import settings_secrets
from tests.faults.system import COMMON, migrate
from tests.metrics.prometheus import FOLDER as PROMETHEUS
from tests.metrics.prometheus import Ask, firing, running_prometheus
from tests.processes.tree import Member, Place, Tree
from tests.processes.waiting import until
from tests.site import Site

WEB = f"{SERVERS.address}:{PORT}"
BASE_URL = f"http://{WEB}"
WRONG_CLOCK = Path(__file__).parent / "wrong_clock"
POLLED, JOBS = 10, 5
INTERVAL_SEC, GRACE_SEC, TIMEOUT_MS = 2, 15, 3_000
PATIENCE_SEC = 180
DISK = "256m"


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)  # noqa: T201


class Jobs:
    """Jobs that ping. The last one can fall silent."""

    def __init__(self, paths: Collection[str]) -> None:
        self._ended = threading.Event()
        self.silent = threading.Event()
        *many, last = paths
        for path, silent in [*((path, threading.Event()) for path in many), (last, self.silent)]:
            threading.Thread(target=self._ping, args=(path, silent), daemon=True).start()

    def _ping(self, path: str, silent: threading.Event) -> None:
        while not self._ended.wait(INTERVAL_SEC / 2):
            if not silent.is_set():
                ask(path, method="POST")

    def end(self) -> None:
        self._ended.set()


@dataclass
class Stage:
    folder: Path
    tree: Tree
    database: Server
    history: Server
    broker: Server
    workers: NamespaceHost
    site: Site
    inbox: Inbox
    receiver: Receiver
    jobs: Jobs
    cookies: dict[str, str]
    prometheus: Ask
    _downs: tuple[int, int] = field(default=(0, 0))
    _last_change: int = 0

    # Actions

    def members(self, kind: str) -> list[Member]:
        return [member for member in self.tree.members.values() if member.kind == kind]

    def restart(self, kind: str, *, ahead: int) -> None:
        """Restart the processes of this kind with a clock that is `ahead` seconds fast."""
        for member in self.members(kind):
            self.tree.kill(member.name)
            wrong = {"PYTHONPATH": str(WRONG_CLOCK), "AHEAD": str(ahead)}
            kept = {name: value for name, value in member.place.variables.items() if name not in wrong}
            member.place = replace(member.place, variables=kept | (wrong if ahead else {}))
            self.tree.start_one(member.name)

    def signal(self, kind: str, number: int) -> None:
        for member in self.members(kind):
            assert member.pid is not None
            os.killpg(member.pid, number)

    def signal_history(self, number: int) -> None:
        """Send a signal to all processes of the history database."""
        assert self.history.process is not None
        server = psutil.Process(self.history.process.pid)
        for process in [server, *server.children(recursive=True)]:
            process.send_signal(number)

    def set_database_clock(self, ahead: int) -> None:
        set_clock(self.folder, ahead)

    def resize_disk(self, size: str) -> None:
        mount("-o", f"remount,size={size}", str(_tables(self.folder)))

    def fill_disk(self) -> None:
        """Leave no space on the disk of PostgreSQL's tables."""
        disk = os.statvfs(_tables(self.folder))
        self.resize_disk(str((disk.f_blocks - disk.f_bfree) * disk.f_frsize))

    def set_read_only(self, value: str) -> None:
        """Make all sessions read-only, including open ones, as after a failover to another primary."""
        psql(self.folder, f"ALTER SYSTEM SET default_transaction_read_only = {value}", "SELECT pg_reload_conf()")

    def replace_inbox(self) -> None:
        self.inbox = Inbox(address=INTERNET.address, port=self.inbox.port)
        self.inbox.__enter__()

    # Reports

    def ready(self) -> list[str]:
        """Return the problems of /readyz in the words of System health, or that it does not answer."""
        try:
            checks: dict[str, str] = requests.get(f"{BASE_URL}/readyz", timeout=20).json()["checks"]
        except (requests.RequestException, ValueError) as error:
            return [f"/readyz: {error}"]
        return [f"{name.capitalize()}: {text}." for name, text in checks.items() if text != "ok"]

    def system_health(self) -> str:
        """Return the text of the problems that System health shows, or of the error page in its place."""
        response = ask("/system", cookies=self.cookies)
        if response is None:
            return ""
        page = response.text.partition('id="content"')[2].partition("<section")[0] or response.text
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())

    def fires(self, rule: str, label: str) -> bool:
        """Return whether an alert fires whose name matches `rule`, with a label of this value."""
        found = firing(self.prometheus)
        return any(re.fullmatch(rule, each["alertname"]) and label in {"", *each.values()} for each in found)

    def coverage(self) -> float | None:
        """Return the coverage of /metrics, or None if it has none."""
        response = ask("/metrics")
        found = response and re.search(r"^pulsekeeper_coverage_ratio (\S+)$", response.text, re.MULTILINE)
        return float(found[1]) if found else None

    # Records

    def downs(self) -> tuple[int, int]:
        """Return the number of results and changes that report the site as down, and the same for a job."""
        from checks.results.models import CheckResult
        from monitors.models import Monitor, StatusChange

        changes = StatusChange.objects.filter(after="down")
        site = Monitor.objects.filter(type="http").values("pk")
        of_site = CheckResult.objects.filter(verdict="down", monitor_id__in=site).count()
        of_site += changes.filter(monitor__type="http").count()
        return of_site, changes.filter(monitor__type="heartbeat").count()

    def mark(self) -> None:
        """Count false changes from now on."""
        from monitors.models import StatusChange

        self._downs = self.downs()
        self._last_change = getattr(StatusChange.objects.last(), "pk", 0)

    def false(self) -> tuple[int, int]:
        """Return how often the site and jobs were reported as down since the mark."""
        of_site, of_jobs = self.downs()
        return of_site - self._downs[0], of_jobs - self._downs[1]

    def _note_changes(self) -> None:
        from monitors.models import PingGap, SchedulerGap, StatusChange

        for change in StatusChange.objects.filter(pk__gt=self._last_change).select_related("monitor", "monitor__state"):
            note(f"{change.monitor.type} {change.monitor_id} {change} {change.at} {change.detail or ''}")
        for ping_gap in PingGap.objects.order_by("-pk")[:3]:
            note(f"gap of pings {ping_gap.started_at} to {ping_gap.ended_at}: {ping_gap.reason}")
        for stop in SchedulerGap.objects.order_by("-pk")[:3]:
            note(f"stop of the scheduler {stop.started_at} to {stop.ended_at}")

    def is_all(self, status: str, **which: Any) -> bool:
        """Return whether all of these monitors have this status. Without a database nothing is known."""
        from django.db import DatabaseError, connection

        from monitors.models import MonitorState

        try:
            return not MonitorState.objects.filter(**which).exclude(status=status).exists()
        except DatabaseError:  # this connection was cut
            connection.close()
            return False

    def outage(self, *, of_job: bool = False) -> tuple[int, int, int]:
        """Take the site and a job down and up again. Return missed events, and false ones before and after."""
        false = self.false()
        if any(false):
            self._note_changes()
        calls = len(self.receiver.calls)
        self.site.stop()
        if of_job:
            self.jobs.silent.set()
        waits = {
            "site down": partial(self.is_all, "down", monitor__type="http"),
            "alert": partial(self._alerted, calls),
        }
        if of_job:
            waits["job down"] = partial(self.is_all, "down", monitor__name="silent")
        missed = [what for what, is_so in waits.items() if not _holds(is_so)]
        self.site.start()
        self.jobs.silent.clear()
        missed += [] if _holds(partial(self.is_all, "up")) else ["recovery"]
        if missed:
            note(f"missed: {missed}")
        false_jobs = self.false()[1] - (1 if of_job else 0) - false[1]
        if false_jobs > 0:
            self._note_changes()
        self.mark()
        return len(missed), false[0], false[1] + max(0, false_jobs)

    def _alerted(self, calls: int) -> bool:
        bodies = [call.json for call in self.receiver.calls[calls:]]
        return any(item["event"] == "down" for body in bodies for item in body.get("items", [body]))


def ask(path: str, *, method: str = "GET", cookies: dict[str, str] | None = None) -> requests.Response | None:
    """Return the response, or None while the web process does not answer."""
    try:
        return requests.request(method, f"{BASE_URL}{path}", cookies=cookies, timeout=20)
    except requests.RequestException:
        return None


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return until(condition, PATIENCE_SEC, "")
    except AssertionError:
        return False


def seconds_until(
    conditions: Mapping[str, Callable[[], bool]], *, since: float, longest: float
) -> dict[str, float | None]:
    """Return how long after `since` (monotonic) each condition is met, or None if not within `longest`."""

    def wait(condition: Callable[[], bool]) -> float | None:
        try:
            until(condition, since + longest - time.monotonic(), "")
        except AssertionError:
            return None
        return round(time.monotonic() - since, 1)

    with ThreadPoolExecutor(len(conditions)) as pool:
        return dict(zip(conditions, pool.map(wait, conditions.values()), strict=True))


def set_clock(folder: Path, ahead: int) -> None:
    """Set PostgreSQL's clock `ahead` seconds fast."""
    new = folder / "clock.new"
    new.write_text(f"{ahead:+}")
    new.chmod(0o644)
    new.replace(folder / "clock")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def psql(folder: Path, *statements: str) -> None:
    commands = [f"--command={each}" for each in ("SET default_transaction_read_only = off", *statements)]
    command = [*as_user("postgres"), "psql", "--host", str(folder / "postgres"), "--set=ON_ERROR_STOP=1", *commands]
    subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True)


def _tables(folder: Path) -> Path:
    return folder / "postgres" / "data" / "base"


def _start_database(stack: ExitStack, folder: Path) -> tuple[Server, str]:
    """Start PostgreSQL with a clock that a file sets, and its tables on a disk of their own."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        raise SystemExit("error: the clock of PostgreSQL cannot be set: apt-get install libfaketime")
    server, url = postgres(folder, SERVERS)
    server.kill()
    set_clock(folder, 0)
    tables = _tables(folder)
    kept = tables.rename(tables.with_name("kept"))
    tables.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(tables))
    stack.callback(subprocess.run, ["umount", "--lazy", str(tables)], check=True)
    subprocess.run(["cp", "--archive", f"{kept}/.", str(tables)], check=True)
    shutil.rmtree(kept)
    clock = (f"FAKETIME_TIMESTAMP_FILE={folder / 'clock'}", "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
    server.command = ("env", f"LD_PRELOAD={library}", *clock, *server.command)
    server.start()
    stack.callback(server.kill)
    until(partial(_answers, url), PATIENCE_SEC, "PostgreSQL answers")
    return server, url


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.Error:
        return False
    return True


def make_stage(stack: ExitStack, folder: Path) -> Stage:
    """Start everything. The settings are in os.environ afterwards."""
    folder.chmod(0o711)  # the users of the servers must enter it
    for network in (SERVERS, INTERNET):
        network.power_on()
    database, database_url = _start_database(stack, folder)
    history, os.environ["HISTORY_DATABASE_URL"] = postgres(folder, SERVERS, name="history", port=5433)
    stack.callback(history.kill)
    broker, redis_url = redis(folder, SERVERS)
    stack.callback(broker.kill)
    site, always = (stack.enter_context(Site(address=INTERNET.address)) for _ in range(2))
    receiver = stack.enter_context(Receiver(address=INTERNET.address))
    inbox = Inbox(address=INTERNET.address)
    inbox.__enter__()
    workers = NamespaceHost("workers", 11, [SERVERS, INTERNET])
    workers.power_on()
    os.environ.update(
        settings_secrets(),
        DATA_DIR=str(folder),
        DATABASE_URL=database_url,
        REDIS_URL=redis_url,
        EMAIL_URL=f"smtp://{INTERNET.address}:{inbox.port}",
        EMAIL_FROM="Pulsekeeper <alerts@pulsekeeper.example>",
        CONNECTIVITY_TARGETS=urlsplit(always.url("/")).netloc,
        BASE_URL=BASE_URL,
        ALLOWED_HOSTS=SERVERS.address,
        METRICS_ALLOWED=f"{SERVERS.address}/32",
        GRANIAN_HOST=SERVERS.address,
        PORT=str(PORT),
        **COMMON,
    )
    migrate(Place())
    django.setup()
    paths, cookies = _make_monitors(site, receiver)
    away = {"worker", "interactive"}
    places = [Place(kinds={"web", "beat", "dispatcher"}), Place(before=workers.command("root"), kinds=away)]
    tree = stack.enter_context(Tree(os.environ, folder, counts={}, places=places))
    jobs = Jobs(paths)
    stack.callback(jobs.end)
    prometheus = stack.enter_context(_prometheus(folder / "prometheus"))
    stage = Stage(
        folder, tree, database, history, broker, workers, site, inbox, receiver, jobs, cookies, prometheus
    )  # fmt: skip
    stack.callback(lambda: stage.inbox.__exit__(None, None, None))
    return stage


def _prometheus(folder: Path) -> Any:
    """Run Prometheus with the rules and intervals that operators get."""
    folder.mkdir()
    for rules in PROMETHEUS.glob("*.rules.yml"):
        shutil.copy(rules, folder)
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["scrape_configs"][0]["static_configs"] = [{"targets": [WEB]}]
    return running_prometheus(folder, config)


def _make_monitors(site: Site, receiver: Receiver) -> tuple[list[str], dict[str, str]]:
    """Make monitors of the site, heartbeats and a webhook. Return the paths of pings, and cookies of the staff."""
    from django.conf import settings
    from django.test import Client

    from accounts.models import Plan
    from accounts.services import create_account
    from alerts.services import create_channel
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.create(name="plays", min_interval_sec=1, monitor_limit=POLLED + JOBS)
    password = "a fine long password"
    staff = create_account(
        email="a@example.com", password=password, plan="plays", is_staff=True, is_superuser=True
    )  # fmt: skip
    caller = Caller(staff)
    create_channel(caller, {"kind": "webhook", "name": "hook", "url": f"{receiver.url}/hook"}, now=utc_now())
    common = {"interval_sec": INTERVAL_SEC}
    polled = common | {"type": "http", "name": "site", "timeout_ms": TIMEOUT_MS, "fail_threshold": 1}
    for number in range(POLLED):
        create_monitor(caller, polled | {"url": site.url(f"/ok/{number}")}, now=utc_now())
    paths = []
    for name in [*["job"] * (JOBS - 1), "silent"]:
        given = common | {"type": "heartbeat", "name": name, "grace_sec": GRACE_SEC}
        paths.append(f"/v1/heartbeats/{create_monitor(caller, given, now=utc_now()).public_id}/ping")
    client = Client()
    client.force_login(staff)
    return paths, {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
