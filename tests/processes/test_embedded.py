"""The private servers: shared, stopped by their last user, and recovered after every kind of crash."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis

from devserver.data_folder import DataFolder, load_or_create_secrets
from devserver.locks import EmbeddedError
from devserver.session import Servers, embedded_servers, server_pids
from tests.processes.waiting import until

ROOT = Path(__file__).resolve().parents[2]
AS_ROOT = os.geteuid() == 0
FAST = {"fsync": "off", "full_page_writes": "off"}

HOLD = """
import json, sys
from pathlib import Path
from devserver.session import embedded_servers
with embedded_servers(Path(sys.argv[1]), postgres_settings=json.loads(sys.argv[2])) as servers:
    print(json.dumps([servers.database_url, servers.redis_url]), flush=True)
    sys.stdin.readline()
"""

Hold = Callable[[Path], "Holder"]


class Holder:
    """Another process that uses a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(data_dir), json.dumps(FAST)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.servers = Servers(*json.loads(self.process.stdout.readline()))

    def leave(self) -> None:
        self.process.communicate("\n", timeout=20)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def hold() -> Iterator[Hold]:
    holders: list[Holder] = []

    def start(data_dir: Path) -> Holder:
        holders.append(Holder(data_dir))
        return holders[-1]

    yield start
    for holder in holders:
        if holder.process.poll() is None:
            holder.leave()


def answer(servers: Servers) -> bool:
    with psycopg.connect(servers.database_url) as connection:
        row = connection.execute("SELECT current_user").fetchone()
    with redis.Redis.from_url(servers.redis_url) as client:
        return row == ("pulsekeeper",) and bool(client.ping())


def pid_of(data_dir: Path, name: str) -> int:
    pids = server_pids(data_dir)
    assert pids is not None
    pid = pids[name]
    assert isinstance(pid, int)
    return pid


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def all_pids(data_dir: Path) -> list[int]:
    supervisor = DataFolder(data_dir).supervisor_pid()
    assert supervisor is not None
    return [supervisor, pid_of(data_dir, "postgres"), pid_of(data_dir, "valkey")]


def test_the_last_of_several_holders_stops_the_servers(data_dir: Path, hold: Hold) -> None:
    first, second = hold(data_dir), hold(data_dir)
    pids = all_pids(data_dir)
    assert first.servers == second.servers
    first.leave()  # which started them
    assert answer(second.servers)
    second.leave()
    assert all(gone(pid) for pid in pids)


