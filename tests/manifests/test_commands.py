"""`manage.py apply` and `manage.py export`: every exit code of docs/use/commands.md, and their output."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock
from urllib.parse import urlencode

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from core.clock import utc_now
from monitors.models import Monitor, MonitorState
from tests.factories import ProjectFactory, UserFactory

ROOT = Path(__file__).parents[2]
GOOD = "version: 1\nmonitors: [{name: M, url: 'https://example.com/', interval_sec: 300}]\n"
SECRET = "version: 1\nchannels: [{name: C, kind: webhook, url: 'https://h.example.com/${PK_X}'}]\n"


def run(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    """Run a command. Return exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with mock.patch.dict(os.environ, environment), mock.patch.object(sys, "stdin", given):
        try:
            call_command(*arguments, stdout=out, stderr=err)
        except SystemExit as exited:
            return int(exited.code or 0), out.getvalue(), err.getvalue()
        except CommandError as error:
            return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), err.getvalue()


@pytest.fixture
def email() -> str:
    return UserFactory().email


@pytest.mark.django_db
def test_apply_and_export(email: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GOOD)
    arguments = ("apply", str(file), "--account", email.upper())
    assert run(*arguments, "--dry-run") == (0, "+ monitor 'M'\n1 to create, 0 to change, 0 to delete.\n", "")
    assert run(*arguments, "--dry-run", "--detailed-exitcode")[0] == 3
    assert Monitor.objects.count() == 0
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert out.endswith("1 created, 0 changed, 0 deleted.\n1 first check runs with the next tick of the scheduler.\n")
    assert run(*arguments, "--detailed-exitcode") == (0, "Nothing to change.\n", "")
    code, text, err = run("export", "--account", email)
    assert (code, err) == (0, "")
    assert run("apply", "-", "--account", email, "--prune", stdin=text)[:2] == (0, "Nothing to change.\n")
    assert run("export", "--account", email, "--output", str(file)) == (0, "", "")
    assert file.read_text() == text
    as_json = run("export", "--account", email, "--json")[1]
    assert json.loads(as_json)["monitors"][0]["name"] == "M"
    assert run("apply", "-", "--account", email, stdin=as_json)[1] == "Nothing to change.\n"


@pytest.mark.django_db
def test_as_json(email: str) -> None:
    code, out, _ = run("apply", "-", "--account", email, "--json", stdin=GOOD)
    report = json.loads(out)
    assert (code, report["applied"], report["created"], report["first_checks"]) == (0, True, 1, 1)
    assert report["changes"] == [
        {"action": "create", "kind": "monitor", "name": "M", "project": None, "line": 2, "fields": []}
        | {"path": "monitors[0]"}
    ]
    code, out, _ = run("apply", "-", "--account", email, "--json", "--dry-run", stdin=GOOD.replace("300", "600"))
    report = json.loads(out)
    assert report["applied"] is False
    assert report["changes"][0]["fields"] == [{"field": "interval_sec", "before": "300", "after": "600"}]
    code, out, err = run("apply", "-", "--account", email, "--json", stdin=GOOD.replace("300", "often"))
    assert (code, err) == (2, "")
    assert json.loads(out) == {
        "applied": False,
        "problems": [{"line": 2, "column": 65, "path": "monitors[0].interval_sec", "message": "must be an integer."}],
    }


@pytest.mark.django_db
def test_what_is_refused(email: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GOOD.replace("interval_sec: 300", "slow_ms: x"))
    code, out, err = run("apply", str(file), "--account", email)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{file}:2:60: monitors[0].slow_ms: must be an integer.",
        "1 problem; nothing was changed.",
    ]
    assert run("apply", "-", "--account", email, stdin="a: [")[0] == 2
    assert run("apply", str(tmp_path / "none.yaml"), "--account", email)[0] == 2
    assert run("apply", str(tmp_path), "--account", email)[0] == 2
    assert run("apply", "-", "--account", "unknown@example.com", stdin=GOOD)[0] == 2
    assert run("export", "--account", "unknown@example.com")[0] == 2
    theirs = ProjectFactory().public_id
    assert run("export", "--account", email, "--project", theirs)[0] == 2
    assert run("export", "--account", email, "--output", str(tmp_path))[0] == 2


@pytest.mark.django_db
def test_secrets_come_from_the_environment_and_are_printed_nowhere(email: str) -> None:
    arguments = ("apply", "-", "--account", email)
    code, _, err = run(*arguments, stdin=SECRET)
    assert code == 2
    assert "PK_X is not in the environment" in err
    for value in ("hunter2", "hunter3"):
        for options in ((), ("--json", "--dry-run")):
            code, out, err = run(*arguments, *options, stdin=SECRET, PK_X=value)
            assert (code, value in out + err) == (0, False)
    code, out, err = run(*arguments, stdin=SECRET, PK_X="with blanks and hunter4")
    assert (code, "hunter4" in out + err) == (2, False)


def process(stdin: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_a_database() -> None:
    ran = process(GOOD, "apply", "-", "--account", "me@example.com", DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "the database does not answer" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_all_is_done_and_checks_come_with_the_next_tick(email: str) -> None:
    """The page is one that a cache may hold."""
    text = GOOD + "status_pages: [{slug: s, name: S}]\n"
    given = connection.settings_dict
    url = f"postgresql:///{given['NAME']}?" + urlencode(
        {"host": given["HOST"], "port": given["PORT"] or "5432", "user": given["USER"], "password": given["PASSWORD"]}
    )
    ran = process(text, "apply", "-", "--account", email, DATABASE_URL=url, REDIS_URL="redis://127.0.0.1:1")
    assert ran.returncode == 0, ran.stderr
    assert "2 created" in ran.stdout
    assert "1 first check runs with the next tick of the scheduler" in ran.stdout
    assert MonitorState.objects.filter(next_due_at__lte=utc_now()).count() == 1
