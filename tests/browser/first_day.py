"""`make first-day`: a first user's day, with the clicks, the fields and the seconds of each task.

    python -m tests.browser.first_day

starts `manage.py up` on an empty folder and writes the table of docs/use/first-day.md. test_first_day.py plays the same
day and compares the steps, clicks and fields of that page with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import psutil
from playwright.sync_api import Browser, Locator, Page, expect

from core.egress import parse_networks
from core.private_networks import RANGES
from tests.browser.browsing import PATIENCE_MS, Browse
from tests.browser.chromium import MISSING, chromium, find_chromium
from tests.processes.up import ROOT, Up
from tests.targets.certificates import Certificates
from tests.targets.names import Name
from tests.targets.server import Site, TargetServer, answer

DOCUMENT = ROOT / "docs" / "use" / "first-day.md"
EXPORT = ROOT / "tests" / "importers" / "samples" / "uptime-kuma-home.json"
SHOP, NAS = "www.larkandpine.example", "nas.home.arpa"
SKIPPED = [
    re.compile("Doorbell events.*mqtt is not supported", re.DOTALL),
    re.compile("Jellyfin.*docker is not supported", re.DOTALL),
    re.compile("Photo database.*postgres is not supported", re.DOTALL),
    re.compile("Telnet is closed.*inverted monitors are not supported", re.DOTALL),
]
"""The monitors of EXPORT that are not imported, and why."""
CHANGED = {
    "Access point": "packetSize is not supported: all packets have the same size",
    "Sign-in": "accepted_statuscodes is not supported; any 2xx or 3xx is accepted instead",
    "Nightly backup": "pushToken the ping URL changes",
}
MANY = 1_000
UP_MS = 60_000
"""Longest wait for a first result. An answer about private networks restarts the workers."""


@dataclass(frozen=True)
class Home:
    """The user's targets: a website, and a router and a NAS in a private network."""

    shop: Site
    nas: Site
    nas_ca: str
    router: str
    variables: dict[str, str]
    """The name server that knows SHOP and NAS, and the authority of SHOP, for Pulsekeeper."""


@contextmanager
def home(folder: Path) -> Iterator[Home]:
    """Serve the user's targets. Router and NAS are this machine, by a private address if it has one."""
    (folder / "own").mkdir()
    public, own = Certificates(folder), Certificates(folder / "own")
    found = [address.address.partition("%")[0] for all_of in psutil.net_if_addrs().values() for address in all_of]
    router = next((address for address in found if _is_private(address)), "127.0.0.1")
    zone = {
        SHOP: Name(("127.0.0.1",)),
        NAS: Name(aaaa=(router,)) if ":" in router else Name((router,)),
    }
    with TargetServer() as targets:
        yield Home(
            shop=targets.serve([answer(200, b"Welcome")], tls=public.for_host(SHOP)),
            nas=targets.serve([answer(200, b"Welcome")], host=router, tls=own.for_host(NAS)),
            nas_ca=Path(own.ca_file).read_text(),
            router=router,
            variables={"DNS_SERVERS": targets.serve_names(zone).address, "SSL_CERT_FILE": public.ca_file},
        )


def _is_private(address: str) -> bool:
    try:
        return any(ip_address(address) in network for network in parse_networks(RANGES))
    except ValueError:  # of hardware
        return False


