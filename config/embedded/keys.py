"""The keys a local installation makes for itself once. Production gives SECRET_KEY and ENCRYPTION_KEYS."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from config.embedded.errors import EmbeddedError
from config.embedded.folder import DataFolder, write_private
from config.embedded.locks import FileLock

NAMES = ("SECRET_KEY", "ENCRYPTION_KEYS")


def load_or_create_secrets(data_dir: Path) -> dict[str, str]:
    """SECRET_KEY and ENCRYPTION_KEYS (comma separated Fernet keys, the first encrypts) of `data_dir`.

    Losing the file makes stored secrets unreadable, so a damaged one is an error, never replaced.
    """
    folder = DataFolder.prepare(data_dir)
    path = folder.root / "secrets.json"
    # Two first starts at once must agree on one set.
    with FileLock(folder.private / "secrets.lock") as lock:
        if not lock.exclude(wait=10):
            raise EmbeddedError(f"another process keeps {path} locked")
        try:
            if not path.exists():
                write_private(path, json.dumps(_generate(), indent=2) + "\n")
            stored = json.loads(path.read_text())
        except OSError as error:
            raise EmbeddedError(f"cannot use {path}: {error.strerror}") from error
        except ValueError as error:
            raise EmbeddedError(f"{path} is damaged: restore it from a backup") from error
    if not isinstance(stored, dict) or not all(isinstance(stored.get(name), str) for name in NAMES):
        raise EmbeddedError(f"{path} is damaged: it must hold {' and '.join(NAMES)}")
    return {name: stored[name] for name in NAMES}


def _generate() -> dict[str, str]:
    from cryptography.fernet import Fernet

    return {"SECRET_KEY": secrets.token_urlsafe(48), "ENCRYPTION_KEYS": Fernet.generate_key().decode()}
