"""Imports respect the layers of the apps, and the check finds violations."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
APPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("checks/results/selectors.py", "from monitors.models import Monitor", id="a higher layer"),
        pytest.param("monitors/services.py", "from monitors import views", id="upwards within an app"),
        pytest.param("connectors/services.py", "from connectors import importing", id="upwards within connectors"),
        pytest.param("incidents/selectors.py", "from incidents import services", id="upwards within another"),
        pytest.param("alerts/messages.py", "from alerts.transports import base", id="upwards within alerts"),
        pytest.param("pulsekeeper/client.py", "from monitors import services", id="upwards from the command"),
        pytest.param("checks/verdict.py", "from django.conf import settings", id="a framework in a pure module"),
    ],
)
def test_a_forbidden_import_fails(tmp_path: Path, module: str, line: str) -> None:
    for app in APPS:
        shutil.copytree(ROOT / app, tmp_path / app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint(tmp_path).returncode == 0
    source = tmp_path / module
    source.write_text(source.read_text() + f"\n{line}\n")
    broken = lint(tmp_path)
    assert broken.returncode != 0
    assert module.removesuffix(".py").replace("/", ".") in broken.stdout