@dataclass
class Instance:
    """Pulsekeeper as `make up` starts it. Commands on its data folder run with `environment`."""

    up: Up
    environment: Mapping[str, str]
    seconds: float
    """Seconds from the start to the line that it is up."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.up.port}"

    @property
    def password(self) -> str:
        (password,) = re.findall(r"password (\S+) \(shown only now\)", self.up.output)
        return str(password)

    def manage(self, *arguments: str) -> None:
        command = [sys.executable, "manage.py", *arguments]
        subprocess.run(command, cwd=ROOT, env=dict(self.environment), check=True, stdout=subprocess.DEVNULL)


@contextmanager
def first_start(data_dir: Path, environment: Mapping[str, str]) -> Iterator[Instance]:
    """Run `manage.py up` on a data folder that it has not used before."""
    complete = {**environment, "CONNECTIVITY_TARGETS": "", "DATA_DIR": str(data_dir)}
    start = time.perf_counter()
    up = Up([sys.executable, "manage.py", "up"], data_dir, complete)
    try:
        up.wait_until_up()
        yield Instance(up, complete, time.perf_counter() - start)
    finally:
        up.end()


@dataclass
class Effort:
    """The effort of a task. `labels`: those of the used controls, in order."""

    task: str
    clicks: int = 0
    fields: int = 0
    seconds: float = 0.0
    labels: list[str] = field(default_factory=list)


class User:
    """Use a page by its labels, and count clicks and fields."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.efforts: list[Effort] = []

    @contextmanager
    def task(self, name: str, path: str = "/monitors") -> Iterator[None]:
        """Measure the block, which starts on the page at `path`."""
        self.page.goto(path)
        self.efforts.append(Effort(name))
        start = time.perf_counter()
        yield
        self.efforts[-1].seconds = time.perf_counter() - start

    def click(
        self, label: str, role: Literal["button", "link", "radio"] = "button", *, name: str | None = None
    ) -> None:
        """`name`: the accessible name, if it differs from the label."""
        self._click(label, self.page.get_by_role(role, name=name or label, exact=name is None))

    def open(self, title: str) -> None:
        self._click(title, self.page.locator("summary", has_text=re.compile(rf"^\s*{title}")))

    def fill(self, label: str, text: str) -> None:
        self._field(label)
        # A label has the words for all types, and a field of a password has no role.
        named = self.page.get_by_label(label, exact=True).or_(self.page.get_by_role("textbox", name=label, exact=True))
        named.and_(self.page.locator(":visible")).fill(text)

    def choose_file(self, label: str, path: Path) -> None:
        self._field(label)
        self.page.get_by_label(label, exact=True).set_input_files(path)

    def run_copied(self, job: str) -> None:
        """Paste the copied command in a terminal of a machine that has the wrapper, with a job in its place."""
        self._field("terminal")
        command = self.page.evaluate("navigator.clipboard.readText()").replace("/path/to/job", job)
        path = f"{ROOT / 'docs' / 'samples'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["/bin/sh", "-c", command], env={"PATH": path}, check=True, stdout=subprocess.DEVNULL)

    def expect_up(self) -> None:
        expect(self.page.locator("#state .badge.large")).to_have_text("Up", timeout=UP_MS)

    def _click(self, label: str, target: Locator) -> None:
        self.efforts[-1].clicks += 1
        self.efforts[-1].labels.append(label)
        target.click()

    def _field(self, label: str) -> None:
        self.efforts[-1].fields += 1
        self.efforts[-1].labels.append(label)


