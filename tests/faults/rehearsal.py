"""`make rehearsal`: the fault test on two hosts, with PostgreSQL and Redis from Debian packages.

Each host is a network namespace with a name and an address of its own, and runs a web process, two workers, an
interactive one, a dispatcher and a beat, as `nobody`, from a virtualenv of the lock for production. PostgreSQL (TLS and
a password) and Redis (a password) run on a third machine. Whole hosts also lose power, besides single processes and
servers; peers then see no closed connections.

It needs root, and Debian's `postgresql`, `redis-server` and `iproute2`. `tests.faults.command` has its options
and output.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from cryptography.fernet import Fernet

from tests.faults.command import command
from tests.faults.hosts import SERVER_ADDRESS, NamespaceHost, Server, as_user, isolated, postgres, redis
from tests.faults.script import MANY_STARTING_SEC
from tests.faults.system import COMMON, System, migrate
from tests.faults.virtualenv import ROOT, programs_for
from tests.processes.tree import Place, Tree

PORT = 8000
USER = "nobody"
COUNTS = {"worker": 2}  # in each place; one of everything else


class TwoHosts(System):
    """`places` maps hosts to places of the tree."""

    def __init__(
        self, tree: Tree, hosts: Mapping[str, NamespaceHost], places: Mapping[str, Place], servers: Mapping[str, Server]
    ) -> None:
        super().__init__(tree, webs=[f"{host.address}:{PORT}" for host in hosts.values()], address=SERVER_ADDRESS)
        self.hosts = hosts
        self._places = places
        self._servers = servers

    def host_of(self, name: str) -> str:
        place = self.tree.members[name].place
        return next(host for host, found in self._places.items() if found is place)

    def kill_server(self, name: str) -> bool:
        server = self._servers[name]
        killed = server.kill()
        server.start()
        return killed


def two_hosts(stack: ExitStack, folder: Path) -> TwoHosts:
    """Start hosts and servers. The driver starts the processes of the tree."""
    folder.chmod(0o711)  # the users of the servers and of the tree must enter it
    hosts = {name: NamespaceHost(name, number) for number, name in enumerate(("host-a", "host-b"), start=11)}
    database, database_url = postgres(folder)
    stack.callback(database.stop)
    broker, redis_url = redis(folder)
    stack.callback(broker.stop)
    keys = _secrets()
    os.environ.update(
        keys,
        DATABASE_URL=database_url,
        REDIS_URL=redis_url,
        BASE_URL="https://pulsekeeper.example.com",
        ALLOWED_HOSTS=",".join(["pulsekeeper.example.com", *(host.address for host in hosts.values())]),
        ALLOWED_PRIVATE_NETWORKS=f"{SERVER_ADDRESS}/32",
        PORT=str(PORT),
        **COMMON,
    )
    places = {}
    programs = programs_for(ROOT, before=as_user(USER))
    for name, host in hosts.items():
        home = folder / name
        home.mkdir(mode=0o700)
        shutil.chown(home, USER)
        host.power_on()
        variables = {"GRANIAN_HOST": host.address, "DATA_DIR": str(home), "HOME": str(home)}
        places[name] = Place(programs=programs, before=host.command(USER), variables=variables)
    migrate(places["host-a"])
    tree = Tree(os.environ, folder, counts=COUNTS, places=list(places.values()))
    return TwoHosts(tree, hosts, places, {"postgres": database, "valkey": broker})


def _secrets() -> dict[str, str]:
    return {"SECRET_KEY": secrets.token_urlsafe(48), "ENCRYPTION_KEYS": Fernet.generate_key().decode()}


if __name__ == "__main__":
    programs_for(ROOT, before=as_user(USER))  # now: the namespaces reach no package index
    isolated("tests.faults.rehearsal")
    sys.exit(command(two_hosts, seconds=60, starting_sec=MANY_STARTING_SEC))
