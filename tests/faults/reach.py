"""Run each process of the Procfile in a network namespace that reaches only what docs/operate/deployment.md says.

    python -m tests.faults.reach

Needs root and iproute2. It makes a monitor, a webhook, a mail channel and a status page, takes the target down, and
waits for each message. The last line printed is one JSON object: which servers each process kind can connect to.
Exits 1 with an error if a message does not arrive.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import requests

from tests.alerts.inbox import Inbox
from tests.alerts.receiver import Receiver
from tests.faults.hosts import NamespaceHost, Network, isolated
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import ROOT, Place, Tree
from tests.processes.waiting import until
from tests.site import Site

PORT = 8000
PATIENCE = 120  # seconds, on a machine that is busy with other tests
PASSWORD = "correct horse battery"
OWNER, INVITED, READER = "owner@example.com", "invited@example.com", "reader@example.com"

# What the table of docs/operate/deployment.md names.
NAMES = ("database", "broker", "mail server", "targets", "receivers of alerts", "providers", "registries")
NETWORKS = {name: Network(name, number) for number, name in enumerate(NAMES, start=1)}


def documented() -> dict[str, list[str]]:
    """Return what each process may reach (docs/operate/deployment.md). Raises ValueError for a name not in NAMES."""
    _, _, table = (ROOT / "docs" / "operate" / "deployment.md").read_text().partition("| process | how many |")
    found = {}
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            break
        process, _, _, reaches = [cell.strip() for cell in line.strip("|").split("|")]
        found[process.strip("`")] = [name.strip().strip("*") for name in reaches.split(",")]
    if unknown := {name for names in found.values() for name in names} - set(NAMES):
        raise ValueError(f"docs/operate/deployment.md names {', '.join(sorted(unknown))}, which no network stands for")
    return found


class Relay(ThreadingTCPServer):
    """A server on a network that forwards everything to `connect()`: our private servers listen on this host only."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, connect: Callable[[], socket.socket]) -> None:
        self.connect = connect
        super().__init__((address, 0), _Pass)
        self.place: tuple[str, int] = (address, self.socket.getsockname()[1])
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Pass(BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with self.server.connect() as other:
            back = threading.Thread(target=_pump, args=(other, self.request), daemon=True)
            back.start()
            _pump(self.request, other)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # either side hung up
        source.close()
        sink.close()


def main() -> None:
    isolated("tests.faults.reach")
    reaches = documented()
    for network in NETWORKS.values():
        network.power_on()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsekeeper-reach-")))
        serve_privately(stack, folder)
        migrate(Place())
        inbox = stack.enter_context(Inbox(address=NETWORKS["mail server"].address))
        receiver = stack.enter_context(Receiver(address=NETWORKS["receivers of alerts"].address))
        site = stack.enter_context(Site(address=NETWORKS["targets"].address))
        database, broker = relay_database(NETWORKS["database"].address), relay_broker(NETWORKS["broker"].address)
        for relay in (database, broker):
            stack.callback(relay.shutdown)
        servers = {
            "database": database.place,
            "broker": broker.place,
            "mail server": (NETWORKS["mail server"].address, inbox.port),
            "receivers of alerts": _place(receiver.url),
            "targets": _place(site.url("/")),
        }
        hosts = {
            name: NamespaceHost(name, number, [NETWORKS[each] for each in reached])
            for number, (name, reached) in enumerate(reaches.items(), start=11)
        }
        for host in hosts.values():
            host.power_on()
        environment = os.environ | {
            "DATABASE_URL": database_url(database),
            "REDIS_URL": redis_url(broker),
            "EMAIL_URL": f"smtp://{servers['mail server'][0]}:{inbox.port}",
            "EMAIL_FROM": "Pulsekeeper <alerts@pulsekeeper.example>",
            "ALLOWED_PRIVATE_NETWORKS": "10.77.0.0/16",
            "ALLOWED_HOSTS": hosts["web"].address,
            "GRANIAN_HOST": hosts["web"].address,
            "PORT": str(PORT),
        }
        found = {name: _reached(host, servers) for name, host in hosts.items()}
        places = [Place(before=host.command("root"), kinds={name}) for name, host in hosts.items()]
        stack.enter_context(Tree(environment, folder, counts={}, places=places))
        try:
            _play(hosts["web"].address, inbox=inbox, receiver=receiver, site=site)
        except AssertionError as error:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in folder.glob("*-1.log"))
            raise SystemExit(f"{error}\n{logs}") from error
    print(json.dumps(found))  # noqa: T201


