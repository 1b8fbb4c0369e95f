"""`manage.py up` and `make up`: the whole process tree, its crashes, and its shutdown.

Every test terminates only what it started, and has its own port.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.processes.up import ROOT, STOP_SECONDS, Start, Up, free_port
from tests.processes.waiting import until

EMAIL = "root@example.org"
CHILDREN = ("web", "worker", "interactive", "dispatcher", "beat")
# A child that prints forever, in a manager whose output this test closes.
CLOSED_OUTPUT = """
import os, sys
from devserver.process_manager import ProcessManager
reason = ProcessManager({"child": "while sleep 0.05; do echo line; done"}, watch=lambda manager: None).run()
sys.stderr.write(f"{reason}\\n")
sys.stderr.flush()
os._exit(0)  # the interpreter would flush the closed output once more
"""
# A child that ignores SIGTERM, like one that starts or waits for a server, in a manager that this test kills.
STUBBORN_CHILD = """
from devserver.process_manager import ProcessManager
ProcessManager({"child": "trap '' TERM; echo ready; while :; do sleep 1; done"}, watch=lambda manager: None).run()
"""
# Several process trees at once overload a small machine: one worker of xdist runs all of these.


def refusal(environment: dict[str, str], **variables: str) -> str:
    """Return the one line that `up` prints when it does not start."""
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


def test_a_taken_port_is_refused_before_anything_starts(clean_environment: dict[str, str], data_dir: Path) -> None:
    with socket.socket() as accepted:
        accepted.bind(("127.0.0.1", 0))
        accepted.listen()
        port = accepted.getsockname()[1]
        line = refusal(clean_environment, DATA_DIR=str(data_dir), PORT=str(port))
    assert f"port {port} cannot be used" in line
    assert not (data_dir / "postgres").exists()


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1"])
def test_a_port_that_is_none_is_refused(clean_environment: dict[str, str], data_dir: Path, port: str) -> None:
    assert "PORT must be" in refusal(clean_environment, DATA_DIR=str(data_dir), PORT=port)


def test_a_data_folder_that_cannot_be_written_is_refused(clean_environment: dict[str, str], tmp_path: Path) -> None:
    # Below a file, where not even root can write.
    (tmp_path / "file").write_text("")
    line = refusal(clean_environment, DATA_DIR=str(tmp_path / "file" / "data"), PORT=str(free_port()))
    assert "cannot use the data folder" in line


def test_a_second_instance_is_refused_with_the_address_of_the_first(
    clean_environment: dict[str, str], data_dir: Path
) -> None:
    # Used by the first instance while it runs.
    data_dir.mkdir()
    with (data_dir / "up.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write("http://127.0.0.1:4711")
        first.flush()
        line = refusal(clean_environment, DATA_DIR=str(data_dir), PORT=str(free_port()))
    assert "already runs" in line
    assert "http://127.0.0.1:4711" in line


@dataclass(frozen=True)
class LivedIn:
    """A data folder after a first `up`, which later starts reuse."""

    data_dir: Path
    refused: str
    password: str
    plan: str
    ended_with: int


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> LivedIn:
    """A first start that was refused, a second one with another address, and SIGTERM."""
    data_dir = tmp_path_factory.mktemp("up") / "data"
    folder = {"DATA_DIR": str(data_dir), "PORT": str(free_port())}
    refused = refusal(clean_environment, **folder, ADMIN_EMAIL="no-domain")
    refused += refusal(clean_environment, **folder, ADMIN_PLAN="gold")
    command = [sys.executable, "manage.py", "up"]
    up = Up(command, data_dir, clean_environment, ADMIN_EMAIL=EMAIL, LOG_FORMAT="json")
    try:
        up.wait_until_up()
        password = re.search(rf"First account: {EMAIL}, password (\S+)", up.output)
        assert password, up.output
        plan = sign_in(up.port, password[1])
        assert '"level": "warning"' not in up.output
        up.process.terminate()
        up.process.terminate()  # as two supervisors may
        ended_with = up.process.wait(STOP_SECONDS)
        assert "Traceback" not in up.output
        up.assert_all_gone(0)
        up.assert_lines_are_json({"web", "worker", "interactive", "dispatcher"})  # beat has none
    finally:
        up.end()
    return LivedIn(data_dir, refused, password[1], plan, ended_with)


@pytest.fixture
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the used data folder for tests that request it, otherwise a new one."""
    if "lived_in" in request.fixturenames:
        lived_in: LivedIn = request.getfixturevalue("lived_in")
        return lived_in.data_dir
    return tmp_path / "data"


