"""What is put under load and killed: a process tree, its servers, and how they are reached.

`PrivateServers` is one machine with the servers of `make up`. `tests.faults.rehearsal` and `tests.faults.upgrade` have
others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import psutil

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers, server_pids
from tests.processes.tree import Place, Tree
from tests.processes.up import free_port

LOOPBACK = "127.0.0.1"
# Any number of beats and workers may run at once, so more than one of them does.
COUNTS = {"worker": 2, "beat": 2, "interactive": 2}
# What every run has, whatever it runs on: of flapping monitors nothing would be said.
COMMON = {
    "THROTTLE_SCALE": "0",
    "FLAPPING_CHANGES": "100",
    "FLAPPING_MINUTES": "2",
    "DJANGO_SETTINGS_MODULE": "config.settings",
}


class Host(Protocol):
    """A machine that may lose its power; all that ran on it is killed by whoever calls `fall`."""

    up: bool

    def cut_off(self) -> None:
        """Nothing reaches it, and nothing leaves it: not even that its connections are closed."""

    def fall(self) -> None:
        """It is gone, with its connections. Its processes are dead by now."""

    def rise(self) -> None:
        """It is there again, with nothing running."""


class System:
    """`DATABASE_URL`, `REDIS_URL` and all settings are in os.environ once there is one."""

    def __init__(self, tree: Tree, *, webs: Sequence[str], address: str = LOOPBACK) -> None:
        self.tree = tree
        self.webs = tuple(webs)  # host:port of each web process
        self.address = address  # where this process is reached by probes and senders
        self.hosts: Mapping[str, Host] = {}
        self.renewals: Sequence[Sequence[str]] = ()  # names of processes to renew, bout by bout

    def victims(self) -> dict[str, list[str]]:
        """Names of what may be killed, by kind. Servers are not among them."""
        found: dict[str, list[str]] = {}
        for member in self.tree.members.values():
            found.setdefault(member.kind, []).append(member.name)
        return found | ({"host": list(self.hosts)} if self.hosts else {})

    def host_of(self, name: str) -> str | None:
        """The host that the process `name` runs on, where there are several."""
        return None

    def kill_server(self, name: str) -> bool:
        """With all its children, and see to it that it starts again; False where it does not run just now."""
        raise NotImplementedError

    def renew(self, name: str) -> None:
        """The process `name`, which has ended, is of the next version from its next start on."""
        raise NotImplementedError


class PrivateServers(System):
    """The servers' keeper starts them again, on the same folder and address."""

    def __init__(self, tree: Tree, data_dir: Path, *, webs: Sequence[str]) -> None:
        super().__init__(tree, webs=webs)
        self._data_dir = data_dir

    def kill_server(self, name: str) -> bool:
        pid = (server_pids(self._data_dir) or {}).get(name)
        if not isinstance(pid, int):
            raise SystemExit("the keeper of the servers has ended")
        return kill_with_children(pid)


def kill_with_children(pid: int) -> bool:
    """All are dead when it returns; False where `pid` was dead before."""
    try:
        server = psutil.Process(pid)
        family = [server, *server.children(recursive=True)]
    except psutil.NoSuchProcess:  # killed a moment ago, and not started yet
        return False
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return True


def serve_privately(stack: ExitStack, folder: Path) -> None:
    """Private servers that keep what they have promised to keep, and settings for us and the tree."""
    found = stack.enter_context(
        embedded_servers(folder, postgres_settings={"fsync": "on", "synchronous_commit": "on"})
    )
    os.environ.update(
        load_or_create_secrets(folder),
        DATA_DIR=str(folder),
        DATABASE_URL=found.database_url,
        REDIS_URL=found.redis_url,
        ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
        **COMMON,
    )


def one_machine(stack: ExitStack, folder: Path) -> System:
    """One tree of this version, which is started by the driver."""
    serve_privately(stack, folder)
    migrate(Place())
    os.environ["PORT"] = str(free_port())
    tree = Tree(os.environ, folder, counts=COUNTS)
    return PrivateServers(tree, folder, webs=[f"{LOOPBACK}:{os.environ['PORT']}"])


def migrate(place: Place) -> None:
    """The one-shot of every start, with the code of `place`."""
    command = [*place.before, str(place.programs / "python"), "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=place.root, env={**os.environ, **place.variables}, check=True)
