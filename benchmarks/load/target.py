"""The fastest available target: nginx if it is installed, otherwise the asyncio target of benchmarks/probing.

Beside it, a name server of benchmarks/probing. The kernel answers pings.

The target closes connections first, so that those in TIME_WAIT are on its side. nginx listens on several loopback
addresses, because clients have only 28,000 ports for each address.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes.up import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 10

_NGINX = """
worker_processes 1;
worker_rlimit_nofile 20000;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log error;
events {{ worker_connections 10000; multi_accept on; }}
http {{
    access_log off;
    keepalive_timeout 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        {listens}
        location / {{ default_type text/plain; return 200 "ok"; }}
    }}
}}
"""


@dataclass(frozen=True)
class Target:
    name: str
    addresses: tuple[str, ...]
    port: int
    dns_port: int


@contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    nginx = shutil.which("nginx")
    addresses: tuple[str, ...] = ("127.0.0.1",)
    if nginx is None:
        name = "asyncio"
        process, port = _start("http")
    else:
        name, port, place = "nginx", free_port(), folder / "nginx"
        addresses = tuple(f"127.0.0.{number}" for number in range(2, 18))
        place.mkdir()
        listens = " ".join(f"listen {address}:{port} backlog=4096;" for address in addresses)
        (place / "nginx.conf").write_text(_NGINX.format(folder=place, listens=listens))
        process = subprocess.Popen([nginx, "-c", str(place / "nginx.conf"), "-p", str(place)])
    names, dns_port = _start("dns")
    try:
        _wait_until_listening(process, addresses[-1], port)
        yield Target(name, addresses, port, dns_port)
    finally:
        for each in (process, names):
            each.terminate()
            each.wait()


def _start(kind: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a target of benchmarks/probing and return it with its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.probing.target", kind], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _wait_until_listening(process: subprocess.Popen[bytes], address: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection((address, port), timeout=1):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
