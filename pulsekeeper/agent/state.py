"""The file that makes a process the agent that it was before: its server, and its credential."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from checks.agent_protocol import JOIN, MAX_NAME, MAX_VERSION, Join, Joined
from core.cli import UsageError
from core.files import replaced
from core.version import product_version
from pulsekeeper.agent.server import Server, checked_server

STATE = "PULSEKEEPER_STATE"
DEFAULT_STATE = "~/.local/state/pulsekeeper/agent.json"
_JOIN_SEC = 30.0


class State(msgspec.Struct, frozen=True):
    """What the file has. `joined_with` is the digest of the join token, so that its option may stay where it is."""

    server: str
    agent_id: str
    credential: str
    location_name: str
    joined_with: str

    def __repr__(self) -> str:
        return f"State({self.server} {self.agent_id})"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def state_path(option: str | None) -> Path:
    """Return the path of the file. Raises UsageError without a home folder."""
    path = Path(option or os.environ.get(STATE) or DEFAULT_STATE)
    try:
        return path.expanduser()
    except RuntimeError:
        raise UsageError(f"the home folder is not known: give --state, or {STATE} in the environment") from None


def load(path: Path) -> State | None:
    """Return what is stored, or None without a file. Raises UsageError if it cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        state = msgspec.json.decode(content, type=State)
        checked_server(state.server)
    except (ValueError, RecursionError, UsageError):
        state = None
    if state is None or not _is_header(state.credential):
        raise UsageError(f"{path} is not the state of an agent: remove it, and join with a new token")
    return state


def join(path: Path, server: Server, *, token: str, name: str) -> State:
    """Join the location of the token, and store the credential. Raises CommandFailed, with the file unchanged."""
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        if path.exists():
            path.chmod(0o600)
        # A token is good for one credential, so the file must be writable before it is used.
        with replaced(path, mode=0o600) as file:
            asked = Join(token, name[:MAX_NAME], product_version()[:MAX_VERSION])
            joined = server.post(JOIN, asked, Joined, timeout_sec=_JOIN_SEC)
            if not _is_header(joined.credential):
                raise UsageError(f"{server.url} returned a credential that cannot be used")
            state = State(server.url, joined.agent_id, joined.credential, joined.location_name, digest(token))
            file.write(msgspec.json.format(msgspec.json.encode(state)).decode() + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return state


def _is_header(credential: str) -> bool:
    return bool(credential) and credential.isascii() and credential.isprintable()
