"""Run every check of this repository, for `make test`. The exit code is 1 if any of them fails.

    python -m tests.run [--quick] [ARGUMENTS OF PYTEST]

With `--quick`, for `make check`, leave out the files of `tests.scheduling.LONG`.

The quick checks run beside pytest, which often waits for processes and servers. Their results are printed at the end.
No check stops the others, so that one run shows all failures.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.scheduling import LONG

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# Variables that must not reach the checks, mostly exported by developers for `make up`.
OURS = (
    "ADMIN_",
    "ALLOWED_",
    "DATABASE_URL",
    "DATA_DIR",
    "DEBUG",
    "ENCRYPTION_KEYS",
    "HISTORY_DATABASE_URL",
    "PG",
    "PORT",
    "PYTHONDONTWRITEBYTECODE",  # otherwise every process would compile the code again
    "REDIS_URL",
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith((*OURS, "SECRET_KEY"))} | {
    "NO_MKDOCS_2_WARNING": "1"
}  # an advertisement, not a warning about our code


def checks(*, site: str) -> dict[str, list[str]]:
    """Commands by name. The documentation is built into the folder `site`."""
    steps = {
        "mypy": [str(BIN / "mypy"), "."],
        "ruff check": [str(BIN / "ruff"), "check", "."],
        "ruff format": [str(BIN / "ruff"), "format", "--check", "."],
        "import-linter": [str(BIN / "lint-imports"), "--no-logo"],
        "Django": [str(BIN / "python"), "-m", "tests.django_checks"],
        "commits": [str(BIN / "python"), "-m", "tests.commits"],
        "documentation": [str(BIN / "mkdocs"), "build", "--strict", "--quiet", "--site-dir", site],
    }
    # Our code only: folders whose names begin with a dot contain the virtualenv or a cache.
    templates = [
        str(path.relative_to(ROOT))
        for path in ROOT.glob("[!.]*/**/*.html")
        if "templates" in path.relative_to(ROOT).parts
    ]
    if templates:
        steps["templates"] = [str(BIN / "djade"), "--target-version", "5.2", "--check", *sorted(templates)]
    return steps


def run(command: list[str]) -> tuple[bool, str, float]:
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout.strip(), time.monotonic() - start


def ending_of(returncode: int) -> str:
    """Return how pytest ended, from its exit code; negative if a signal ended it."""
    if returncode < 0:
        return f"ended by {signal.Signals(-returncode).name}"
    known = returncode in list(pytest.ExitCode)
    return pytest.ExitCode(returncode).name.lower().replace("_", " ") if known else f"exit code {returncode}"


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    start, failed, arguments = time.monotonic(), [], sys.argv[1:]
    spare = 2  # the tests of processes and pages wait for theirs most of the time
    if arguments[:1] == ["--quick"]:
        # One more than there are cores: each process takes seconds to collect the tests.
        spare, arguments = 1, [*(f"--ignore={path}" for path in LONG), *arguments[1:]]
    workers = f"--numprocesses={(os.cpu_count() or 1) + spare}"
    command = [str(BIN / "python"), "-m", "pytest", workers, *arguments]
    say(f"running {' '.join(command[1:])}, and the quick checks beside it")
    # One after the other, or the quick ones would take the processors from all tests at once.
    with TemporaryDirectory(prefix="pulsekeeper-site-") as site, ThreadPoolExecutor(max_workers=1) as pool:
        running = {pool.submit(run, command): name for name, command in checks(site=site).items()}
        tested = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, check=False)
        for future in as_completed(running):
            passed, output, seconds = future.result()
            say(f"{'ok  ' if passed else 'FAIL'} {running[future]} ({seconds:.1f} s)")
            if not passed:
                failed.append(running[future])
                say(output)
    if tested.returncode:
        failed.append(f"pytest ({ending_of(tested.returncode)})")
    say(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    say(f"{time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
