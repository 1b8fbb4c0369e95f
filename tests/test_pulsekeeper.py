"""The command `pulsekeeper`, built as a wheel and installed into a separate virtualenv, against a running server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from core.cli import EXIT_BUG
from core.clock import utc_now
from monitors.models import Monitor, Ping
from projects.access import Caller
from pulsekeeper import __main__
from tests.dashboard.test_monitor_pages import worker
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD
from tests.importers.test_mappers import SAMPLES
from tests.targets.certificates import Certificates
from tests.targets.server import Listen, TargetServer, Unasked, answer
from tokens.services import create_token, sign_in

__all__ = ["worker"]  # a fixture

ROOT = Path(__file__).parents[1]
SHOP = "version: 1\nmonitors:\n  - {name: Shop, url: 'https://shop.example.com/', interval_sec: 300}\n"

# Loads every module of a command, and prints the distributions of what was loaded.
LOADED = """
import runpy, sys
from importlib.metadata import packages_distributions
try:
    runpy.run_module("pulsekeeper", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    assert not ended.code, ended.code
known = packages_distributions()
print(*{name for module in sys.modules for name in known.get(module.partition(".")[0], ())}, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtualenv with the wheel. Its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("installed")
    uv = Path(sys.executable).parent / "uv"
    if find_spec("hatchling") is None and not os.environ.get("CI"):
        pytest.skip("hatchling is not installed: `make test` installs requirements/test.txt")
    offline = ["--no-build-isolation", "--offline", "--python", sys.executable]
    built = _run([uv, "build", "--quiet", "--wheel", *offline, "--out-dir", folder, ROOT])
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    assert _run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"]).returncode == 0
    interpreter = folder / "venv" / "bin" / "python"
    installed = _run([uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", interpreter, wheel])
    assert installed.returncode == 0, installed.stderr
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return interpreter


def _run(command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, check=False, **options
    )


class Installed:
    def __init__(self, python: Path, folder: Path, **environment: str) -> None:
        self._python, self._folder = python, folder
        self.environment = {"PATH": "/usr/bin:/bin", "ALLOWED_PRIVATE_NETWORKS": "127.0.0.0/8", **environment}

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = self._python.parent / "pulsekeeper"
        return _run([command, *arguments], cwd=self._folder, env=self.environment, input=stdin)

    def loaded(self, *arguments: str) -> set[str]:
        """Return the distributions whose modules a command imports."""
        ran = _run([self._python, "-c", LOADED, *arguments], cwd=self._folder, env=self.environment)
        assert ran.returncode == 0, ran.stderr
        return {name.lower().replace("_", "-") for name in ran.stderr.splitlines()[-1].split()}


@pytest.fixture
def user(transactional_db: None) -> User:
    return UserFactory()


@pytest.fixture
def pulsekeeper(python: Path, tmp_path: Path, live_server: LiveServer, user: User) -> Installed:
    token = tmp_path / "token"
    token.write_text(sign_in(email=user.email, password=PASSWORD, now=utc_now())[1] + "\n")
    return Installed(python, tmp_path, PULSEKEEPER_URL=live_server.url, PULSEKEEPER_TOKEN_FILE=str(token))


def test_apply_and_export(pulsekeeper: Installed, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SHOP)
    dry = pulsekeeper("apply", "p.yaml", "--dry-run", "--detailed-exitcode")
    assert (dry.returncode, dry.stdout) == (3, "+ monitor 'Shop'\n1 to create, 0 to change, 0 to delete.\n"), dry.stderr
    assert Monitor.objects.count() == 0
    done = pulsekeeper("apply", "p.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "1 created, 0 changed, 0 deleted.",
        "1 first check runs with the next tick of the scheduler.",
    ]
    again = json.loads(pulsekeeper("apply", "p.yaml", "--json").stdout)
    assert (again["applied"], again["changes"]) == (True, [])
    exported = pulsekeeper("export")
    assert pulsekeeper("apply", "-", "--prune", stdin=exported.stdout).stdout == "Nothing to change.\n"
    changed = json.loads(pulsekeeper("apply", "-", "--json", stdin=SHOP.replace("300", "600")).stdout)
    assert changed["changes"][0]["line"] == 3


def test_problems_have_the_lines_of_the_file(pulsekeeper: Installed, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SHOP.replace("300", "often") + "chanels: []\n")
    ran = pulsekeeper("apply", "p.yaml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "p.yaml:3:66: monitors[0].interval_sec: must be an integer.",
        "p.yaml:4:1: chanels: unknown section. Did you mean 'channels'?",
        "2 problems; nothing was changed.",
    ]


def test_secrets_reach_the_server_and_no_output(pulsekeeper: Installed) -> None:
    text = "version: 1\nchannels: [{name: C, kind: webhook, url: 'https://h.example.com/${PK_X}'}]\n"
    assert "PK_X is not in the environment" in pulsekeeper("apply", "-", stdin=text).stderr
    pulsekeeper.environment["PK_X"] = "hunter2"
    ran = pulsekeeper("apply", "-", stdin=text)
    assert (ran.returncode, "hunter2" in ran.stdout + ran.stderr) == (0, False)


def test_import(pulsekeeper: Installed) -> None:
    arguments = ("import", "uptime-kuma", str(SAMPLES / "uptime-kuma-v1.json"))
    dry = pulsekeeper(*arguments, "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (1, "6 would be created, 0 existing, 1 skipped"), dry.stderr
    done = pulsekeeper(*arguments)
    assert done.stdout.splitlines()[-1] == "6 created, 0 existing, 1 skipped"
    assert re.search(r"^  ping: .+/v1/heartbeats/mon_\w+/ping$", done.stdout, re.MULTILINE)
    assert "hunter2" not in done.stdout
    assert pulsekeeper(*arguments).stdout.splitlines()[-1] == "0 created, 6 existing, 1 skipped"
    assert Monitor.objects.count() == 6


@pytest.mark.usefixtures("worker")
def test_an_import_completes_addresses_by_the_server(pulsekeeper: Installed, tmp_path: Path) -> None:
    with TargetServer() as targets:
        plain = targets.serve(Unasked([Listen(), answer(400)]))
        encrypted = targets.serve([answer()], tls=Certificates(tmp_path).self_signed())
        urls = [f"http://127.0.0.1:{plain.port}", f"https://127.0.0.1:{encrypted.port}/x"]
        items = [{"name": "m", "type": "http", "url": url.partition("//")[2]} for url in urls]
        (tmp_path / "kuma.json").write_text(json.dumps(items))
        ran = pulsekeeper("import", "uptime-kuma", "kuma.json")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "2 created, 0 existing, 0 skipped"), ran.stderr
    assert list(Monitor.objects.order_by("pk").values_list("url", flat=True)) == urls


def test_check_with_a_project_token(pulsekeeper: Installed, user: User) -> None:
    project = ProjectFactory(owner=user)
    MonitorFactory(owner=user, name="Job", heartbeat=True, project=project)
    MonitorFactory(owner=user, name="Elsewhere", heartbeat=True)
    token = create_token(Caller(user), project_id=project.public_id, name="CI", ttl_seconds=None, now=utc_now())[1]
    pulsekeeper.environment["PULSEKEEPER_TOKEN"] = token
    ran = pulsekeeper("check")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "1 monitor: 1 waiting"), ran.stderr
    assert "set project: a project token" in pulsekeeper("apply", "-", stdin=SHOP).stderr


def test_probe_and_run(pulsekeeper: Installed, user: User, live_server: LiveServer) -> None:
    with TargetServer() as targets:
        ran = pulsekeeper("probe", targets.serve([answer(503)]).url(), "--json")
    assert (ran.returncode, json.loads(ran.stdout)["http_status"]) == (2, 503)
    heartbeat = MonitorFactory(owner=user, heartbeat=True)
    options = ("--server", live_server.url, "--id", heartbeat.public_id)
    assert pulsekeeper("run", *options, "--", "sh", "-c", "exit 7").returncode == 7
    assert set(Ping.objects.values_list("kind", "exit_status")) == {("start", None), ("fail", 7)}


def test_errors_are_sentences(pulsekeeper: Installed) -> None:
    for arguments, code, words in (
        (("apply", "-", "--url", "http://127.0.0.1:1"), 4, "cannot be reached: nothing answers there"),
        (("export", "--project", "prj_none"), 2, "project prj_none not found"),
        (("export", "--url", "http://u:p@127.0.0.1"), 2, "user name or password"),
        (("import", "gatus", "none.yaml"), 2, "No such file"),
        (("probe", "nonsense"), 3, "the URL must begin with"),
        (("probe",), 3, "URL"),
        (("run", "--ulr=https://x/secret/ping"), 125, "unrecognized arguments: --ulr"),
        (("agent",), 2, "this is the first start"),
        (("discover", "compose", "--source", "x", "none.yaml"), 2, "No such file"),
        (("deploy",), 2, "no command 'deploy'"),
    ):
        ran = pulsekeeper(*arguments, stdin=SHOP)
        assert (ran.returncode, ran.stdout) == (code, ""), arguments
        assert words in ran.stderr
        assert "Traceback" not in ran.stderr
        assert "secret" not in ran.stderr
    pulsekeeper.environment["PULSEKEEPER_TOKEN"] = "svc_" + "a" * 60
    ran = pulsekeeper("apply", "-", stdin=SHOP)
    assert (ran.returncode, "does not know the token" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "few"),
    [
        (("run", "--help"), True),
        (("agent", "--help"), False),
        (("probe", "--help"), False),
        (("check", "--help"), False),
        (("apply", "--help"), False),
        (("discover", "--help"), False),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_its_dependencies_are_enough(python: Path, tmp_path: Path, arguments: tuple[str, ...], few: bool) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w.-]+", line)[0].lower().replace(".", "-") for line in project["dependencies"]}  # type: ignore[index]
    indirect = {"cffi", "typing-extensions", "pygments", "markdown-it-py", "mdurl"}
    loaded = {name.replace(".", "-") for name in Installed(python, tmp_path).loaded(*arguments)}
    assert loaded - {"pulsekeeper", "setuptools"} <= (set() if few else declared | indirect)


def test_a_fault_of_the_command_is_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> NoReturn:
        raise RuntimeError(name)

    monkeypatch.setattr(__main__, "command_named", broken)
    with pytest.raises(SystemExit) as ended:
        __main__.main(["apply"])
    assert ended.value.code == EXIT_BUG == 70
    assert "RuntimeError: apply" in capsys.readouterr().err


def test_output_where_the_terminal_lacks_characters(pulsekeeper: Installed, tmp_path: Path) -> None:
    pulsekeeper.environment["PYTHONIOENCODING"] = "ascii"
    for interval in (300, 600):
        (tmp_path / "p.yaml").write_text(SHOP.replace("300", str(interval)))
        done = pulsekeeper("apply", "p.yaml")
        assert done.returncode == 0, done.stderr
    assert "interval_sec: 300 → 600" in done.stdout


@pytest.mark.parametrize("status", [502, 504])
def test_a_reverse_proxy_that_lost_the_answer(pulsekeeper: Installed, tmp_path: Path, status: int) -> None:
    (tmp_path / "p.yaml").write_text(SHOP)
    with TargetServer() as targets:
        pulsekeeper.environment["PULSEKEEPER_URL"] = targets.serve([answer(status, b"<html>")]).url()
        lost = pulsekeeper("apply", "p.yaml")
    assert lost.returncode == 4
    assert "completely or not at all: apply it again" in lost.stderr
