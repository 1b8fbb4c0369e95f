"""blackbox_exporter, if it is installed (Debian: prometheus-blackbox-exporter)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes.up import free_port

NAMES = ("blackbox_exporter", "prometheus-blackbox-exporter")
START_SECONDS = 10.0

# One GET over IPv4 with our certificate authority, like our own check.
CONFIG = """\
modules:
  dns:
    prober: dns
    timeout: 10s
    dns: {query_name: example.com, query_type: A, preferred_ip_protocol: ip4}
  icmp:  # one packet
    prober: icmp
    timeout: 10s
    icmp: {preferred_ip_protocol: ip4}
  tcp:
    prober: tcp
    timeout: 10s
    tcp: {preferred_ip_protocol: ip4}
  http:
    prober: http
    timeout: 10s
    http:
      method: GET
      preferred_ip_protocol: ip4
      tls_config: {ca_file: "%s"}
"""
CONFIG_WITHOUT_TLS = CONFIG.rpartition("      tls_config")[0]


@dataclass(frozen=True)
class Exporter:
    url: str
    pid: int


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def exporter(folder: Path, ca_file: str | None) -> Iterator[Exporter | None]:
    """Start the program on a free port. Yields None if it is not on PATH."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        yield None
        return
    config = folder / "blackbox.yml"
    config.write_text(CONFIG_WITHOUT_TLS if ca_file is None else CONFIG % ca_file)
    port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
            "--history.limit=1",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{program} did not start.")
            time.sleep(0.02)
        yield Exporter(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.kill()
        process.wait()
