"""Run each kind of process in a network that reaches only the servers listed in docs/operate/deployment.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.faults.reach import documented
from tests.processes.up import Program

LONGEST = 420  # with the start of all processes, on a machine that is busy with other tests
WITHOUT_A_SERVER = {"providers", "registries"}


def why_not() -> str | None:
    """Return what this machine lacks, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [name for name in ("ip", "unshare", "setpriv") if shutil.which(name) is None]:
        return f"network namespaces need {', '.join(missing)} (Debian: iproute2, util-linux)"
    tried = subprocess.run(["unshare", "--net", "--mount", "ip", "link", "add", "tried", "type", "bridge"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return f"this machine allows no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


def test_every_process_does_its_work_with_what_the_documents_let_it_reach(program: Program) -> None:
    if reason := why_not():
        pytest.skip(reason)
    done = program("-m", "tests.faults.reach", longest=LONGEST)
    assert done.returncode == 0, done.stderr[-6000:]
    reached = {name: set(names) for name, names in json.loads(done.stdout.splitlines()[-1]).items()}
    # The namespaces let each process reach exactly the servers in the table.
    assert reached == {name: set(names) - WITHOUT_A_SERVER for name, names in documented().items()}
    assert reached["dispatcher"] == {"database", "broker"}


def test_a_cut_uplink_of_the_workers_causes_no_alert(program: Program) -> None:
    if reason := why_not():
        pytest.skip(reason)
    done = program("-m", "tests.faults.own_network", "2", "12", "silent", longest=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["monitors"], found["false_downs"], found["alerts"]) == (2, 0, 0)
