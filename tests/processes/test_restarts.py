"""Two web processes behind nginx, restarted in turn under load; and the health checks of supervisors."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from tests.processes.client import Client
from tests.processes.tree import Place, Tree
from tests.processes.up import ROOT, STOP_SECONDS, Up, free_port
from tests.processes.waiting import until
from tests.proxies import NAME, PATH, Connection, nginx

START_SECONDS = 60
PROBE_SECONDS = 15  # timeoutSeconds in deployments.yaml
ENOUGH = 60  # requests of each kind while both run again
HEARTBEAT = {"type": "heartbeat", "name": "job", "interval_sec": 3600, "grace_sec": 60}


@dataclass(frozen=True)
class Script:
    """Runs of deploy/restart-web, and the pipes of its `systemctl`."""

    environment: dict[str, str]
    asked: Path
    done: Path

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Start a run, and terminate it and its children at the end."""
        script = subprocess.Popen(
            [ROOT / "deploy" / "restart-web"],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield script
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(script.pid, signal.SIGKILL)
            script.communicate()

    def wait_for(self, name: str) -> None:
        assert self.asked.read_text() == f"pulsekeeper@{name}\n"

    def restarted(self) -> None:
        self.done.write_text("done\n")


@dataclass
class Behind:
    """Two web processes behind nginx, over the database of `up`."""

    tree: Tree
    folder: Path
    ports: tuple[int, int]
    secure: int
    context: ssl.SSLContext

    def connect(self) -> http.client.HTTPSConnection:
        return Connection("127.0.0.1", self.secure, timeout=START_SECONDS, context=self.context)

    def answers(self, port: int) -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers={"Host": NAME})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def restart_script(self) -> Script:
        """Return a run of deploy/restart-web with a `systemctl` that passes each name to this process and waits."""
        systemctl, asked, done = (self.folder / name for name in ("systemctl", "asked", "done"))
        for fifo in (asked, done):
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo)
        systemctl.write_text(f'#!/bin/sh\necho "$2" > {asked}\nread answer < {done}\n')
        systemctl.chmod(0o755)
        environment = {
            "PATH": f"{self.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RUNTIME_DIRECTORY": str(self.folder),
            "ALLOWED_HOSTS": NAME,
            "PORT": str(self.ports[0]),
        }
        return Script(environment, asked, done)

    def marks(self) -> list[str]:
        """Return the names of the files that deploy/restart-web keeps for nginx."""
        return sorted(path.name for path in self.folder.glob("*.restarts"))

    def start(self, number: int) -> None:
        self.tree.start_one(f"web-{number}")
        until(lambda: self.answers(self.ports[number - 1]), START_SECONDS, "it answers")