def play(browser: Browser, instance: Instance, home: Home, folder: Path) -> list[Effort]:
    """Play the day. Return the effort of each task. Raises AssertionError if one has another outcome."""
    browse = Browse(instance.address, browser)
    user = User(browse(permissions=["clipboard-read", "clipboard-write"]))
    page = user.page
    with user.task("First monitor", "/"):
        user.fill("E-mail address", "admin@example.com")
        user.fill("Password", instance.password)
        user.click("Sign in")
        user.click("Allow private networks")
        expect(page.get_by_text("Checks may reach private networks.")).to_be_visible()
        user.click("Create your first monitor", "link")
        # Complete, as from a browser: the workers that ask for https have just been restarted.
        user.fill("Address", home.shop.url(host=SHOP))
        user.click("Create monitor")
        user.expect_up()
    with user.task("Router by ping"):
        user.click("New monitor", "link")
        user.click("Ping", "radio")
        user.fill("Host", home.router)
        user.click("Create monitor")
        user.expect_up()
    with user.task("Private https with its own authority"):
        user.click("New monitor", "link")
        user.fill("Address", f"{NAS}:{home.nas.port}")
        user.open("Advanced")
        user.fill("CA certificate", home.nas_ca)
        user.click("Create monitor")
        user.expect_up()
    expect(page.get_by_role("region", name="Expiry").locator("[data-status]")).to_have_attribute("data-status", "up")
    with user.task("Scheduler"):
        user.click("New monitor", "link")
        user.click("Scheduler", "radio")
        user.fill("Address", f"{SHOP}:{home.shop.port}/jobs/clean-up")
        user.click("Create monitor")
        user.expect_up()
    assert [request.method for request in home.shop.seen if request.path == "/jobs/clean-up"] == ["POST"]
    with user.task("Nightly backup with the wrapper"):
        user.click("New monitor", "link")
        user.click("Heartbeat", "radio")
        user.fill("Name", "Nightly backup")
        user.click("On a schedule", "radio")
        user.click("every night at 3:00")
        user.click("Create monitor")
        user.open("Wrapper")
        user.click("Copy", name="Copy: Wrapper")
        user.run_copied("echo 3 files are saved")
        user.expect_up()
        signals = page.get_by_role("region", name="Last signals").get_by_role("listitem")
        expect(signals).to_contain_text([re.compile("Success.*3 files are saved", re.DOTALL), "Start"])
    with user.task("Import of 23 monitors from Uptime Kuma"):
        user.click("Import", "link")
        user.click("Uptime Kuma", "radio", name="Uptime Kuma: ")
        user.choose_file("File", EXPORT)
        user.click("Preview")
        expect(page.get_by_role("region", name="Preview")).to_contain_text("19 to create, 0 existing, 4 to skip.")
        rows = page.locator("#imported > li")
        expect(rows.filter(has=page.locator(".badge", has_text="Skipped"))).to_contain_text(SKIPPED)
        for name, change in CHANGED.items():
            expect(rows.filter(has=page.get_by_role("checkbox", name=name))).to_contain_text(change)
        user.click("Import")
        expect(page.get_by_role("status").last).to_have_text("19 created, 0 existing, 0 skipped.")
        user.click("View monitors", "link")
        expect(page.get_by_role("row").filter(has_text="192.168.1.10:5001")).to_be_visible()
    _add_monitors(page, instance, home, folder)
    with user.task("Find one of 1,000 monitors"):
        user.fill("Search by name or URL", "shelf 815")
        expect(page.get_by_role("row").filter(has=page.get_by_role("cell"))).to_have_count(1)
        expect(page.get_by_role("row", name="Shelf 815")).to_be_visible()
    faults = browse.close()
    assert not faults, "\n".join(faults)
    return [Effort("First start", seconds=instance.seconds), *user.efforts]


def _add_monitors(page: Page, instance: Instance, home: Home, folder: Path) -> None:
    """Add monitors until there are MANY, and wait until only the two imported heartbeats have no result."""
    page.goto("/monitors")
    number = MANY - int(page.locator("#facet-all .number").inner_text())
    shelves = [
        {"type": "http", "name": f"Shelf {each}", "url": home.shop.url(f"/shelves/{each}", host=SHOP), "interval": 3600}
        for each in range(number)
    ]
    path = folder / "shelves.json"
    path.write_text(json.dumps({"monitorList": shelves}))
    instance.manage("import_from", "uptime-kuma", str(path), "--account", "admin@example.com")
    page.goto("/monitors")
    expect(page.locator("#facet-all .number")).to_have_text(str(MANY))
    expect(page.locator("#facet-pending .number")).to_have_text("2", timeout=UP_MS)


def main() -> int:
    executable = find_chromium()
    if executable is None:
        print(MISSING, file=sys.stderr)  # noqa: T201
        return 1
    expect.set_options(timeout=PATIENCE_MS)
    load, *_ = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-first-day-") as name:
        folder = Path(name)
        with (
            home(folder) as found,
            first_start(folder / "data", os.environ | found.variables) as instance,
            chromium(executable) as browser,
        ):
            efforts = play(browser, instance, found, folder)
    machine = f"Measured on a machine with {os.cpu_count()} cores and a load average of {load:.1f} before the start."
    text = re.sub(r"^Measured on .*$", machine, DOCUMENT.read_text(), flags=re.MULTILINE)
    for effort in efforts:
        row = f"| {effort.task} | {effort.clicks} | {effort.fields} | {effort.seconds:.1f} |"
        print(row)  # noqa: T201
        text, number = re.subn(rf"^\| {re.escape(effort.task)} \|.*$", row, text, flags=re.MULTILINE)
        assert number == 1, f"{DOCUMENT} has {number} rows for {effort.task}"
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
