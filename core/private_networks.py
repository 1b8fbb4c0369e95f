"""Permission of checks to reach private networks, answered once on an installation that `manage.py up` runs.

The answer is a file in the data folder, which all commands on that folder read. `up` names it to its processes, unless
ALLOWED_PRIVATE_NETWORKS is set: then there is nothing to ask. Plain Python, as it decides what the settings are.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from core.files import replaced

SETTING = "ALLOWED_PRIVATE_NETWORKS"
LOOPBACK = "127.0.0.0/8,::1/128"
"""A local installation monitors services on its own machine."""
RANGES = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"
FILE = "private-networks.json"
VARIABLE = "PRIVATE_NETWORKS_FILE"


def read(path: Path) -> bool | None:
    """Return the answer, or None if it is missing. A damaged file counts as missing."""
    try:
        allowed = json.loads(path.read_text())["allowed"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return allowed if isinstance(allowed, bool) else None


def write(path: Path, *, allowed: bool) -> None:
    """Store the answer. Raises OSError."""
    with replaced(path, mode=0o600) as file:
        json.dump({"allowed": allowed}, file)


def networks(*, allowed: bool | None) -> str:
    """Return the value of the setting."""
    return f"{LOOPBACK},{RANGES}" if allowed else LOOPBACK


def answer_file() -> Path | None:
    """Return the file for the answer, or None if this process is none of `up`, or the operator has decided."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None
