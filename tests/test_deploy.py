"""The files for containers, as far as they can be tested without a container engine."""

from __future__ import annotations

import json
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
from core.cli import EXIT_USAGE
from core.version import product_version
from devserver.postgres import POSTGRES
from pulsekeeper.agent.server import EXIT_OUTDATED, EXIT_REVOKED
from tests.faults.reach import documented
from tests.test_settings import read_settings

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = {"postgres", "valkey"}
OF_POSTGRES_ENTRY_POINT = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
PINNED = r"[\w./-]+:\d[\w.-]*@sha256:[0-9a-f]{64}"
"""A version for people, and a digest, because a tag may be pushed again with other content."""
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
    assert not service.keys() & {"privileged", "network_mode", "pid", "ipc"}
    assert service["cap_drop"] == ["ALL"]
    # PostgreSQL's entry point prepares the volume as root, then continues as the user `postgres`.
    assert set(service.get("cap_add", ())) == (OF_POSTGRES_ENTRY_POINT if name == "postgres" else set())
    assert name == "postgres" or service["user"].split(":")[0] != "0"
    assert name == "migrate" or {"test", "interval"} <= service["healthcheck"].keys()
    assert re.fullmatch(PINNED if name in SERVERS else r"\$\{IMAGE:-pulsekeeper:local\}", service["image"])
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


def test_a_prometheus_on_the_same_machine_may_read_metrics() -> None:
    """Connections to the published port arrive from the gateway. No other address may read metrics by default."""
    (subnet,) = COMPOSE["networks"]["outside"]["ipam"]["config"]
    defaults = _compose_defaults()
    assert defaults["METRICS_ALLOWED"] == defaults["TRUSTED_PROXIES"] == f"{subnet['gateway']}/32"


def test_settings_of_the_operator_override_those_of_compose() -> None:
    """Files in order, then `environment`, which may name files of secrets only."""
    settings = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "operate" / "settings.md").read_text(), re.MULTILINE)
    assert {"EMAIL_FROM", "TRUSTED_PROXIES", "ALLOWED_HOSTS", "LOG_FORMAT", "METRICS_ALLOWED"} <= {*settings}
    assert _compose_defaults().keys() <= {*settings}
    for service in SERVICES.values():
        if "env_file" in service:
            own, operators = service["env_file"]
            assert (own, operators["path"]) == ({"path": "deploy/compose.env"}, "deploy/settings.env")
            assert not {*service["environment"]} & {*settings}
            assert all(name.endswith("_FILE") for name in service["environment"])


def test_the_defaults_of_compose_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _compose_defaults().items():
        monkeypatch.setenv(name, value)
    found = read_settings()
    assert found["BASE_URL"] == "https://pulsekeeper.example.com"
    assert found["ALLOWED_HOSTS"] == ("pulsekeeper.example.com",)


def _compose_defaults() -> dict[str, str]:
    lines = (ROOT / "deploy" / "compose.env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return {name: re.sub(r"\$\{HOST:\?[^}]+\}", "pulsekeeper.example.com", value) for name, value in found.items()}


def test_an_agent_can_do_no_more_than_it_must() -> None:
    (service,) = yaml.safe_load((ROOT / "deploy" / "agent" / "compose.yaml").read_text())["services"].values()
    (state,) = service["volumes"]
    agent = (ROOT / "Dockerfile").read_text().partition("FROM ${PYTHON} AS agent\n")[2].partition("\nFROM ")[0]
    assert f"PULSEKEEPER_STATE={state.partition(':')[2]}/agent.json" in agent
    assert f'USER {service["user"]}\nENTRYPOINT ["python", "-m", "pulsekeeper", "agent"]\n' in agent
    assert "COPY ." not in agent
    worker = SERVICES["worker"]
    same = ("cap_drop", "init", "read_only", "restart", "security_opt", "sysctls", "user")
    assert {name: service[name] for name in same} == {name: worker[name] for name in same}
    assert service["deploy"]["resources"]["limits"].keys() == worker["deploy"]["resources"]["limits"].keys()
    assert not service.keys() & {"ports", "privileged", "network_mode", "pid", "ipc"}
    unit = (ROOT / "deploy" / "agent" / "pulsekeeper-agent.service").read_text()
    sandbox = (ROOT / "deploy" / "systemd" / "pulsekeeper@.service").read_text().partition("\nNoNewPrivileges")[2]
    assert unit.partition("\nNoNewPrivileges")[2].partition("\n[Install]")[0] == sandbox.partition("\n[Install]")[0]
    assert f"RestartPreventExitStatus={EXIT_USAGE} {EXIT_REVOKED} {EXIT_OUTDATED}\n" in unit


