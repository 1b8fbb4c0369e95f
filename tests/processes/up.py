"""Run `manage.py up` in a test: its output, its processes and its end."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from devserver.data_folder import DataFolder
from tests.processes.waiting import processes_of, until

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 180
STOP_SECONDS = 30  # on a machine that is busy with other tests


class Up:
    """A running `up`, its output, and what belongs to it."""

    def __init__(self, command: list[str], data_dir: Path, environment: dict[str, str], **variables: str) -> None:
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
                start_new_session=True,  # its own process group, as in a shell
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
        """Return the pid of the last start of `name`."""
        return int(re.findall(rf"{name} started \(pid=(\d+)\)", self.output)[-1])

    def assert_lines_are_json(self, names: Collection[str]) -> None:
        """Check all lines of these processes, which are printed as `time name | line`."""
        lines = [found.groups() for found in re.finditer(r"^\S+ (\w+) +\| (.*)$", self.output, re.MULTILINE)]
        ours = [line for name, line in lines if name in names]
        assert {name for name, _ in lines} >= set(names)
        assert not [line for line in ours if not line.startswith("{")]
        assert all(isinstance(json.loads(line), dict) for line in ours)

    def processes(self) -> list[psutil.Process]:
        return processes_of(self.data_dir)

    def assert_all_gone(self, seconds: float = STOP_SECONDS) -> None:
        try:
            until(lambda: not self.processes(), seconds, "no process is left")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *map(describe, self.processes())])) from None

    def end(self) -> None:
        """Stop everything, also after a failed test."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def describe(process: psutil.Process) -> str:
    """Return a line with its status, command and children."""
    try:
        with process.oneshot():
            children = [child.pid for child in process.children()]
            return f"{process.pid} {process.status()}, children {children}: {' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return f"{process.pid} has ended"


def copy_cluster(cluster: Path, data_dir: Path) -> Path:
    """Copy the PostgreSQL of a data folder that is not in use to `data_dir`. Return its folder."""
    # shutil would not keep the owner, which under root is another user.
    subprocess.run(["cp", "-a", cluster, DataFolder.prepare(data_dir).postgres], check=True)
    return data_dir


Start = Callable[..., Up]
Program = Callable[..., "subprocess.CompletedProcess[str]"]


_reserved: list[socket.socket] = []


def free_port(wanted: int = 0) -> int:
    """Return a port for a server that is started later, reserved until this process ends. Raises OSError if taken.

    It stays bound here, so that the kernel gives it to no other socket. A server that sets SO_REUSEADDR, as all do, can
    still listen on it; until then connections are refused.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.append(reserved)
    reserved.bind(("0.0.0.0", wanted))
    port: int = reserved.getsockname()[1]
    return port
