"""`make upgrade`: the faults of `make faults` while another version is replaced by this one, process by process.

FROM is the commit of the version before; without it the last release, or else the last commit. Its processes run, two
of each kind, on a database of its schema. This version's migrations are applied under them. Then one of each kind is
replaced, all that was asked and told while both versions run is accounted for, and then the other ones are.
`tests.faults.command` says what else it takes and prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from devserver import readiness
from tests.faults.command import command
from tests.faults.script import MANY_STARTING_SEC
from tests.faults.system import LOOPBACK, PrivateServers, migrate, serve_privately
from tests.faults.versions import ROOT, previous_release, programs_for, unpack
from tests.processes.tree import Place, Tree
from tests.processes.up import free_port
from tests.processes.waiting import until

START_SECONDS = 60
# Two bouts for the replacing, and one of this version alone.
SECONDS = 230


class Upgrade(PrivateServers):
    """In each place of the tree runs one process of each kind."""

    def __init__(self, tree: Tree, data_dir: Path, *, webs: Sequence[str], programs: Path) -> None:
        super().__init__(tree, data_dir, webs=webs)
        self._programs = programs
        first, second = ([m.name for m in tree.members.values() if m.number == number] for number in (1, 2))
        self.renewals = (first, second)

    def renew(self, name: str) -> None:
        member = self.tree.members[name]
        member.place = replace(member.place, root=ROOT, programs=self._programs)


def upgrade(stack: ExitStack, folder: Path) -> Upgrade:
    """The processes of the version before run on a migrated database when it returns."""
    before = folder / "before"
    before.mkdir()
    name = unpack(os.environ.get("FROM") or previous_release(), before)
    print(f"from {name}", file=sys.stderr, flush=True)  # noqa: T201
    old = Place(root=before, programs=programs_for(before))
    programs = programs_for(ROOT)
    serve_privately(stack, folder)
    migrate(old)
    ports = [free_port(), free_port()]
    places = [replace(old, variables={"PORT": str(port)}) for port in ports]
    tree = Tree(os.environ, folder, counts={}, places=places)
    webs = [f"{LOOPBACK}:{port}" for port in ports]
    stack.enter_context(tree)
    for web in webs:
        until(_web(web), START_SECONDS, "the version before answers")
    migrate(Place(programs=programs))
    return Upgrade(tree, folder, webs=webs, programs=programs)


def _web(web: str) -> Callable[[], bool]:
    return lambda: readiness.web_answers(f"http://{web}")


if __name__ == "__main__":
    sys.exit(command(upgrade, seconds=SECONDS, starting_sec=MANY_STARTING_SEC))
