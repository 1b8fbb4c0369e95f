"""What the files for containers promise, as far as it can be told without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from honcho.environ import parse_procfile

from config.settings import env
from tests.faults.reach import documented

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = {"postgres", "valkey"}
PROCESSES = parse_procfile((ROOT / "Procfile").read_text()).processes


def test_every_process_has_its_service() -> None:
    assert SERVICES.keys() - SERVERS - {"migrate"} == PROCESSES.keys()
    assert all(SERVICES[name]["command"] == [name] for name in PROCESSES)


def test_all_wait_for_the_migration_and_the_servers() -> None:
    for name in PROCESSES:
        conditions = {on: wait["condition"] for on, wait in SERVICES[name]["depends_on"].items()}
        assert conditions == dict.fromkeys(SERVERS, "service_healthy") | {"migrate": "service_completed_successfully"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc"}
    assert name == "postgres" or (service["cap_drop"] == ["ALL"] and service["user"].split(":")[0] != "0")
    assert name == "migrate" or {"test", "interval"} <= service["healthcheck"].keys()
    assert re.fullmatch(r".+:(local|\d[\w.-]*)", service["image"]), "a version, and never the latest"
    published = service.get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert bool(published) == (name == "web")
    assert name not in SERVERS or service["networks"] == ["inside"]


def test_a_service_reaches_what_the_documents_say() -> None:
    reaches = documented()
    assert reaches.keys() == PROCESSES.keys()
    for name, reached in reaches.items():
        inside_alone = set(reached) <= {"database", "broker"}
        assert SERVICES[name]["networks"] == (["inside"] if inside_alone else ["inside", "outside"])
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_secrets_are_files() -> None:
    assert all(secret["file"].startswith("deploy/secrets/") for secret in COMPOSE["secrets"].values())
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    for service in SERVICES.values():
        assert set(service["secrets"]) <= COMPOSE["secrets"].keys()
        for variable, value in service["environment"].items() if "environment" in service else ():
            assert variable not in env.from_files
            if variable.endswith("_FILE"):
                assert Path(value).name in service["secrets"]


def test_the_image_holds_all_apps_and_nothing_private() -> None:
    apps = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    files = {"Procfile", "deploy", "manage.py", "pyproject.toml", "requirements", "static", "templates"}
    assert {*apps, *files} == _in_the_image()
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if not line.startswith("#")) == "*"
    assert {"deploy/secrets", "deploy/settings.env"} <= set(lines)


def test_the_files_of_the_image_make_a_check(tmp_path: Path) -> None:
    for name in _in_the_image():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    environment = {name: value for name, value in os.environ.items() if not name.endswith(("_URL", "_KEYS", "_KEY"))}
    done = subprocess.run(
        [sys.executable, "manage.py", "probe", "http://127.0.0.1:9/"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, ""), "down, and said so"


def _in_the_image() -> set[str]:
    return {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def test_the_image_is_not_run_by_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    last = {line.split()[0]: line for line in lines if line and line[0].isupper()}
    assert last["USER"] == "USER 10001:10001"
    assert all("latest" not in line and ":" in line for line in lines if line.startswith("ARG PYTHON"))
    assert any("--require-hashes --only-binary=:all:" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("worker", "probes@%h"), ("worker-2", "probes-2@%h"), ("interactive-12", "interactive-12@%h")],
)
def test_a_process_by_its_name(tmp_path: Path, asked: str, expected: str) -> None:
    """With a `celery` that prints what it was called with."""
    celery = tmp_path / "celery"
    celery.write_text('#!/bin/sh\necho "$@"\n')
    celery.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        [str(ROOT / "deploy" / "process"), asked], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    words = done.stdout.split()
    assert words[words.index("--hostname") + 1] == expected


def test_what_is_no_process_is_a_command() -> None:
    command = [str(ROOT / "deploy" / "process"), "echo", "--hostname", "a b"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "--hostname a b\n"
