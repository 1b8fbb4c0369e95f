"""Virtualenvs with one lock only, such as that of production."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from devserver.locks import FileLock

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".virtualenvs"
INSTALLING_SEC = 600


def programs_for(root: Path, *, before: Sequence[str] = (), lock_name: str = "production.txt") -> Path:
    """Return the `bin` of a virtualenv with a lock of `root`, cached for the next run. Processes install in turn.

    `before` is the command prefix that runs a program as its later user; it decides which Python is found. Needs a
    package index.
    """
    lock = root / "requirements" / lock_name
    python = _interpreter(before)
    made = KEPT / hashlib.sha256(python.encode() + lock.read_bytes()).hexdigest()[:16]
    KEPT.mkdir(exist_ok=True)
    with FileLock(KEPT / "lock") as turn:
        assert turn.exclude(wait=INSTALLING_SEC), f"another process has installed for {INSTALLING_SEC} s"
        if not (made / "complete").exists():
            print(f"installing {lock} for {python}", file=sys.stderr, flush=True)  # noqa: T201
            shutil.rmtree(made, ignore_errors=True)
            _run(str(Path(sys.executable).parent / "uv"), "venv", "--quiet", "--python", python, str(made))
            pip = (sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install", "--quiet")
            _run(*pip, "--require-hashes", "-r", str(lock))
            (made / "complete").touch()
    return made / "bin"


def _interpreter(before: Sequence[str]) -> str:
    """Return the Python of this virtualenv, or the system's if other users cannot enter the former's folder."""
    for python in (str(Path(sys.base_prefix) / "bin" / "python3"), "/usr/bin/python3"):
        # A user without access to the folder may still run the program with the libraries of another Python.
        found = _described(python)
        if found and found == _described(*before, python):
            return python
    raise SystemExit(f"error: no Python 3.11 or newer that `{' '.join(before)}` can run")


def _described(*python: str) -> str:
    """Return version and prefix; empty if it does not run or is too old."""
    asked = "import sys; assert sys.version_info >= (3, 11); print(sys.version, sys.base_prefix)"
    try:
        done = subprocess.run([*python, "-c", asked], cwd="/", capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command[:4])} …: {done.stderr.strip()[-2000:]}")
    return done.stdout
