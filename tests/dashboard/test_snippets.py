"""The examples on a heartbeat's page are run against a web server, which records their signals."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from pytest_django.fixtures import Settings

from config.gateway import Gateway
from dashboard.monitors.snippets import EXAMPLES, snippets_of
from monitors.models import Monitor, Ping
from tests.factories import MonitorFactory
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
JOB = "/path/to/job"
PASSED = [("start", None), ("success", 0)]
FAILED = [("start", None), ("fail", 7)]


@pytest.fixture
def heartbeat(settings: Settings) -> Iterator[Monitor]:
    with serving(Gateway(WSGIHandler())) as port:
        settings.BASE_URL = f"http://127.0.0.1:{port}"
        yield MonitorFactory(heartbeat=True, interval_sec=3600)


@pytest.fixture
def scheduled(heartbeat: Monitor) -> Monitor:
    return MonitorFactory(heartbeat=True, schedule="30 3 * * MON-FRI", timezone="Europe/Berlin")


def text_of(monitor: Monitor, file: str) -> str:
    return next(text for example, text in snippets_of(monitor) if example.file == file)


def job(folder: Path, status: int) -> str:
    path = folder / f"job-{status}"
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def run(*command: str, **environ: str) -> int:
    done = subprocess.run(
        command, env=os.environ | environ, timeout=60, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(done.stdout.decode())  # noqa: T201  (pytest shows it)
    return done.returncode


def sent(monitor: Monitor) -> list[tuple[str, int | None]]:
    """Return the signals since the last call, oldest first."""
    pings = Ping.objects.filter(monitor_id=monitor.pk).order_by("at", "id")
    found = list(pings.values_list("kind", "exit_status"))
    # Rows cannot be deleted through the model, which has no single key.
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM monitors_ping WHERE monitor_id = %s", [monitor.pk])
    return found


def bodies(monitor: Monitor) -> list[str | None]:
    return list(Ping.objects.filter(monitor_id=monitor.pk).order_by("at", "id").values_list("body", flat=True))


def test_curl(heartbeat: Monitor) -> None:
    assert run("/bin/sh", "-c", text_of(heartbeat, "curl")) == 0
    assert sent(heartbeat) == [("success", None)]


@pytest.mark.parametrize(("status", "signals"), [(0, PASSED), (7, FAILED)])
def test_the_wrapper(heartbeat: Monitor, tmp_path: Path, status: int, signals: list[Any]) -> None:
    command = text_of(heartbeat, "wrapper").replace(JOB, job(tmp_path, status))
    path = f"{ROOT / 'docs' / 'samples'}{os.pathsep}{os.environ['PATH']}"
    assert run("/bin/sh", "-c", command, PATH=path) == status
    assert sent(heartbeat) == signals


@pytest.mark.parametrize(("status", "signals"), [(0, PASSED), (7, FAILED)])
def test_a_line_of_a_crontab(heartbeat: Monitor, tmp_path: Path, status: int, signals: list[Any]) -> None:
    line = text_of(heartbeat, "crontab")
    assert "%" not in line, "cron makes it a new line"
    *fields, command = line.split(maxsplit=5)
    assert fields == ["0", "*", "*", "*", "*"]
    run("/bin/sh", "-c", command.replace(JOB, job(tmp_path, status)))
    assert sent(heartbeat) == signals


def test_a_systemd_service(heartbeat: Monitor, tmp_path: Path) -> None:
    unit = text_of(heartbeat, "job.service").replace(JOB, job(tmp_path, 0))
    (tmp_path / "job.service").write_text(unit)
    (tmp_path / "job.timer").write_text(text_of(heartbeat, "job.timer"))
    if (verifier := shutil.which("systemd-analyze")) is not None:
        for file in ("job.service", "job.timer"):
            assert run(verifier, "--man=no", "verify", str(tmp_path / file)) == 0
    commands = dict(line.split("=-", 1) for line in unit.splitlines() if "=-" in line)
    ends = [("exited", "0", PASSED), ("exited", "7", FAILED), ("killed", "TERM", [PASSED[0], ("fail", None)])]
    for code, status, signals in ends:
        for name in ("ExecStartPre", "ExecStopPost"):
            # systemd replaces $$ by $.
            command = shlex.split(commands[name].replace("$$", "$"))
            assert run(*command, EXIT_CODE=code, EXIT_STATUS=status) == 0
        assert sent(heartbeat) == signals


def test_bash(heartbeat: Monitor, tmp_path: Path) -> None:
    for status, signals in ((0, PASSED), (7, FAILED)):
        script = tmp_path / "job.sh"
        script.write_text(text_of(heartbeat, "job.sh").replace(JOB, job(tmp_path, status)))
        assert run("bash", str(script)) == status
        assert sent(heartbeat) == signals


def test_bash_that_is_terminated(heartbeat: Monitor, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(text_of(heartbeat, "job.sh").replace(JOB, "kill -TERM $$; sleep 0"))
    assert run("bash", str(script)) == 143
    assert sent(heartbeat) == [("start", None), ("fail", 143)]


def test_python(heartbeat: Monitor, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    for body, status, kinds in (
        ("pass", 0, ["start", "success"]),
        ("sys.exit()", 0, ["start", "success"]),
        ("raise OSError('disk full')", 1, ["start", "fail"]),
    ):
        script.write_text(f"import sys\n\ndef job():\n    {body}\n\n{text_of(heartbeat, 'job.py')}")
        assert run(sys.executable, str(script)) == status
        if status:
            assert "OSError: disk full" in str(bodies(heartbeat)[-1])
        assert [kind for kind, _ in sent(heartbeat)] == kinds


def test_node(heartbeat: Monitor, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        assert not os.environ.get("CI"), ".ci/run installs Node.js"
        pytest.skip("Node.js is not installed: apt install nodejs")
    script = tmp_path / "job.mjs"
    for body, status, kinds in (("", 0, ["start", "success"]), ("throw Error('disk full')", 1, ["start", "fail"])):
        script.write_text(f"async function job() {{ {body} }}\n{text_of(heartbeat, 'job.mjs')}")
        assert run(node, str(script)) == status
        if status:
            assert "disk full" in str(bodies(heartbeat)[-1])
        assert [kind for kind, _ in sent(heartbeat)] == kinds


def test_a_kubernetes_cron_job(scheduled: Monitor, tmp_path: Path) -> None:
    spec = yaml.safe_load(text_of(scheduled, "cronjob.yaml"))["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("30 3 * * MON-FRI", "Europe/Berlin")
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for status, signals in ((0, PASSED), (7, FAILED)):
        *shell, script = container["command"]
        assert run(*shell, script.replace(JOB, job(tmp_path, status))) == status
        assert sent(scheduled) == signals


@pytest.mark.parametrize("schedule", ["0 3 * * 7", "0 3 * * 5-7", "0 3 */2 * MON"])
def test_schedules_that_others_read_in_another_way_have_no_example_for_them(schedule: str) -> None:
    heartbeat = MonitorFactory(heartbeat=True, schedule=schedule, timezone="UTC")
    files = {example.file for example, _ in snippets_of(heartbeat)}
    assert not files & {"cronjob.yaml", "workflow.yml"}


@pytest.mark.parametrize("schedule", ["0 3 * * */7", "0 3 1 * 0", "0 7 7 * *", "*/5 * * * *"])
def test_schedules_that_all_read_alike(schedule: str) -> None:
    heartbeat = MonitorFactory(heartbeat=True, schedule=schedule, timezone="UTC")
    assert {"cronjob.yaml", "workflow.yml"} < {example.file for example, _ in snippets_of(heartbeat)}


def test_github_actions(scheduled: Monitor) -> None:
    """Each step is run as its condition says; GitHub itself is not there."""
    workflow = yaml.load(text_of(scheduled, "workflow.yml"), yaml.BaseLoader)
    assert workflow["on"]["schedule"] == [{"cron": "30 3 * * MON-FRI", "timezone": "Europe/Berlin"}]
    steps = workflow["jobs"]["job"]["steps"]
    for condition, kind in (("success()", "success"), ("failure() || cancelled()", "fail")):
        shown = [step["run"] for step in steps if step.get("if") in (None, condition) and "curl" in step.get("run", "")]
        for command in shown:
            assert run("bash", "-e", "-c", command, **workflow["env"]) == 0
        assert [kind for kind, _ in sent(scheduled)] == ["start", kind]


def test_all_examples_have_a_template_and_a_schedule_has_no_timer(scheduled: Monitor) -> None:
    files = {example.file for example, text in snippets_of(scheduled) if text}
    assert files == {example.file for example in EXAMPLES} - {"job.timer"}


def test_a_server_that_is_away_stops_no_job(heartbeat: Monitor, settings: Settings, tmp_path: Path) -> None:
    settings.BASE_URL = "http://127.0.0.1:9"
    script = tmp_path / "job"
    script.write_text(text_of(heartbeat, "job.sh").replace(JOB, "true"))
    assert run("bash", str(script)) == 0
    script.write_text(f"def job(): pass\n{text_of(heartbeat, 'job.py')}")
    assert run(sys.executable, str(script)) == 0
