"""Hosts as network namespaces on one machine, and servers from Debian packages.

Everything is in namespaces of this process (`isolated`), so nothing outlives it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import trustme

from tests.faults.slow_link import SlowLink
from tests.faults.system import kill_with_children

INSIDE = "PULSEKEEPER_REHEARSAL_INSIDE"
START_SECONDS = 30


@dataclass(frozen=True)
class Network:
    """A bridge that connects hosts. This process has the first address."""

    name: str
    number: int

    @property
    def prefix(self) -> str:
        return f"10.77.{self.number}"

    @property
    def address(self) -> str:
        return f"{self.prefix}.1"

    @property
    def bridge(self) -> str:
        return f"net-{self.number}"

    def power_on(self) -> None:
        # With a MAC address of its own: else the bridge takes the lowest of its ports, which changes with hosts.
        _run("ip", "link", "add", self.bridge, "address", hardware(self.number, 1), "type", "bridge")
        _run("ip", "address", "add", f"{self.address}/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")


def hardware(network: int, host: int) -> str:
    """Return the MAC address of a host in a network, by the last numbers of its IP address."""
    return f"02:00:00:00:{network:02x}:{host:02x}"


def isolated(module: str) -> None:
    """Run `module` again in namespaces for network, mounts, host name and processes, and return there.

    Raises SystemExit if this machine does not allow it.
    """
    if os.environ.get(INSIDE):
        _run("mount", "-t", "tmpfs", "none", "/run")
        _run("ip", "link", "set", "lo", "up")
        return
    missing = [name for name in ("ip", "unshare", "setpriv") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        needs = f"{', '.join(missing)} (Debian: iproute2, util-linux)" if missing else "root"
        raise SystemExit(f"error: network namespaces need {needs}")
    unshare = ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, "-m", module, *sys.argv[1:]])


@dataclass
class NamespaceHost:
    """A host with an interface in each of its networks, and no other routes.

    `number` is the last byte of its addresses.
    """

    name: str
    number: int
    networks: Sequence[Network]
    up: bool = False

    @property
    def address(self) -> str:
        """Return its address in the first network."""
        return f"{self.networks[0].prefix}.{self.number}"

    def command(self, user: str) -> tuple[str, ...]:
        """Return the prefix that runs a command on this host as `user`."""
        rename = 'hostname "$0" && exec "$@"'
        return (
            "ip", "netns", "exec", self.name, "unshare", "--uts", "/bin/sh", "-c", rename, self.name, *as_user(user)
        )  # fmt: skip

    def power_on(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "-n", self.name, "link", "set", "lo", "up")
        for network in self.networks:
            # Keep the MAC address, as neighbours have it in their ARP cache.
            link = f"eth{network.number}"
            peer = ("peer", "name", link, "address", hardware(network.number, self.number), "netns", self.name)
            _run("ip", "link", "add", self._cable(network), "type", "veth", *peer)
            _run("ip", "link", "set", self._cable(network), "master", network.bridge, "up")
            _run("ip", "-n", self.name, "link", "set", link, "up")
            _run("ip", "-n", self.name, "address", "add", f"{network.prefix}.{self.number}/24", "dev", link)
        self.up = True

    def cut(self, network: Network, *, silently: bool) -> None:
        """Take the link to a network down, or silently drop all packets, until `mend`."""
        if silently:
            self._fix_neighbours(network)
            _run("ip", "link", "set", self._cable(network), "nomaster")
        else:
            _run("ip", "link", "set", self._cable(network), "down")

    def mend(self, network: Network) -> None:
        _run("ip", "link", "set", self._cable(network), "master", network.bridge, "up")

    @contextlib.contextmanager
    def slow(self, network: Network, *, delay_sec: float) -> Iterator[None]:
        """Delay everything that the host sends to a network."""
        own, other = f"slow-{network.number}-{self.number}", f"late-{network.number}-{self.number}"
        self._fix_neighbours(network)
        _run("ip", "link", "set", self._cable(network), "nomaster")
        _run("ip", "link", "add", own, "type", "veth", "peer", "name", other)
        _run("ip", "link", "set", own, "up")
        _run("ip", "link", "set", other, "master", network.bridge, "up")
        try:
            with SlowLink(self._cable(network), own, delay_sec=delay_sec):
                yield
        finally:
            _run("ip", "link", "delete", own)
            self.mend(network)

    def _fix_neighbours(self, network: Network) -> None:
        """Let no packet wait for an answer of ARP."""
        here, there = hardware(network.number, 1), hardware(network.number, self.number)
        link, known = f"eth{network.number}", ("nud", "permanent")
        _run("ip", "-n", self.name, "neighbour", "replace", network.address, "lladdr", here, "dev", link, *known)
        address = f"{network.prefix}.{self.number}"
        _run("ip", "neighbour", "replace", address, "lladdr", there, "dev", network.bridge, *known)

    def disconnect(self) -> None:
        for network in self.networks:
            _run("ip", "link", "delete", self._cable(network))
        self.up = False

    def power_off(self) -> None:
        _run("ip", "netns", "delete", self.name)

    def _cable(self, network: Network) -> str:
        return f"veth-{network.number}-{self.number}"


def as_user(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={_group(user)}", "--clear-groups", "--")


@dataclass
class Server:
    """A server from a Debian package."""

    name: str
    user: str
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*as_user(self.user), *self.command],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> bool:
        """Kill it with its children: PostgreSQL does not start while an old child runs."""
        assert self.process is not None
        children = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
        killed = kill_with_children(self.process.pid)
        self.process.wait()
        psutil.wait_procs(children, timeout=START_SECONDS)
        return killed

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def postgres(folder: Path, network: Network, *, name: str = "postgres", port: int = 5432) -> tuple[Server, str]:
    """Start PostgreSQL with TLS and a password on a network. Return it and the URL of its database."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), default=None)
    if programs is None:
        raise SystemExit("error: PostgreSQL is not installed: apt-get install postgresql")
    home = _home(folder / name, "postgres")
    data = home / "data"
    authority = trustme.CA()
    known = folder / ("ca.pem" if name == "postgres" else f"{name}-ca.pem")
    authority.cert_pem.write_to_path(str(known))
    known.chmod(0o644)
    issued = authority.issue_cert(network.address)
    key, certificate = home / "key.pem", home / "certificate.pem"
    issued.private_key_pem.write_to_path(str(key))
    for part in issued.cert_chain_pems:
        part.write_to_path(str(certificate), append=True)
    for path in (key, certificate):
        path.chmod(0o600)
        shutil.chown(path, "postgres", _group("postgres"))
    _run(*as_user("postgres"), str(programs / "initdb"), "--pgdata", str(data), "--encoding=UTF8", "--locale=C.UTF-8",
         "--auth-local=peer", "--auth-host=scram-sha-256")  # fmt: skip
    (data / "pg_hba.conf").write_text(
        f"local all postgres peer\nhostssl pulsekeeper pulsekeeper {network.prefix}.0/24 scram-sha-256\n"
    )
    (data / "postgresql.auto.conf").write_text(
        f"listen_addresses = '{network.address}'\nport = {port}\nmax_connections = 300\n"
        f"unix_socket_directories = '{home}'\nssl = on\nssl_cert_file = '{certificate}'\nssl_key_file = '{key}'\n"
    )
    server = Server(name, "postgres", (str(programs / "postgres"), "-D", str(data)), folder / f"{name}.log")
    server.start()
    psql = (*as_user("postgres"), str(programs / "psql"), "--host", str(home), "--port", str(port), "--quiet",
            "--set=ON_ERROR_STOP=1")  # fmt: skip
    _until("PostgreSQL answers", lambda: _works(*psql, "--command=SELECT 1"))
    password = secrets.token_urlsafe(24)
    _run(*psql, f"--command=CREATE ROLE pulsekeeper LOGIN PASSWORD '{password}'")
    _run(*psql, "--command=CREATE DATABASE pulsekeeper OWNER pulsekeeper")
    tls = f"sslmode=verify-full&sslrootcert={known}"
    return server, f"postgresql://pulsekeeper:{password}@{network.address}:{port}/pulsekeeper?{tls}"


def redis(folder: Path, network: Network) -> tuple[Server, str]:
    """Start Redis with a password and without persistence on a network. Return it and its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("error: Redis is not installed: apt-get install redis-server")
    home = _home(folder / "redis", "redis")
    password = secrets.token_urlsafe(24)
    settings = home / "redis.conf"
    settings.write_text(
        f'bind {network.address}\nrequirepass {password}\ndir {home}\nsave ""\nappendonly no\ndaemonize no\n'
    )
    shutil.chown(settings, "redis", _group("redis"))
    server = Server("valkey", "redis", (program, str(settings)), folder / "redis.log")
    server.start()
    return server, f"redis://:{password}@{network.address}:6379/0"


def _home(path: Path, user: str) -> Path:
    path.mkdir(mode=0o700)
    shutil.chown(path, user, _group(user))
    return path


def _group(user: str) -> str:
    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def _until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {START_SECONDS} s: {what}")
        time.sleep(0.1)


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, cwd="/", check=False).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command[:4])} …: {done.stderr.strip() or done.stdout.strip()}")
