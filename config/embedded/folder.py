"""What lies where in DATA_DIR, and the small files the processes tell each other things by."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from config.embedded.errors import EmbeddedError
from config.embedded.locks import FileLock

# Not the superuser: what the application could be talked into doing ends at its own databases.
ROLE = "pulsekeeper"
SUPERUSER = "postgres"


@dataclass(frozen=True)
class DataFolder:
    root: Path

    @classmethod
    def prepare(cls, path: Path) -> DataFolder:
        """Make what is missing, private to us; folders that exist keep their permissions."""
        root = path.expanduser().absolute()
        try:
            # Root's servers run as another user, who must pass through; what lies inside is closed itself.
            root.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            folder = cls(root.resolve())
            folder.private.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise EmbeddedError(f"cannot use the data folder {root}: {error.strerror}") from error
        return folder

    @property
    def private(self) -> Path:
        return self.root / "embedded"

    @property
    def gate(self) -> Path:
        """Locked exclusively while somebody joins, leaves, starts or stops the servers."""
        return self.private / "gate.lock"

    @property
    def holders(self) -> Path:
        """Locked shared by everyone who uses the servers."""
        return self.private / "holders.lock"

    @property
    def keeper(self) -> Path:
        """Locked exclusively by the keeper for its whole life; holds its pid."""
        return self.private / "keeper.lock"

    @property
    def keeper_log(self) -> Path:
        return self.private / "keeper.log"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    def log(self, name: str) -> Path:
        return self.private / f"{name}.log"

    def keeper_pid(self) -> int | None:
        """The pid of the living keeper. The lock says if it lives: a pid may be somebody else's."""
        with FileLock(self.keeper) as lock:
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
        write_private(self.private / "state.json", json.dumps(state))


def write_private(path: Path, text: str) -> None:
    """Replace `path` in one step by a file that only its owner reads."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