@pytest.fixture(scope="module")
def behind(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    program = shutil.which("nginx", path=PATH)
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("nginx is not installed: apt-get install nginx-light")
    folder = tmp_path_factory.mktemp("restarts")
    authority = trustme.CA()
    certificate = authority.issue_cert(NAME)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    first, second = adjoining_ports()
    ports, plain, secure = (first, second), free_port(), free_port()
    given = {"ALLOWED_HOSTS": NAME, "TRUSTED_PROXIES": "127.0.0.1/32", "LOG_FORMAT": "json"}
    environment = psutil.Process(up.pid_of("web")).environ() | given
    others = dict.fromkeys(("worker", "interactive", "dispatcher", "beat"), 0)
    places = [Place(variables={"PORT": str(port)}) for port in ports]
    tree = Tree(environment, folder, counts=others, places=places)
    with tree, nginx(program, folder, upstreams=ports, plain=plain, secure=secure):
        behind = Behind(tree, folder, ports, secure, context)
        for port in ports:
            until(lambda port=port: behind.answers(port), START_SECONDS, "it answers")  # type: ignore[misc]
        yield behind


@dataclass
class Load:
    """Requests of a client that keeps its connection, until the end, and their statuses."""

    behind: Behind
    method: str
    path: str
    body: dict[str, Any] | None
    token: str
    found: Counter[int] = field(default_factory=Counter)

    def run(self, end: threading.Event) -> None:
        headers = {"Host": NAME, "Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        with closing(self.behind.connect()) as connection:
            while not end.is_set():
                connection.request(self.method, self.path, json.dumps(self.body) if self.body else None, headers)
                answer = connection.getresponse()
                answer.read()
                self.found[answer.status] += 1


def test_web_restarts_without_a_failed_request(up: Up, behind: Behind) -> None:
    with Client(up) as client:
        heartbeat = client.post("/monitors", HEARTBEAT)["id"]
        token = client.post("/sessions", {"email": "admin@example.com", "password": "correct horse battery"})["token"]
        loads = [
            Load(behind, "GET", "/v1/monitors?limit=1", None, token),
            Load(behind, "POST", f"/v1/heartbeats/{heartbeat}/ping", {"a": 1}, token),
            Load(behind, "POST", f"/v1/heartbeats/{heartbeat}/ping/log", {"a": 1}, token),
            Load(behind, "POST", f"/v1/monitors/{heartbeat}/mute", {"minutes": 0}, token),
        ]
        end = threading.Event()
        threads = [threading.Thread(target=load.run, args=(end,)) for load in loads]
        for thread in threads:
            thread.start()
        try:
            # Left over from a killed run.
            (behind.folder / "web-2.restarts").touch()
            script = behind.restart_script()
            with script.running() as run:
                for name in ("web-1", "web-2"):
                    script.wait_for(name)
                    with script.running() as second:
                        _, error = second.communicate(timeout=START_SECONDS)
                        assert (second.returncode, error) == (1, "restart-web: it runs already\n")
                    assert behind.marks() == [f"{name}.restarts"]
                    assert behind.tree.terminate(name)
                    behind.tree.start_one(name)
                    script.restarted()
                assert run.wait(START_SECONDS) == 0
            assert behind.marks() == []
            counts = [load.found.total() for load in loads]
            done = [count + ENOUGH for count in counts]
            until(
                lambda: all(load.found.total() >= count for load, count in zip(loads, done, strict=True)),
                START_SECONDS,
                f"all go on: {loads}",
            )
        finally:
            end.set()
            for thread in threads:
                thread.join()
        assert [set(load.found) for load in loads] == [{200}] * 4


def test_web_is_not_restarted_without_the_other_one(behind: Behind) -> None:
    assert behind.tree.terminate("web-2")
    with behind.restart_script().running() as run:
        _, error = run.communicate(timeout=START_SECONDS)
    assert (run.returncode, error) == (1, "restart-web: web-2 does not work, so web-1 was not restarted\n")
    assert behind.marks() == []
    # If a file for nginx is left over, nginx still uses the only running process.
    (behind.folder / "web-1.restarts").touch()
    with closing(behind.connect()) as connection:
        until(lambda: status_of(connection, "/healthz") == 200, START_SECONDS, "nginx uses web-1")
        assert {status_of(connection, "/healthz") for _ in range(20)} == {200}
    (behind.folder / "web-1.restarts").unlink()
    behind.start(2)


def test_an_interrupted_restart_leaves_no_file(behind: Behind) -> None:
    script = behind.restart_script()
    with script.running() as run:
        script.wait_for("web-1")
        assert behind.marks() == ["web-1.restarts"]
        run.terminate()
        script.restarted()
        assert run.wait(START_SECONDS) == 1
    assert behind.marks() == []


def test_a_request_that_has_begun_is_answered_by_the_process_that_stops(behind: Behind) -> None:
    web = behind.tree.members["web-1"].process
    assert web is not None
    with socket.create_connection(("127.0.0.1", behind.ports[0]), timeout=START_SECONDS) as slow:
        slow.sendall(f"POST /v1/sessions HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 2\r\n\r\n{{".encode())
        until(lambda: connected(web.pid, behind.ports[0]), START_SECONDS, "the request is being read")
        web.terminate()
        until(lambda: refuses(behind.ports[0]), START_SECONDS, "no new connections")
        slow.sendall(b"}")
        assert slow.recv(100).startswith(b"HTTP/1.1 4")
    assert behind.tree.terminate("web-1")
    behind.start(1)


def test_a_killed_web_server_leaves_no_process_on_its_port(behind: Behind) -> None:
    web = behind.tree.members["web-1"].process
    assert web is not None
    os.kill(web.pid, signal.SIGKILL)
    until(lambda: refuses(behind.ports[0]), STOP_SECONDS, "nothing listens")
    assert behind.tree.ended() == ["web-1"]
    behind.start(1)


def status_of(connection: http.client.HTTPSConnection, path: str) -> int:
    connection.request("GET", path, headers={"Host": NAME})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def adjoining_ports() -> tuple[int, int]:
    """Return two ports, the second of which is the next one, both reserved as by `free_port`."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError):
            return port, free_port(port + 1)


def connected(pid: int, port: int) -> bool:
    """Return whether a process below `pid` has a connection at its port."""
    connections = [one for child in psutil.Process(pid).children() for one in child.net_connections("tcp")]
    return any(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == port for one in connections)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def healthy(up: Up, name: str, folder: Path, *, timeout: int = START_SECONDS, **variables: str) -> int:
    """Return the exit code of `deploy/healthy`, run in another folder with the environment of `up`."""
    done = subprocess.run(
        [ROOT / "deploy" / "healthy", name],
        cwd=folder,
        env=psutil.Process(up.pid_of("web")).environ() | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode


def test_healthy_runs_anywhere_and_distinguishes_a_dead_broker_from_a_dead_process(up: Up, tmp_path: Path) -> None:
    running = dict.fromkeys(("web", "worker", "interactive", "dispatcher", "beat"), 0)
    expected = running | {"web-2": 1, "worker-2": 1, "none": 2}
    assert {name: healthy(up, name, tmp_path) for name in expected} == expected
    assert healthy(up, "worker", tmp_path, REDIS_URL="redis://127.0.0.1:1/0") == 75
    elsewhere = re.sub(r"/\d+$", "/9", psutil.Process(up.pid_of("web")).environ()["REDIS_URL"])
    assert healthy(up, "beat", tmp_path, REDIS_URL=elsewhere) == 1
    assert healthy(up, "beat", tmp_path, REDIS_URL="redis://127.0.0.1:1/0") == 75


def test_healthy_notices_a_broker_that_hangs_before_kubernetes_gives_up(up: Up, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        assert healthy(up, "worker", tmp_path, timeout=PROBE_SECONDS, REDIS_URL=broker) == 75


@pytest.mark.parametrize("address", ["127.0.0.2", "::"])
def test_healthy_asks_web_at_the_address_where_it_listens(up: Up, tmp_path: Path, address: str) -> None:
    port = str(free_port())
    with (tmp_path / "log").open("wb") as log:
        web = subprocess.Popen(
            [ROOT / "deploy" / "process", "web"],
            env=psutil.Process(up.pid_of("web")).environ() | {"GRANIAN_HOST": address, "PORT": port},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: healthy(up, "web", tmp_path, GRANIAN_HOST=address, PORT=port) == 0, START_SECONDS, "it answers")
    finally:
        web.terminate()
        web.wait(STOP_SECONDS)


def test_process_runs_other_names_as_commands() -> None:
    done = subprocess.run(
        [ROOT / "deploy" / "process", "/bin/echo", "x"],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
    )
    assert done.stdout == "x\n"
