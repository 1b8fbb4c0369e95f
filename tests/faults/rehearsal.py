"""`make rehearsal`: the fault test on two hosts, with PostgreSQL and Redis from Debian packages.

Each host runs a web process, two workers, an interactive one, a dispatcher and a beat, as `nobody`, from a virtualenv
of the lock for production. Each kind is in a network namespace that reaches only what docs/operate/deployment.md lists.
PostgreSQL (TLS and a password) and Redis (a password) run on other machines. With SEPARATE=1 the history is in another
PostgreSQL. Besides single processes and servers,
whole hosts lose power; their peers then see no closed connections.

It needs root, and Debian's `postgresql`, `redis-server` and `iproute2`. `tests.faults.command` has its options
and output.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cryptography.fernet import Fernet

from tests.faults.command import command
from tests.faults.hosts import NamespaceHost, Server, as_user, isolated, postgres, redis
from tests.faults.reach import NETWORKS, documented
from tests.faults.script import HISTORY, MANY_STARTING_SEC
from tests.faults.system import COMMON, System, is_separate, migrate
from tests.faults.virtualenv import ROOT, programs_for
from tests.processes.tree import Place, Tree
from tests.upgrade.dumps import ENCRYPTION_KEY, restore

PORT = 8000
USER = "nobody"
COUNTS = {"worker": 2}  # in each place; one process of every other kind


class DividedHost:
    """A host that is divided into one namespace for each kind of process, with access to its networks only."""

    def __init__(self, name: str, number: int) -> None:
        self.parts = {
            kind: NamespaceHost(f"{name}-{kind}", number + offset, [NETWORKS[each] for each in reached])
            for offset, (kind, reached) in enumerate(documented().items())
        }
        self.up = False

    @property
    def web(self) -> str:
        return self.parts["web"].address

    def disconnect(self) -> None:
        for part in self.parts.values():
            part.disconnect()
        self.up = False

    def power_off(self) -> None:
        for part in self.parts.values():
            part.power_off()

    def power_on(self) -> None:
        for part in self.parts.values():
            part.power_on()
        self.up = True


class TwoHosts(System):
    """`places` maps hosts to places of the tree."""

    def __init__(
        self,
        tree: Tree,
        hosts: Mapping[str, DividedHost],
        places: Mapping[str, Sequence[Place]],
        servers: Mapping[str, Server],
    ) -> None:
        webs = [f"{host.web}:{PORT}" for host in hosts.values()]
        super().__init__(tree, webs=webs, address=NETWORKS["targets"].address)
        self.receivers = NETWORKS["receivers of alerts"].address
        self.hosts = hosts
        self._places = places
        self._servers = servers

    def host_of(self, name: str) -> str:
        place = self.tree.members[name].place
        return next(host for host, found in self._places.items() if place.before in [each.before for each in found])

    def kill_server(self, name: str) -> bool:
        server = self._servers[name]
        killed = server.kill()
        server.start()
        return killed


def two_hosts(
    stack: ExitStack,
    folder: Path,
    *,
    root: Path = ROOT,
    kind: type[TwoHosts] = TwoHosts,
    dump: Path | None = None,
) -> TwoHosts:
    """Start hosts and servers, with a database of the dump. The driver starts the tree, with the code in `root`."""
    folder.chmod(0o711)  # the users of the servers and of the tree must enter it
    for network in NETWORKS.values():
        network.power_on()
    hosts = {"host-a": DividedHost("host-a", 11), "host-b": DividedHost("host-b", 21)}
    database, database_url = postgres(folder, NETWORKS["database"])
    stack.callback(database.stop)
    broker, redis_url = redis(folder, NETWORKS["broker"])
    stack.callback(broker.stop)
    servers = {"postgres": database, "valkey": broker}
    if is_separate():
        servers[HISTORY], os.environ["HISTORY_DATABASE_URL"] = postgres(
            folder, NETWORKS["database"], name=HISTORY, port=5433
        )
        stack.callback(servers[HISTORY].stop)
    keys = settings_secrets()
    if dump is not None:
        restore(dump, database_url)
        keys["ENCRYPTION_KEYS"] += f",{ENCRYPTION_KEY}"
    os.environ.update(
        keys,
        DATABASE_URL=database_url,
        REDIS_URL=redis_url,
        BASE_URL="https://pulsekeeper.example.com",
        ALLOWED_HOSTS=",".join(["pulsekeeper.example.com", *(host.web for host in hosts.values())]),
        ALLOWED_PRIVATE_NETWORKS=",".join(
            f"{NETWORKS[name].address}/32" for name in ("targets", "receivers of alerts")
        ),
        PORT=str(PORT),
        **COMMON,
    )
    places = {}
    programs = programs_for(root, before=as_user(USER))
    for name, host in hosts.items():
        home = folder / name
        home.mkdir(mode=0o700)
        shutil.chown(home, USER)
        host.power_on()
        variables = {"GRANIAN_HOST": host.web, "DATA_DIR": str(home), "HOME": str(home)}
        places[name] = [
            Place(root=root, programs=programs, before=part.command(USER), variables=variables, kinds={kind})
            for kind, part in host.parts.items()
        ]
    migrate(places["host-a"][0])
    tree = Tree(os.environ, folder, counts=COUNTS, places=[place for each in places.values() for place in each])
    return kind(tree, hosts, places, servers)


def settings_secrets() -> dict[str, str]:
    """Return new values of the settings that are secrets."""
    return {"SECRET_KEY": secrets.token_urlsafe(48), "ENCRYPTION_KEYS": Fernet.generate_key().decode()}


if __name__ == "__main__":
    programs_for(ROOT, before=as_user(USER))  # now, because the namespaces cannot reach a package index
    isolated("tests.faults.rehearsal")
    sys.exit(command(two_hosts, seconds=60, starting_sec=MANY_STARTING_SEC))