def relay_database(address: str) -> Relay:
    """Serve the private PostgreSQL, which listens on a socket of one user only, at `address` for all."""

    def connect() -> socket.socket:
        folder = unquote(urlsplit(os.environ["DATABASE_URL"]).hostname or "")
        made = socket.socket(socket.AF_UNIX)
        made.connect(f"{folder}/.s.PGSQL.5432")
        return made

    return Relay(address, connect)


def relay_broker(address: str) -> Relay:
    """Serve the private broker at `address` for all."""
    return Relay(address, lambda: socket.create_connection(_place(os.environ["REDIS_URL"])))


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def database_url(relay: Relay) -> str:
    """Return DATABASE_URL through `relay`."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    address = "{}@{}:{}".format(parts.username, *relay.place)
    return f"postgresql://{address}{parts.path}?sslmode=disable"


def redis_url(relay: Relay) -> str:
    """Return REDIS_URL through `relay`."""
    parts = urlsplit(os.environ["REDIS_URL"])
    return "redis://:{}@{}:{}{}".format(parts.password, *relay.place, parts.path)


def _reached(host: NamespaceHost, servers: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return the names of the servers that a process on this host connects to."""
    code = (
        "import json, socket, sys\n"
        "found = []\n"
        "for name, place in json.loads(sys.argv[1]).items():\n"
        "    try:\n"
        "        socket.create_connection(tuple(place), timeout=5).close()\n"
        "    except OSError:\n"
        "        continue\n"
        "    found.append(name)\n"
        "print(json.dumps(found))"
    )
    command = [*host.command("root"), sys.executable, "-c", code, json.dumps(servers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def _play(web: str, *, inbox: Inbox, receiver: Receiver, site: Site) -> None:
    """Act as users do. Raises AssertionError if a message does not arrive."""

    def answers(path: str) -> requests.Response | None:
        try:
            return requests.get(f"http://{web}:{PORT}{path}", timeout=5)
        except requests.RequestException:
            return None

    def ready() -> bool:
        response = answers("/readyz")
        return response is not None and response.status_code == 200

    until(ready, PATIENCE, "all processes run")

    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()
    from accounts.models import Plan
    from accounts.services import create_account
    from tests.processes.client import Client
    from tests.statuspages.making import make_subscriber

    Plan.objects.update(min_interval_sec=1)
    create_account(email=OWNER, password=PASSWORD, plan="pro")
    with Client(SimpleNamespace(port=PORT), OWNER, host=web) as client:
        hook = client.post("/alert-channels", {"kind": "webhook", "url": receiver.url + "/hook"})["id"]
        tested = client.post(f"/alert-channels/{hook}/test")
        assert tested["delivered"], f"a test by `interactive`: {tested}"
        draft = client.post("/monitors/test", {"name": "Shop", "url": site.url("/ok"), "timeout_ms": 10_000})
        assert draft["status"] == "up", f"a draft by `interactive`: {draft}"
        body = {"name": "Shop", "url": site.url("/ok"), "interval_sec": 1, "fail_threshold": 1}
        monitor = client.post("/monitors", body)["id"]
        first = client.wait_for(monitor, "up")["last_checked_at"]
        until(lambda: client.monitor(monitor)["last_checked_at"] > first, PATIENCE, "`worker` checks it")

        shown = {"name": "Shop", "monitors": [{"monitor_id": monitor, "name": "Checkout"}]}
        page = client.post("/status-pages", {"name": "Shop", "slug": "shop", "groups": [shown]})
        from statuspages.models import StatusPage

        make_subscriber(StatusPage.objects.get(public_id=page["id"]), email=READER)
        project = client.post("/projects", {"name": "Shop"})["id"]
        client.post(f"/projects/{project}/members", {"email": INVITED, "role": "member"})
        _wait_for_mail(inbox, INVITED, "an invitation by `web`")

        receiver.calls.clear()
        site.stop()
        until(lambda: [call.json["event"] for call in receiver.calls] == ["down"], PATIENCE, "a webhook arrives")
        _wait_for_mail(inbox, OWNER, "an alert by `interactive`")
        _wait_for_mail(inbox, READER, "a mail to a subscriber by `interactive`")
        until(ready, PATIENCE, "all is well")


def _wait_for_mail(inbox: Inbox, to: str, what: str) -> None:
    until(lambda: any(mail["To"] == to for mail in inbox.mails), PATIENCE, f"{what} arrives")


if __name__ == "__main__":
    main()
