"""The pipelines under docs/samples: valid by the schemas of GitHub and GitLab, and each of their commands runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from pytest_django.live_server_helper import LiveServer
from ruamel.yaml import YAML

from accounts.models import User
from core.clock import utc_now
from projects.models import Project
from tests.factories import MonitorFactory
from tests.targets.server import TargetServer, answer

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "docs" / "samples"


@pytest.mark.parametrize(
    ("schema", "sample"), [("github-workflows", "github-actions.yml"), ("gitlab-ci", "gitlab-ci.yml")]
)
def test_a_sample_is_what_its_server_takes(schema: str, sample: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", SAMPLES / sample],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def commands() -> set[str]:
    """Return the pulsekeeper commands in the two samples."""
    github: Any = YAML(typ="safe").load(SAMPLES / "github-actions.yml")
    gitlab: Any = YAML(typ="safe").load(SAMPLES / "gitlab-ci.yml")
    runs = [step["run"] for step in github["jobs"]["check"]["steps"] if "run" in step]
    runs += gitlab["monitors"]["before_script"] + gitlab["monitors"]["script"]
    assert "python -m pip install --quiet ./pulsekeeper" in runs
    return {run for run in runs if run.startswith("pulsekeeper ")}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("worker")
def test_their_commands_run(
    user: User, project: Project, token: str, live_server: LiveServer, targets: TargetServer, tmp_path: Path
) -> None:
    """On a machine without database and broker, like theirs."""
    site = targets.serve([answer(200, b'{"status": "ok"}')])
    MonitorFactory(owner=user, up=True, created_at=utc_now(), url=site.url(), project=project)
    command = tmp_path / "pulsekeeper"  # tests/test_pulsekeeper.py runs the installed one
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pulsekeeper "$@"\n')
    command.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PULSEKEEPER_TOKEN": token,
        "ALLOWED_PRIVATE_NETWORKS": "127.0.0.0/8",
        "DATA_DIR": str(tmp_path / "data"),
    }
    ran = []
    for line in sorted(commands()):
        here = line.replace("https://shop.example.com", site.url().rstrip("/"))
        here = here.replace("https://pulsekeeper.example.com", live_server.url)
        assert "example.com" not in here
        done = subprocess.run(
            here, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        ran.append(line.split()[1])
    assert ran == ["check", "probe"]
    assert not (tmp_path / "data").exists(), "private servers were started"
    assert JUnitXml.fromfile(str(tmp_path / "report.xml")).tests == 1
