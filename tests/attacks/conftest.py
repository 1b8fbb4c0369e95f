"""One running instance for all attacks, accounts of an attacker and a neighbour, and targets of both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest

from devserver.session import Servers, embedded_servers
from tests.processes.client import PASSWORD, Client, manage
from tests.processes.up import Up, copy_cluster
from tests.targets.server import Hang, Site, TargetServer, answer


@dataclass(frozen=True)
class Stage:
    """`quiet` answers at once, `hanging` accepts connections and never answers.

    `attacker` exhausts its limits of creating and testing per minute, so another account owns the dead webhooks.

    Accounts of the plan `fast` may have their monitors checked every second.
    """

    up: Up
    servers: Servers
    database: psycopg.Connection
    attacker: Client
    hook_owner: Client
    neighbour: Client
    targets: TargetServer
    quiet: Site
    hanging: Site

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.up.port}"

    @property
    def web(self) -> psutil.Process:
        """The web process itself, a child of granian's parent."""
        parent = psutil.Process(self.up.pid_of("web"))
        (worker,) = [child for child in parent.children() if "python" in child.name() or "granian" in child.name()]
        return worker


@pytest.fixture(scope="package")
def stage(
    tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str], migrated_cluster: Path
) -> Iterator[Stage]:
    with TargetServer() as targets, ExitStack() as stack:
        up = Up(
            [sys.executable, "manage.py", "up"],
            copy_cluster(migrated_cluster, tmp_path_factory.mktemp("attacks") / "data"),
            clean_environment,
            ADMIN_PASSWORD=PASSWORD,
        )
        stack.callback(up.end)
        up.wait_until_up()
        manage(
            up,
            "from accounts.models import Plan; from accounts.services import create_account\n"
            "Plan.objects.create(name='fast', min_interval_sec=1)\n"
            "for name in ('attacker', 'hooks', 'neighbour', 'hostile', 'healthy'):\n"
            "    plan = 'fast' if name in ('hostile', 'healthy') else 'pro'\n"
            f"    create_account(email=f'{{name}}@example.com', password={PASSWORD!r}, plan=plan)\n"
            "for number in range(9):\n"
            f"    create_account(email=f'many{{number}}@example.com', password={PASSWORD!r})",
            clean_environment,
        )
        servers = stack.enter_context(embedded_servers(up.data_dir))
        database = stack.enter_context(psycopg.connect(servers.database_url, autocommit=True))
        attacker = stack.enter_context(Client(up, "attacker@example.com"))
        hook_owner = stack.enter_context(Client(up, "hooks@example.com"))
        neighbour = stack.enter_context(Client(up, "neighbour@example.com"))
        quiet = targets.serve([answer(200, b"ok")])
        hanging = targets.serve([Hang()])
        yield Stage(up, servers, database, attacker, hook_owner, neighbour, targets, quiet, hanging)
