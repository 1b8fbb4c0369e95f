"""`manage.py up` and `make up`: the whole process tree, its accidents, and its end.

Every test works on a data folder and a port of its own, and ends only what it started.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes.waiting import processes_of, until

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 60
STOP_SECONDS = 10

# Several process trees at once are more than a small machine carries: one worker of xdist runs all of these.
pytestmark = pytest.mark.xdist_group("up")


class Up:
    """A running `up`, its output, and what belongs to it."""

    def __init__(
        self, command: list[str], data_dir: Path, environment: dict[str, str], **variables: str
    ) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.log = data_dir.parent / f"up-{self.port}.log"
        given = {"DATA_DIR": str(data_dir), "PORT": str(self.port)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**environment, **given, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a foreground group of its own, as a shell gives a job
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until_up(self) -> None:
        address = f"Pulsekeeper is up: http://127.0.0.1:{self.port}"

        def is_up() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.output[-4000:]}")
            return address in self.output

        try:
            until(is_up, UP_SECONDS, "the address is printed")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-4000:]}") from None

    def pid_of(self, name: str) -> int:
        """Of the process type `name`, as last started."""
        return int(re.findall(rf"{name} started \(pid=(\d+)\)", self.output)[-1])

    def processes(self) -> list[psutil.Process]:
        return processes_of(self.data_dir)

    def assert_all_gone(self, seconds: float = STOP_SECONDS) -> None:
        until(lambda: not self.processes(), seconds, f"no process is left: {self.processes()}")

    def end(self) -> None:
        """Whatever happened in the test: leave nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for process in self.processes():
            process.kill()


Start = Callable[..., Up]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(clean_environment: dict[str, str], data_dir: Path) -> Iterator[Start]:
    running: list[Up] = []

    def start_up(*command: str, **variables: str) -> Up:
        chosen = list(command) or [sys.executable, "manage.py", "up"]
        running.append(Up(chosen, data_dir, clean_environment, **variables))
        return running[-1]

    yield start_up
    for up in running:
        up.end()


def refusal(environment: dict[str, str], **variables: str) -> str:
    """The one line that `up` says when it does not start."""
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


def test_a_taken_port_is_refused_before_anything_starts(
    clean_environment: dict[str, str], data_dir: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refusal(clean_environment, DATA_DIR=str(data_dir), PORT=str(port))
    assert f"port {port} cannot be used" in line
    assert not (data_dir / "postgres").exists()


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1"])
def test_a_port_that_is_none_is_refused(clean_environment: dict[str, str], data_dir: Path, port: str) -> None:
    assert "PORT must be" in refusal(clean_environment, DATA_DIR=str(data_dir), PORT=port)


def test_a_data_folder_that_cannot_be_written_is_refused(
    clean_environment: dict[str, str], tmp_path: Path
) -> None:
    # Below a file: also root cannot write there.
    (tmp_path / "file").write_text("")
    line = refusal(clean_environment, DATA_DIR=str(tmp_path / "file" / "data"), PORT=str(free_port()))
    assert "cannot use the data folder" in line


def test_a_second_instance_is_refused_with_the_address_of_the_first(
    clean_environment: dict[str, str], data_dir: Path
) -> None:
    # What the first holds while it runs.
    data_dir.mkdir()
    with (data_dir / "up.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        first.write("http://127.0.0.1:4711")
        first.flush()
        line = refusal(clean_environment, DATA_DIR=str(data_dir), PORT=str(free_port()))
    assert "already runs" in line
    assert "http://127.0.0.1:4711" in line


def test_an_address_that_is_none_is_refused(clean_environment: dict[str, str], data_dir: Path) -> None:
    variables = {"DATA_DIR": str(data_dir), "PORT": str(free_port()), "ADMIN_EMAIL": "nobody"}
    assert "ADMIN_EMAIL" in refusal(clean_environment, **variables)


def test_sigterm_ends_all_and_a_second_start_carries_on(start: Start) -> None:
    first = start()
    first.wait_until_up()
    password = re.search(r"First account: admin@example.com, password (\S+)", first.output)
    assert password
    assert sign_in(first.port, "admin@example.com", password[1]) == 201
    first.process.terminate()
    assert first.process.wait(STOP_SECONDS) == 0
    first.assert_all_gone(0)
    second = start()
    second.wait_until_up()
    assert "First account" not in second.output
    assert sign_in(second.port, "admin@example.com", password[1]) == 201


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_make_and_all_below_it(start: Start, number: signal.Signals) -> None:
    # -o: the virtualenv is this one, whoever made it.
    up = start("make", "-o", ".venv/.local", "up", ADMIN_EMAIL="root@example.org", ADMIN_PASSWORD="a long password of mine")
    up.wait_until_up()
    assert "a long password of mine" not in up.output
    assert sign_in(up.port, "root@example.org", "a long password of mine") == 201
    if number == signal.SIGINT:
        os.killpg(up.process.pid, number)  # as a terminal does: to the whole foreground group
    else:
        up.process.terminate()  # to make alone
    up.process.wait(STOP_SECONDS)
    up.assert_all_gone(0)


def test_killing_up_itself_leaves_no_process(start: Start) -> None:
    up = start()
    up.wait_until_up()
    up.process.kill()
    up.assert_all_gone()
    again = start()
    again.wait_until_up()


def test_killed_children_and_servers_are_started_again(start: Start) -> None:
    up = start()
    up.wait_until_up()
    before = {name: up.pid_of(name) for name in ("web", "worker", "interactive", "beat")}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for name, pid in before.items():
        until(lambda name=name, pid=pid: up.pid_of(name) != pid, 15, f"{name} runs again")  # type: ignore[misc]
    until(lambda: answers(up.port), 20, "the web server answers again")

    state = json.loads((up.data_dir / "embedded" / "state.json").read_text())
    os.kill(state["postgres"]["pid"], signal.SIGKILL)
    until(lambda: "was started again" in up.output, 20, "the new PostgreSQL is mentioned")
    assert up.process.poll() is None
    until(lambda: answers(up.port), 20, "the web server answers again")
    up.process.terminate()
    assert up.process.wait(STOP_SECONDS) == 0
    up.assert_all_gone(0)


def test_a_killed_watcher_ends_all_with_a_message(start: Start) -> None:
    up = start()
    up.wait_until_up()
    psutil.Process(up.pid_of("beat")).parent().kill()  # type: ignore[union-attr]
    assert up.process.wait(STOP_SECONDS + 5) == 1
    assert "the watcher of beat was killed" in up.output
    up.assert_all_gone()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def sign_in(port: int, email: str, password: str) -> int:
    body = json.dumps({"email": email, "password": password}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/sessions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        status: int = answer.status
        return status
