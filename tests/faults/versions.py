"""Code and virtualenvs of whatever version is tried, as a deployment has them: of the lock for production alone."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".virtualenvs"


def programs_for(root: Path, *, before: Sequence[str] = ()) -> Path:
    """The `bin` of a virtualenv with what the code in `root` runs on in production, kept for the next time.

    `before` is what runs a command as who is to use it; it is tried which Python that finds. Needs a package index.
    """
    lock = root / "requirements" / "production.txt"
    python = _interpreter(before)
    made = KEPT / hashlib.sha256(python.encode() + lock.read_bytes()).hexdigest()[:16]
    if not (made / "complete").exists():
        print(f"installing {lock} for {python}", file=sys.stderr, flush=True)  # noqa: T201
        shutil.rmtree(made, ignore_errors=True)
        _run(str(Path(sys.executable).parent / "uv"), "venv", "--quiet", "--python", python, str(made))
        pip = (sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install", "--quiet")
        _run(*pip, "--require-hashes", "-r", str(lock))
        (made / "complete").touch()
    return made / "bin"


def unpack(commit: str, into: Path) -> str:
    """The tree of files of `commit`; its full name."""
    name = _run("git", "rev-parse", "--verify", f"{commit}^{{commit}}").strip()
    archive = into / "archive.tar"
    _run("git", "archive", "--output", str(archive), name)
    shutil.unpack_archive(archive, into, filter="data")
    archive.unlink()
    return name


def previous_release() -> str:
    """The newest tag before this commit; where there is none, the commit before."""
    command = ("git", "describe", "--tags", "--abbrev=0", "HEAD~1")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "HEAD~1"


def _interpreter(before: Sequence[str]) -> str:
    """That of this virtualenv, or the system's, where the former lies in a folder that is closed to others."""
    for python in (str(Path(sys.base_prefix) / "bin" / "python3"), "/usr/bin/python3"):
        # From a closed folder a loader may still take a program, and the libraries of another.
        found = _described(python)
        if found and found == _described(*before, python):
            return python
    raise SystemExit(f"error: no Python 3.11 or newer that `{' '.join(before)}` can run")


def _described(*python: str) -> str:
    """What it is and where its library lies; empty for what does not run, or is too old."""
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
