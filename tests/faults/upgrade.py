"""`make upgrade`: replace a running version by this one, process by process, under load.

The two hosts of `make rehearsal` run the commit FROM (default: the last release before this commit, else the commit
before it), on a database that grew out of the oldest dump that FROM has in tests/upgrade. Under load the schema is
migrated with this version's code. Then one process after the other is stopped as a deployment does and started with
this version's code and lock file. Nothing is killed, and every monitor, ping and alert is accounted for.

It needs what `make rehearsal` needs, and git. `tests.faults.command` has its options and output.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psycopg

from tests.faults.command import command
from tests.faults.hosts import as_user, isolated
from tests.faults.rehearsal import USER, TwoHosts, two_hosts
from tests.faults.system import migrate
from tests.faults.virtualenv import KEPT, ROOT, programs_for
from tests.processes.tree import Place
from tests.upgrade.dumps import FOLDER, dumps


class Upgrade(TwoHosts):
    migrated = False

    def upgrade(self, name: str) -> None:
        if not self.migrated:  # not before the load: the previous version would not start on a newer database
            migrate(upgraded(next(iter(self.tree.members.values())).place))
            self.migrated = True
        member = self.tree.members[name]
        member.place = upgraded(member.place)


def upgraded(place: Place) -> Place:
    return dataclasses.replace(place, root=ROOT, programs=programs_for(ROOT, before=as_user(USER)))


def serve(stack: ExitStack, folder: Path) -> TwoHosts:
    root = previous_version()
    dump = next(iter(dumps(root / FOLDER.relative_to(ROOT))), None)
    system = two_hosts(stack, folder, root=root, kind=Upgrade, dump=dump)
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        # Every incident and alert is accounted for, so the dump's monitors may have none.
        database.execute("UPDATE monitors_monitor SET enabled = false")
        database.execute("TRUNCATE alerts_alertchannel, incidents_incident, monitors_statuschange CASCADE")
    members = system.tree.members
    system.replaced = [[name for name in members if system.host_of(name) == host] for host in system.hosts]
    return system


def previous_version() -> Path:
    """Return a folder with the code of the commit FROM, cached for the next run."""
    commit = _git("rev-parse", "--verify", f"{os.environ.get('FROM') or _last_release()}^{{commit}}")
    folder = KEPT / f"code-{commit[:12]}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(new)], input=archive.stdout, check=True)
        new.rename(folder)
    for old in folder.glob("*/migrations/*.py"):
        new = ROOT / old.relative_to(folder)
        if not new.exists() or old.read_bytes() != new.read_bytes():
            raise SystemExit(
                f"error: {old.relative_to(folder)} of {commit[:12]} was edited, so upgrading from it is impossible"
            )
    print(f"upgrading from {commit[:12]}", file=sys.stderr, flush=True)  # noqa: T201
    return folder


def _last_release() -> str:
    return _git("describe", "--tags", "--abbrev=0", "HEAD~1", fallback="HEAD~1")


def _git(*words: str, fallback: str = "") -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and not fallback:
        raise SystemExit(f"error: {done.stderr.strip()}")
    return fallback if done.returncode else done.stdout.strip()


if __name__ == "__main__":
    for root in (previous_version(), ROOT):
        programs_for(root, before=as_user(USER))  # now: the namespaces reach no package index
    isolated("tests.faults.upgrade")
    sys.exit(command(serve, seconds=60))
