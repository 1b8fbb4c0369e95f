"""Blows at hosts and by renewal: how a script has them, and how they are dealt and made good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.faults.killing import Killer
from tests.faults.script import BOUT_SEC, MANY_STARTING_SEC, WITHIN_SEC, Blow, Bout, write_script
from tests.faults.system import System
from tests.processes.tree import Place, Tree

VICTIMS = {"web": ["web-1", "web-2"], "worker": ["worker-1"], "beat": ["beat-1"], "interactive": ["i-1"]}
HOSTS = {"host": ["host-a", "host-b"]}
RENEWALS = (["web-1", "beat-1"], ["web-2"])


@pytest.mark.parametrize("seed", range(5))
def test_a_script_with_renewals_has_the_same_kills_as_without(seed: int) -> None:
    plain = write_script(seed, seconds=200, monitors=50, victims=VICTIMS | HOSTS)
    renewing = write_script(seed, seconds=200, monitors=50, victims=VICTIMS | HOSTS, renewals=RENEWALS)
    assert plain.parts == renewing.parts
    for before, after, names in zip(plain.bouts, renewing.bouts, (*RENEWALS, ()), strict=True):
        added = [blow for blow in after.blows if blow.way == "renew"]
        assert [blow.victim for blow in added] == list(names)
        assert all(after.start <= blow.at < after.end for blow in added)
        assert before.blows == tuple(blow for blow in after.blows if blow not in added)


def test_hosts_are_away_for_seconds_and_have_longer_to_start() -> None:
    script = write_script(
        1, seconds=2000, monitors=1, victims=VICTIMS | HOSTS, starting_sec=MANY_STARTING_SEC
    )
    blows = [blow for bout in script.bouts for blow in bout.blows if blow.victim in HOSTS["host"]]
    assert {blow.victim for blow in blows} == set(HOSTS["host"])
    assert all(2 <= blow.back_after <= 5 for blow in blows)
    assert all(bout.calm_end - bout.end == MANY_STARTING_SEC + WITHIN_SEC for bout in script.bouts)


def test_a_run_that_is_too_short_for_its_renewals_is_refused() -> None:
    with pytest.raises(ValueError, match="15 s are 1 bouts, and 2 are needed"):
        write_script(1, seconds=15, monitors=1, victims=VICTIMS, renewals=RENEWALS)
    assert BOUT_SEC > 15


@dataclass
class Switch:
    """A host that is up or not."""

    up: bool = True

    def cut_off(self) -> None:
        self.up = False

    def fall(self) -> None:
        assert not self.up

    def rise(self) -> None:
        self.up = True


class Sleepers(System):
    """Two hosts with a process of each kind, which sleep; the next version of one sleeps elsewhere."""

    def __init__(self, folder: Path) -> None:
        for version in ("old", "new"):
            (folder / version).mkdir()
            lines = "clock: exec sleep 60\nhand: exec sleep 60\n"
            (folder / version / "Procfile").write_text(lines)
        places = [Place(root=folder / "old", variables={"HOST": name}) for name in ("a", "b")]
        super().__init__(Tree({}, folder, counts={}, places=places), webs=[])
        self.hosts = {"host-a": Switch(), "host-b": Switch()}
        self._folder = folder

    def host_of(self, name: str) -> str:
        return f"host-{self.tree.members[name].place.variables['HOST']}"

    def renew(self, name: str) -> None:
        member = self.tree.members[name]
        member.place = replace(member.place, root=self._folder / "new")

    def running(self) -> set[str]:
        return {name for name, member in self.tree.members.items() if member.process is not None}


ALL = {"clock-1", "clock-2", "hand-1", "hand-2"}


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Sleepers]:
    system = Sleepers(tmp_path)
    with system.tree:
        yield system


def _play(system: Sleepers, *blows: Blow) -> Killer:
    killer = Killer(system)
    killer.play(Bout(0.0, 0.2, 0.2, blows), start=time.time())
    return killer


def test_a_host_takes_its_processes_along_and_brings_back_those_that_are_to_run(sleepers: Sleepers) -> None:
    before = {name: member.pid for name, member in sleepers.tree.members.items()}
    killer = _play(
        sleepers,
        Blow(0.0, "clock-1", back_after=0.6),
        Blow(0.05, "host-a", back_after=0.2),
        Blow(0.06, "host-a", back_after=9.0),  # down already
        Blow(0.07, "hand-1", back_after=9.0),  # likewise
    )
    assert sleepers.running() == ALL
    told = [event.text for event in killer.events]
    assert told == [
        "killed clock-1",
        "killed host-a with all that ran on it",
        "host-a is back",
        "started clock-1",
    ], "a process that is to be away for longer than its host stays away"
    changed = {name for name, member in sleepers.tree.members.items() if member.pid != before[name]}
    assert changed == {"clock-1", "hand-1"}
    assert killer.kills == 2


def test_a_process_whose_host_is_down_waits_for_it(sleepers: Sleepers) -> None:
    killer = _play(sleepers, Blow(0.0, "clock-2", back_after=0.1), Blow(0.02, "host-b", back_after=0.4))
    assert sleepers.running() == ALL
    told = [event.text for event in killer.events]
    assert told.index("host-b is back") < told.index("started clock-2")


def test_a_renewed_process_is_of_the_next_version(sleepers: Sleepers) -> None:
    killed_before = Blow(0.0, "hand-1", back_after=0.3)
    _play(sleepers, killed_before, Blow(0.1, "hand-1", "renew"), Blow(0.1, "clock-2", "renew"))
    assert sleepers.running() == ALL
    new = {name for name, member in sleepers.tree.members.items() if member.place.root.name == "new"}
    assert new == {"hand-1", "clock-2"}
