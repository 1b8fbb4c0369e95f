"""The script of a run, and how the injector applies and reverts faults of hosts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.injector import FaultInjector
from tests.faults.script import HISTORY, MANY_STARTING_SEC, SERVERS, WITHIN_SEC, Burst, Fault, write_script
from tests.faults.system import System
from tests.processes.tree import Place, Tree

VICTIMS = {"web": ["web-1", "web-2"], "worker": ["worker-1"], "beat": ["beat-1"], "interactive": ["i-1"]}
HOSTS = {"host": ["host-a", "host-b"]}


def test_hosts_are_away_for_seconds_and_have_longer_to_start() -> None:
    script = write_script(1, seconds=2000, monitors=1, victims=VICTIMS | HOSTS, starting_sec=MANY_STARTING_SEC)
    faults = [fault for burst in script.bursts for fault in burst.faults if fault.victim in HOSTS["host"]]
    assert {fault.victim for fault in faults} == set(HOSTS["host"])
    assert all(2 <= fault.restart_after <= 5 for fault in faults)
    assert all(burst.calm_end - burst.end == MANY_STARTING_SEC + WITHIN_SEC for burst in script.bursts)


def test_all_servers_are_killed() -> None:
    script = write_script(1, seconds=200, monitors=1, victims=VICTIMS, servers=(*SERVERS, HISTORY))
    assert {*SERVERS, HISTORY} <= {fault.victim for burst in script.bursts for fault in burst.faults}


@pytest.mark.parametrize(("children", "families"), [(27, {3: 27, 103: 27, 203: 27, 303: 27, 403: 27}), (300, {3: 300})])
def test_monitors_depend_on_few_or_on_one(children: int, families: dict[int, int]) -> None:
    script = write_script(1, seconds=100, monitors=500, victims=VICTIMS, children=children)
    dependent = [part for part in script.parts if part.parent is not None]
    assert Counter(part.parent for part in dependent) == families
    assert all(part.flips == script.parts[part.parent or 0].flips for part in dependent)
    assert {part.kind for part in dependent} == {script.parts[parent].kind for parent in families} == {"http"}


@dataclass
class Switch:
    """A host that is only switched on or off."""

    up: bool = True

    def disconnect(self) -> None:
        self.up = False

    def power_off(self) -> None:
        assert not self.up

    def power_on(self) -> None:
        self.up = True


class Sleepers(System):
    """Two hosts, each with one sleeping process per kind."""

    def __init__(self, folder: Path) -> None:
        (folder / "Procfile").write_text("clock: exec sleep 60\nhand: exec sleep 60\n")
        places = [Place(root=folder, variables={"HOST": name}) for name in ("a", "b")]
        super().__init__(Tree({}, folder, counts={}, places=places), webs=[])
        self.hosts = {"host-a": Switch(), "host-b": Switch()}

    def host_of(self, name: str) -> str:
        return f"host-{self.tree.members[name].place.variables['HOST']}"

    def running(self) -> set[str]:
        return {name for name, member in self.tree.members.items() if member.process is not None}


ALL = {"clock-1", "clock-2", "hand-1", "hand-2"}


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Sleepers]:
    system = Sleepers(tmp_path)
    with system.tree:
        yield system


def _play(system: Sleepers, *faults: Fault) -> FaultInjector:
    injector = FaultInjector(system)
    injector.play(Burst(0.0, 0.2, 0.2, faults), start=time.time())
    return injector


def test_a_host_stops_its_processes_and_restarts_only_those_that_should_run(sleepers: Sleepers) -> None:
    before = {name: member.pid for name, member in sleepers.tree.members.items()}
    injector = _play(
        sleepers,
        Fault(0.0, "clock-1", restart_after=0.6),
        Fault(0.05, "host-a", restart_after=0.2),
        Fault(0.06, "host-a", restart_after=9.0),  # down already
        Fault(0.07, "hand-1", restart_after=9.0),  # also down
    )
    assert sleepers.running() == ALL
    events = [event.text for event in injector.events]
    assert events == ["killed clock-1", "killed host-a and all its processes", "restored host-a", "started clock-1"], (
        "a process that stays down longer than its host is started later"
    )
    changed = {name for name, member in sleepers.tree.members.items() if member.pid != before[name]}
    assert changed == {"clock-1", "hand-1"}
    assert injector.kills == 2


def test_a_process_whose_host_is_down_waits_for_it(sleepers: Sleepers) -> None:
    injector = _play(sleepers, Fault(0.0, "clock-2", restart_after=0.1), Fault(0.02, "host-b", restart_after=0.4))
    assert sleepers.running() == ALL
    events = [event.text for event in injector.events]
    assert events.index("restored host-b") < events.index("started clock-2")