def test_the_lock_of_the_agent_is_enough(tmp_path: Path) -> None:
    """With the files of its image, no other package is imported than those of requirements/agent.txt."""
    for name in ("checks", "core", "pulsekeeper"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code = """
import sys
from importlib.metadata import packages_distributions
import pulsekeeper.agent.command
known = packages_distributions()
print(*{name for module in sys.modules for name in known.get(module.partition(".")[0], ())})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "agent.txt").read_text(), re.MULTILINE)
    loaded = {name.lower().replace("_", "-") for name in done.stdout.split()}
    assert loaded - {"setuptools", "typing-extensions"} <= {*locked}


def test_the_locks_agree() -> None:
    locks = {
        name: set(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE))
        for name in ("agent", "test")
    }
    assert locks["agent"] <= locks["test"]


def test_who_checks_may_ping() -> None:
    gid = SERVICES["worker"]["user"].partition(":")[2]
    pinging = {name for name, service in SERVICES.items() if "sysctls" in service}
    assert pinging == {name for name, reached in documented().items() if "targets" in reached}
    assert all(SERVICES[name]["sysctls"] == {"net.ipv4.ping_group_range": f"{gid} {gid}"} for name in pinging)


def test_postgresql_is_that_of_make_up() -> None:
    """The major version must match: a data folder does not start with another one."""
    version = subprocess.run([POSTGRES, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    assert SERVICES["postgres"]["image"].startswith(f"postgres:{version.partition('.')[0]}.")


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


def test_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert product_version() == version
    assert f'org.opencontainers.image.version="{version}"' in (ROOT / "Dockerfile").read_text()
    assert re.findall(r"^## \[?(\d[\d.]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[:1] == [version]
    assert json.loads((ROOT / "docs" / "openapi.json").read_text())["info"]["version"] == version


def test_health_checks_do_not_depend_on_the_image_format() -> None:
    """OCI images have none; a HEALTHCHECK in the Dockerfile is lost without an error."""
    assert "HEALTHCHECK" not in (ROOT / "Dockerfile").read_text()
    assert {name for name in SERVICES if "test" in SERVICES[name]["healthcheck"]} == SERVICES.keys() - {"migrate"}


def test_the_image_is_not_run_by_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"] * 2
    (base,) = [line.removeprefix("ARG PYTHON=") for line in lines if line.startswith("ARG PYTHON=")]
    assert re.fullmatch(PINNED, base)
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {"${PYTHON}"}
    assert any("--require-hashes --only-binary=:all:" in line for line in lines)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("worker", "probes@%h"), ("worker-2", "probes-2@%h"), ("interactive-12", "interactive-12@%h")],
)
def test_a_process_by_its_name(tmp_path: Path, asked: str, expected: str) -> None:
    """With a `celery` that prints its arguments."""
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


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "systemd-analyze is not installed: apt-get install systemd"
        )
    for unit in [*(ROOT / "deploy" / "systemd").iterdir(), ROOT / "deploy" / "agent" / "pulsekeeper-agent.service"]:
        # It searches for the programs.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/pulsekeeper/current", str(ROOT)))
    names = [unit.name.replace("@.", "@web-1.") for unit in tmp_path.iterdir()]
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *names]
    done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_web_process_has_the_next_port(tmp_path: Path) -> None:
    granian = tmp_path / "granian"
    granian.write_text('#!/bin/sh\necho "$@"\n')
    granian.chmod(0o755)
    ports = {}
    for name in ("web", "web-1", "web-2"):
        done = subprocess.run(
            [str(ROOT / "deploy" / "process"), name],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PORT": "9000"},
            capture_output=True,
            text=True,
            check=True,
        )
        words = done.stdout.split()
        ports[name] = words[words.index("--port") + 1]
    assert ports == {"web": "9000", "web-1": "9000", "web-2": "9001"}