def test_data_is_kept_and_the_addresses_are_the_same_again(data_dir: Path, hold: Hold) -> None:
    first = hold(data_dir)
    with psycopg.connect(first.servers.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    first.leave()
    again = hold(data_dir)
    assert again.servers == first.servers
    with psycopg.connect(again.servers.database_url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_killed_holders_leave_no_process(data_dir: Path, hold: Hold) -> None:
    holders = [hold(data_dir), hold(data_dir)]
    pids = all_pids(data_dir)
    holders[0].kill()
    assert answer(holders[1].servers)
    holders[1].kill()
    until(lambda: all(gone(pid) for pid in pids), 30, "the servers end after their last holder was killed")


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_killed_server_is_started_again_at_its_address(data_dir: Path, hold: Hold, name: str) -> None:
    holder = hold(data_dir)
    pid = pid_of(data_dir, name)
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid_of(data_dir, name) != pid, 20, "a new process")
    assert answer(holder.servers)


def test_everything_killed_at_once_starts_again(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    with psycopg.connect(holder.servers.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    pids = all_pids(data_dir)
    for pid in [*pids, holder.process.pid]:  # the supervisor first: it would restart the others
        os.kill(pid, signal.SIGKILL)
    holder.kill()
    again = hold(data_dir)
    assert answer(again.servers)
    with psycopg.connect(again.servers.database_url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_servers_whose_keeper_was_killed_are_found_and_replaced(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    supervisor, *servers = all_pids(data_dir)
    os.kill(supervisor, signal.SIGKILL)
    holder.kill()
    assert not any(gone(pid) for pid in servers)
    again = hold(data_dir)
    assert all(gone(pid) for pid in servers)
    assert answer(again.servers)


def test_the_last_holder_stops_servers_whose_keeper_was_killed(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    supervisor, *servers = all_pids(data_dir)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: gone(supervisor), 30, "the supervisor is gone")
    holder.leave()
    assert all(gone(pid) for pid in servers)


def test_files_naming_a_foreign_process_are_no_obstacle(data_dir: Path, hold: Hold) -> None:
    """After a crash and a reboot the pids in our files belong to other processes, which must not be touched."""
    hold(data_dir).leave()
    with subprocess.Popen(["sleep", "60"], user=(data_dir / "postgres").stat().st_uid) as foreign:
        pid_file = f"{foreign.pid}\n{data_dir}/postgres\n1\n5432\n{data_dir}/postgres\n\n 1 1\nready\n"
        (data_dir / "postgres" / "postmaster.pid").write_text(pid_file)
        (data_dir / "postgres" / ".s.PGSQL.5432.lock").write_text(pid_file)
        folder = DataFolder(data_dir)
        state: dict[str, Any] = folder.read_state()
        state["valkey"]["pid"] = foreign.pid
        folder.write_state(state)
        folder.supervisor.write_text(str(foreign.pid))
        assert answer(hold(data_dir).servers)
        assert foreign.poll() is None
        foreign.kill()


def test_a_taken_valkey_port_is_replaced(data_dir: Path, hold: Hold, tmp_path: Path) -> None:
    first = hold(data_dir)
    first.leave()
    folder = DataFolder(data_dir)
    other = hold(tmp_path / "other")
    port = DataFolder(tmp_path / "other").read_state()["valkey"]
    assert isinstance(port, dict)
    state: dict[str, Any] = folder.read_state()
    state["valkey"]["port"] = port["port"]
    folder.write_state(state)
    again = hold(data_dir)
    assert answer(again.servers)
    assert again.servers.redis_url != other.servers.redis_url


def test_a_long_path_gets_a_private_socket_folder_elsewhere(tmp_path: Path, hold: Hold) -> None:
    holder = hold(tmp_path / ("deep" * 20) / "data")
    assert answer(holder.servers)
    assert "deep" not in holder.servers.database_url
    socket_dir = Path(psycopg.conninfo.conninfo_to_dict(holder.servers.database_url)["host"])  # type: ignore[arg-type]
    assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    holder.leave()
    socket_dir.rmdir()


def test_nothing_but_the_owner_can_read_what_is_private(data_dir: Path, hold: Hold) -> None:
    hold(data_dir)
    load_or_create_secrets(data_dir)
    for path in (data_dir / "servers", data_dir / "postgres", data_dir / "valkey", data_dir / "secrets.json"):
        assert not path.stat().st_mode & 0o077, path


@pytest.mark.skipif(not AS_ROOT, reason="about root's servers, which run as another user")
def test_root_needs_no_open_folders(tmp_path: Path, hold: Hold) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    holder = hold(closed / "data")
    assert answer(holder.servers)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert psutil.Process(pid_of(closed / "data", "postgres")).uids().effective != 0
    assert psutil.Process(pid_of(closed / "data", "valkey")).uids().effective != 0


@pytest.mark.skipif(not AS_ROOT, reason="needs another user to try")
def test_another_user_cannot_connect(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    os.seteuid(65534)  # an unprivileged user
    try:
        with pytest.raises(psycopg.OperationalError, match="Permission denied"):
            psycopg.connect(holder.servers.database_url)
    finally:
        os.seteuid(0)


def test_an_unusable_data_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EmbeddedError, match="cannot use the data folder") as caught,
        embedded_servers(tmp_path / "file" / "data"),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
def test_an_unwritable_data_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(EmbeddedError, match="cannot use the data folder"), embedded_servers(tmp_path / "data"):
        pass


def test_first_starts_at_once_agree_on_the_secrets(data_dir: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        made = list(pool.map(load_or_create_secrets, [data_dir] * 8))
    assert made == [made[0]] * 8
    assert stat.S_IMODE((data_dir / "secrets.json").stat().st_mode) == 0o600


def test_damaged_secrets_are_never_replaced(data_dir: Path) -> None:
    load_or_create_secrets(data_dir)
    (data_dir / "secrets.json").write_text("{")
    with pytest.raises(EmbeddedError, match="is damaged"):
        load_or_create_secrets(data_dir)
    assert (data_dir / "secrets.json").read_text() == "{"