def test_a_first_start_and_sigterm(lived_in: LivedIn) -> None:
    assert "ADMIN_EMAIL" in lived_in.refused
    assert "ADMIN_PLAN: plan: plan 'gold' does not exist; choose one of: free, local, pro." in lived_in.refused
    assert (lived_in.plan, lived_in.ended_with) == ("local", 0)


def test_sigterm_while_the_servers_start_leaves_no_process(start: Start) -> None:
    up = start()
    until((up.data_dir / "postgres.init").exists, 20, "initdb runs")
    up.process.terminate()
    assert up.process.wait(STOP_SECONDS) == 128 + signal.SIGTERM
    up.assert_all_gone(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_make_and_all_below_it(start: Start, lived_in: LivedIn, number: signal.Signals) -> None:
    # -o: use this virtualenv.
    given = {"ADMIN_PASSWORD": "a long test password", "ADMIN_PLAN": "pro"}
    up = start("make", "-o", ".venv/.local", "up", **given)
    up.wait_until_up()
    # A later start finds the existing data.
    assert "First account" not in up.output
    assert "a long test password" not in up.output
    assert sign_in(up.port, lived_in.password) == "local", "an account that exists keeps its plan"
    if number == signal.SIGINT:
        os.killpg(up.process.pid, number)  # as a terminal does: to the whole foreground group
    else:
        up.process.terminate()  # to make only
    up.process.wait(STOP_SECONDS)
    up.assert_all_gone(0)


def test_killed_children_and_servers_are_restarted_and_a_killed_up_leaves_nothing(
    start: Start, lived_in: LivedIn
) -> None:
    up = start(LOG_FORMAT="json")
    up.wait_until_up()
    before = {name: up.pid_of(name) for name in CHILDREN}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for name, pid in before.items():
        until(lambda name=name, pid=pid: up.pid_of(name) != pid, 60, f"{name} runs again")  # type: ignore[misc]
    until(lambda: answers(up.port), 60, "the web server answers again")

    state = json.loads((up.data_dir / "servers" / "state.json").read_text())
    os.kill(state["postgres"]["pid"], signal.SIGKILL)
    until(lambda: "was restarted" in up.output, 60, "the new PostgreSQL is mentioned")
    assert up.process.poll() is None
    until(lambda: answers(up.port), 60, "the web server answers again")

    up.process.kill()
    up.assert_all_gone()
    up.assert_lines_are_json({"web"})


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def sign_in(port: int, password: str) -> str:
    """Sign in the first account. Return its plan."""
    body = json.dumps({"email": EMAIL, "password": password}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/sessions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        plan: str = json.load(answer)["user"]["plan"]
        return plan


def test_closed_output_ends_all_children() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        manager = subprocess.Popen(
            [sys.executable, "-c", CLOSED_OUTPUT],
            cwd=ROOT,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(writing)
        first = output.readline()
    _, errors = manager.communicate(timeout=60)
    assert b"started (pid=" in first
    assert (manager.returncode, errors) == (0, "the output is closed: [Errno 32] Broken pipe\n")
    pid = int(first.split(b"pid=")[1].split(b")")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_killed_manager_takes_a_child_with_it_that_ignores_sigterm() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN_CHILD], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as manager:
        assert manager.stdout is not None
        started, _ready = manager.stdout.readline(), manager.stdout.readline()
        child = psutil.Process(int(started.split("pid=")[1].split(")")[0]))
        manager.kill()
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, STOP_SECONDS, "it has ended")
