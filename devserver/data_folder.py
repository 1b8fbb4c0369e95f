"""The layout of DATA_DIR, and the files through which the processes share state."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from core.files import replaced
from devserver.locks import EmbeddedError, FileLock

# Not the superuser: the application may only access its own databases.
ROLE = "pulsekeeper"
SUPERUSER = "postgres"
# Generated once for a local installation.
SECRETS = ("SECRET_KEY", "ENCRYPTION_KEYS")


class DataFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.postgres = root / "postgres"
        self.valkey = root / "valkey"
        self.private = root / "servers"
        # Locked exclusively while a process joins, leaves, starts or stops the servers.
        self.gate = self.private / "gate.lock"
        # Locked shared by every process that uses the servers.
        self.holders = self.private / "holders.lock"
        # Locked exclusively by the supervisor while it runs; contains its pid.
        self.supervisor = self.private / "supervisor.lock"
        self.supervisor_log = self.private / "supervisor.log"

    @classmethod
    def prepare(cls, path: Path) -> DataFolder:
        """Create missing folders for this user only. Existing ones keep their permissions."""
        root = path.expanduser().absolute()
        try:
            # Under root the servers run as another user, which must be able to enter the folder. Its content is
            # private.
            root.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            folder = cls(root.resolve())
            folder.private.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise EmbeddedError(f"cannot use the data folder {root}: {error.strerror}") from error
        return folder

    def log(self, name: str) -> Path:
        return self.private / f"{name}.log"

    def supervisor_pid(self) -> int | None:
        """Return the pid of the running supervisor, or None. Its lock shows whether it runs, as pids are reused."""
        with FileLock(self.supervisor) as lock:
            if lock.share():
                return None
            text = lock.read()
        return int(text) if text.isdigit() else None

    def read_state(self) -> dict[str, object]:
        try:
            state = json.loads((self.private / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: dict[str, object]) -> None:
        with replaced(self.private / "state.json", mode=0o600) as file:
            json.dump(state, file)


def load_or_create_secrets(data_dir: Path) -> dict[str, str]:
    """Return SECRET_KEY and ENCRYPTION_KEYS of `data_dir`.

    A damaged file is an error and never replaced, as stored secrets cannot be decrypted without it.
    """
    folder = DataFolder.prepare(data_dir)
    path = folder.root / "secrets.json"
    # Two concurrent first starts must use the same secrets.
    with FileLock(folder.private / "secrets.lock") as lock:
        if not lock.exclude(wait=10):
            raise EmbeddedError(f"another process keeps {path} locked")
        try:
            if not path.exists():
                with replaced(path, mode=0o600) as file:
                    json.dump(_generate(), file, indent=2)
            stored = json.loads(path.read_text())
        except OSError as error:
            raise EmbeddedError(f"cannot use {path}: {error.strerror}") from error
        except ValueError as error:
            raise EmbeddedError(f"{path} is damaged: restore it from a backup") from error
    if not isinstance(stored, dict) or not all(isinstance(stored.get(name), str) for name in SECRETS):
        raise EmbeddedError(f"{path} is damaged: it must contain {' and '.join(SECRETS)}")
    return {name: stored[name] for name in SECRETS}


def _generate() -> dict[str, str]:
    from cryptography.fernet import Fernet

    return {"SECRET_KEY": secrets.token_urlsafe(48), "ENCRYPTION_KEYS": Fernet.generate_key().decode()}
