"""The system under test: a process tree, its servers and their addresses.

`PrivateServers` is one machine with the servers of `make up`. `tests.faults.rehearsal` has two hosts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psutil

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers, server_pids
from tests.faults.script import HISTORY, SERVERS
from tests.processes.tree import Place, Tree
from tests.processes.up import copy_cluster, free_port

LOOPBACK = "127.0.0.1"
# Any number of beats and workers may run at once, so run more than one.
COUNTS = {"worker": 2, "beat": 2, "interactive": 2, "pack": 2}  # the last one is of `tests.faults.past`
# Common settings. Flapping detection would suppress alerts.
COMMON = {
    "THROTTLE_SCALE": "0",
    "FLAPPING_CHANGES": "100",
    "FLAPPING_MINUTES": "2",
    "DJANGO_SETTINGS_MODULE": "config.settings",
}


class Host(Protocol):
    """A machine that can lose power. The caller of `power_off` kills its processes."""

    up: bool

    def disconnect(self) -> None:
        """Drop all its packets, so that peers do not see closed connections."""

    def power_off(self) -> None:
        """Remove it with its connections, after its processes are dead."""

    def power_on(self) -> None:
        """Bring it back without any process."""


class System:
    """A system under test. DATABASE_URL, REDIS_URL and all settings are in os.environ once it exists."""

    def __init__(self, tree: Tree, *, webs: Sequence[str], address: str = LOOPBACK) -> None:
        self.tree = tree
        self.webs = tuple(webs)  # host:port of each web process
        self.address = address  # where probes reach this process
        self.receivers = address  # the same for senders of alerts
        self.hosts: Mapping[str, Host] = {}
        self.servers: Sequence[str] = (*SERVERS, HISTORY) if "HISTORY_DATABASE_URL" in os.environ else SERVERS
        self.replaced: Sequence[Sequence[str]] = ()  # processes that the script replaces, by burst

    def victims(self) -> dict[str, list[str]]:
        """Return the names of processes and hosts that may be killed, by kind. Servers are not among them.

        Nor are those of `tests.faults.past`, which kill themselves.
        """
        found: dict[str, list[str]] = {}
        for member in self.tree.members.values():
            if member.own_command is not None:
                continue
            found.setdefault(member.kind, []).append(member.name)
        return found | ({"host": list(self.hosts)} if self.hosts else {})

    def host_of(self, name: str) -> str | None:
        """Return the host of the process `name`, or None if there is only this machine."""
        return None

    def kill_server(self, name: str) -> bool:
        """Kill a server with its children and let it start again. Return False if it is not running."""
        raise NotImplementedError

    def upgrade(self, name: str) -> None:
        """Let the stopped process `name` start with the new version."""
        raise NotImplementedError


class PrivateServers(System):
    """The server supervisor restarts the servers with the same folder and address."""

    def __init__(self, tree: Tree, data_dir: Path, *, webs: Sequence[str]) -> None:
        super().__init__(tree, webs=webs)
        self._data_dir = data_dir

    def kill_server(self, name: str) -> bool:
        folder, server = (self._data_dir / HISTORY, "postgres") if name == HISTORY else (self._data_dir, name)
        pid = (server_pids(folder) or {}).get(server)
        if not isinstance(pid, int):
            raise SystemExit("the server supervisor has ended")
        return kill_with_children(pid)


def kill_with_children(pid: int) -> bool:
    """Kill a process with its children. Return False if `pid` was already dead."""
    try:
        server = psutil.Process(pid)
        family = [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:  # killed a moment ago and not started yet
        return False
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return True


def is_separate() -> bool:
    """Return whether the history gets a PostgreSQL of its own, by SEPARATE of the environment."""
    return bool(os.environ.get("SEPARATE"))


def serve_privately(stack: ExitStack, folder: Path) -> None:
    """Start durable private servers and put settings for this process and the tree into os.environ.

    A test names a migrated PostgreSQL to copy in CLUSTER, which saves seconds of a processor. With SEPARATE, the
    history is in another PostgreSQL, which comes with a Valkey that nothing uses.
    """
    if cluster := os.environ.get("CLUSTER"):
        copy_cluster(Path(cluster), folder)
    durable = {"fsync": "on", "synchronous_commit": "on"}
    found = stack.enter_context(embedded_servers(folder, postgres_settings=durable))
    if is_separate():
        history = stack.enter_context(embedded_servers(folder / HISTORY, postgres_settings=durable))
        os.environ["HISTORY_DATABASE_URL"] = history.database_url
    os.environ.update(
        load_or_create_secrets(folder),
        DATA_DIR=str(folder),
        DATABASE_URL=found.database_url,
        REDIS_URL=found.redis_url,
        ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
        **COMMON,
    )


def one_machine(stack: ExitStack, folder: Path, *, others: Mapping[str, str] = MappingProxyType({})) -> System:
    """Prepare one tree, which the driver starts. `others` are those of `Tree`."""
    serve_privately(stack, folder)
    migrate(Place())
    os.environ["PORT"] = str(free_port())
    os.environ["BASE_URL"] = f"http://{LOOPBACK}:{os.environ['PORT']}"
    tree = Tree(os.environ, folder, counts=COUNTS, others=others)
    return PrivateServers(tree, folder, webs=[f"{LOOPBACK}:{os.environ['PORT']}"])


def migrate(place: Place) -> None:
    """Run `migrate` with the code of `place`."""
    command = [*place.before, str(place.programs / "python"), "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=place.root, env={**os.environ, **place.variables}, check=True)
