"""The web server of the Procfile on private servers in a temporary folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests
from honcho.environ import parse_procfile

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers, server_pids
from tests.processes.up import free_port

ROOT = Path(__file__).resolve().parent.parent
_SEED = """
import django; django.setup()
from accounts.models import User
from benchmarks.seeding import seed_history
from core.clock import utc_now
owner = User.objects.get(email={email!r})
print(seed_history(owner, monitors={monitors}, days={days}, interval_sec={interval_sec}, now=utc_now()))
"""


@dataclass(frozen=True)
class Serving:
    """A web server at `address`, its servers, and the environment for processes that use them."""

    address: str
    folder: Path
    environment: dict[str, str]
    web_command: str
    web_pid: int

    def python(self, *arguments: str, root: Path = ROOT) -> str:
        """Run Python with this environment, and the code in `root`, and return its standard output."""
        return subprocess.run(
            [sys.executable, *arguments], cwd=root, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def seed(self, email: str, *, monitors: int, days: float, interval_sec: int = 60) -> str:
        """Create monitors with history (`benchmarks.seeding`) for the account, and return what was created."""
        return self.python("-c", _SEED.format(email=email, monitors=monitors, days=days, interval_sec=interval_sec))

    def server_pid(self, name: str) -> int:
        """Return the pid of `postgres` or `valkey`."""
        pid = (server_pids(self.folder) or {})[name]
        assert isinstance(pid, int)
        return pid

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds of web, postgres and valkey with all their children."""
        pids = {"web": self.web_pid} | {name: self.server_pid(name) for name in ("postgres", "valkey")}
        return {name: cpu_seconds_of(psutil.Process(pid)) for name, pid in pids.items()}


def cpu_seconds_of(process: psutil.Process) -> float:
    """Return the CPU seconds of the process, its descendants, and its ended children."""
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        try:
            total += cpu_seconds_of(child)
        except psutil.NoSuchProcess:  # its parent includes it the next time
            continue
    return float(total)


@contextmanager
def serving(
    variables: Mapping[str, str] | None = None, *, command: str | None = None, setup: str = "", root: Path = ROOT
) -> Iterator[Serving]:
    """Start the servers and the web server, and remove everything at the end of the block.

    `setup` is Python code that runs after the migrations and before the web server starts. `command` replaces the web
    command of the Procfile. `root` is the folder of the code, for another version of it.
    """
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as folder, embedded_servers(Path(folder)) as servers:
        port = free_port()
        environment = {
            **os.environ,
            **load_or_create_secrets(Path(folder)),
            "DATA_DIR": folder,
            "DATABASE_URL": servers.database_url,
            "REDIS_URL": servers.redis_url,
            "ALLOWED_PRIVATE_NETWORKS": "127.0.0.0/8",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PORT": str(port),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **(variables or {}),
        }

        def run(*arguments: str) -> None:
            subprocess.run([sys.executable, *arguments], cwd=root, env=environment, check=True)

        run("manage.py", "migrate", "--verbosity", "0")
        if setup:
            run("-c", setup)
        line = command or parse_procfile((root / "Procfile").read_text()).processes["web"]
        # Its last messages may come after those of the benchmark, whose last line is JSON.
        with subprocess.Popen(
            line, shell=True, cwd=root, env=environment, start_new_session=True, stdout=sys.stderr
        ) as web:
            try:
                address = f"http://127.0.0.1:{port}"
                wait_until_answering(address)
                yield Serving(address, Path(folder), environment, line, web.pid)
            finally:
                os.killpg(web.pid, signal.SIGTERM)


def wait_until_answering(address: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            requests.get(f"{address}/healthz", timeout=2).raise_for_status()
        except requests.RequestException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
