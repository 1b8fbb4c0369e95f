"""The fastest available target: nginx if it is installed, otherwise the asyncio target of benchmarks/probing.

It serves https on a second port. Beside it, a name server of benchmarks/probing. The kernel answers pings.

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

import trustme

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
    ssl_certificate {folder}/server.pem;
    ssl_certificate_key {folder}/server.pem;
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
    https_port: int
    ca_file: str
    dns_port: int


@contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    nginx = shutil.which("nginx")
    addresses: tuple[str, ...] = ("127.0.0.1",)
    place = folder / "target"
    place.mkdir()
    if nginx is None:
        name = "asyncio"
        process, port = _start("http")
        over_tls, https_port = _start("https", str(place))
        others = [over_tls]
    else:
        name, port, https_port = "nginx", free_port(), free_port()
        addresses = tuple(f"127.0.0.{number}" for number in range(2, 18))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(place / "ca.pem"))
        authority.issue_cert(*addresses).private_key_and_cert_chain_pem.write_to_path(str(place / "server.pem"))
        listens = " ".join(
            f"listen {address}:{number}{ssl} backlog=4096;"
            for address in addresses
            for number, ssl in ((port, ""), (https_port, " ssl"))
        )
        (place / "nginx.conf").write_text(_NGINX.format(folder=place, listens=listens))
        process, others = subprocess.Popen([nginx, "-c", str(place / "nginx.conf"), "-p", str(place)]), []
    names, dns_port = _start("dns")
    try:
        _wait_until_listening(process, addresses[-1], port)
        yield Target(name, addresses, port, https_port, str(place / "ca.pem"), dns_port)
    finally:
        for each in (process, names, *others):
            each.terminate()
            each.wait()


def _start(kind: str, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a target of benchmarks/probing and return it with its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.probing.target", kind, *arguments], cwd=ROOT, stdout=subprocess.PIPE
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
