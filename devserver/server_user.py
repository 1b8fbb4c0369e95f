"""The system user that runs the servers.

PostgreSQL refuses to run as root. Under root it runs as its own user, which may be unable to enter the folders above
DATA_DIR or the virtualenv, such as a private /root. Instead of opening those folders to others, we give the servers the
smallest sufficient capability.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import IO

from devserver.data_folder import DataFolder
from devserver.locks import EmbeddedError

SERVER_USER = "embedded_postgres"


@dataclass(frozen=True)
class ServerUser:
    name: str
    uid: int
    gid: int
    capability: str | None = None

    def own(self, path: Path) -> None:
        """Make the server user the owner of a file or folder."""
        if os.geteuid() != self.uid:
            os.chown(path, self.uid, self.gid)

    def start(
        self, command: Sequence[str], *, output: IO[bytes] | int, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a server in its own session, so that Ctrl-C in a terminal does not reach it."""
        other = os.geteuid() != self.uid
        if self.capability:
            command = [*self._with_capability(self.capability), *command]
        drop = other and not self.capability
        return subprocess.Popen(  # noqa: S603 - our own binaries and arguments
            command,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=_clean_environment(),
            user=self.uid if drop else None,
            group=self.gid if drop else None,
            extra_groups=[] if drop else None,
        )

    def _with_capability(self, capability: str) -> list[str]:
        only = f"-all,+{capability}"
        # no_setuid_fixup: otherwise access(2), which PostgreSQL calls for its own program, ignores the
        # capabilities of users other than root.
        return [
            "setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups",
            f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}",
            "--securebits=+no_setuid_fixup", "--",
        ]  # fmt: skip

    def can_run(self, programs: Sequence[Path], folders: Sequence[Path]) -> bool:
        """Try whether the user can run the programs. A container may lack the capabilities."""
        steps = [f"cd {quote(str(path))}" for path in folders] + [f"{quote(str(path))} --version" for path in programs]
        try:
            return self.start(["/bin/sh", "-c", " && ".join(steps)], output=subprocess.DEVNULL).wait() == 0
        except OSError:
            return False


def server_user(folder: DataFolder, programs: Sequence[Path], folders: Sequence[Path]) -> ServerUser:
    """Return the user who can run `programs` on `folders`.

    Raises EmbeddedError with the name of an inaccessible folder.
    """
    if os.geteuid() != 0:
        return _account(os.geteuid())
    account = _user_under_root(folder)
    for path in folders:
        account.own(path)
    capabilities = [None, "dac_read_search", "dac_override"] if shutil.which("setpriv") else [None]
    for capability in capabilities:
        candidate = ServerUser(account.name, account.uid, account.gid, capability)
        if candidate.can_run(programs, folders):
            return candidate
    closed = next((p for path in [*folders, *programs] for p in _closed_parents(path, account)), folder.root)
    raise EmbeddedError(
        f"the user {account.name}, which runs the private servers for root, cannot enter {closed}: "
        f"`chmod o+x {closed}`, set DATA_DIR to another folder, or run as a normal user"
    )


def server_uids(folder: DataFolder) -> set[int]:
    """Return the users who may own files of the servers of `folder`."""
    uids = {os.geteuid()}
    if os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            uids.add(pwd.getpwnam(SERVER_USER).pw_uid)
        with contextlib.suppress(FileNotFoundError):
            uids.add(folder.postgres.stat().st_uid)
    return uids


def _user_under_root(folder: DataFolder) -> ServerUser:
    # Data that a normal user created stays theirs, also under root.
    if (folder.postgres / "PG_VERSION").exists() and (owner := folder.postgres.stat().st_uid) != 0:
        return _account(owner)
    with contextlib.suppress(KeyError):
        return _account(pwd.getpwnam(SERVER_USER).pw_uid)
    try:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/false", SERVER_USER]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and the user {SERVER_USER} cannot be added: run as a normal user"
        ) from error
    return _account(pwd.getpwnam(SERVER_USER).pw_uid)


def _account(uid: int) -> ServerUser:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(f"PostgreSQL needs a user with a name, and uid {uid} has none") from None
    return ServerUser(entry.pw_name, uid, entry.pw_gid)


def _closed_parents(path: Path, account: ServerUser) -> list[Path]:
    def closed(parent: Path) -> bool:
        status = parent.stat()
        if status.st_uid == account.uid:
            return not status.st_mode & stat.S_IXUSR
        return not status.st_mode & (stat.S_IXGRP if status.st_gid == account.gid else stat.S_IXOTH)

    return [parent for parent in reversed(path.resolve().parents) if closed(parent)]


def _clean_environment() -> dict[str, str]:
    """Return an environment without PG* variables and locales, which would change the servers."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
