"""Allow one `up` per data folder and port, checked before anything starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devserver.data_folder import DataFolder
from devserver.locks import EmbeddedError, FileLock

HOST = "127.0.0.1"
# Probes may reach these: a local installation monitors services on its own machine. Only `up` allows it.
PRIVATE_NETWORKS = "127.0.0.0/8,::1/128"


def address(port: int) -> str:
    return f"http://{HOST}:{port}"


@contextmanager
def sole_instance(data_dir: Path) -> Iterator[None]:
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
        if "ALLOWED_PRIVATE_NETWORKS" not in os.environ:
            os.environ["ALLOWED_PRIVATE_NETWORKS"] = PRIVATE_NETWORKS
        yield


def _port() -> int:
    text = os.environ.get("PORT") or "8000"
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise EmbeddedError(f"PORT must be a number from 1 to 65535, not {text!r}")
    return int(text)


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
