"""`manage.py probe` as a pipeline runs it: its own process, an exit code, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitors.management.commands.probe import Command
from tests.targets.server import Hang, Pause, Seen, TargetServer, answer

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "status",
    "latency_ms",
    "connect_ms",
    "ttfb_ms",
    "detail",
    "http_status",
    "reason_code",
    "cert_expires_at",
    "evidence",
}
NOWHERE = "http://127.0.0.1:1/"


def probe(*arguments: str, networks: str = "127.0.0.0/8") -> subprocess.CompletedProcess[str]:
    """Without a database or a broker, which the test session's environment would offer."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL", "DATA_DIR"}
    }
    return subprocess.run(
        [sys.executable, "manage.py", "probe", *arguments],
        cwd=ROOT,
        env=environment | {"ALLOWED_PRIVATE_NETWORKS": networks},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_up(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b'{"status": "ok"}')])
    ran = probe(site.url(), "--json-field", "status=ok", "--text-absent", "error", "--header", "X-Key: a: b", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert set(found) == FIELDS
    assert (found["status"], found["http_status"], found["detail"]) == ("up", 200, None)
    assert site.seen[0].method == "GET"
    assert site.seen[0].header("x-key") == "a: b"


def test_slow(targets: TargetServer) -> None:
    site = targets.serve([Pause(0.05), answer()])
    arguments = (site.url(), "--slow-ms", "50")
    passing, failing = probe(*arguments), probe(*arguments, "--fail-on-slow")
    assert (passing.returncode, failing.returncode) == (0, 1)
    assert passing.stdout.startswith(f"SLOW {site.url()} (status 200, latency ")
    assert "counts as slow" in failing.stdout


def test_failing_and_hanging(targets: TargetServer) -> None:
    def routes(seen: Seen) -> list[bytes | Hang]:
        return [Hang()] if seen.path == "/hang" else [answer(503)]

    site = targets.serve(routes)
    failing = probe(site.url())
    assert failing.returncode == 2
    assert "DOWN" in failing.stdout
    assert "503" in failing.stdout
    assert "\n  answer: HTTP/1.1 503 Whatever\n" in failing.stdout
    hanging = probe(site.url("/hang"), "--timeout-ms", "1000", "--json")
    assert hanging.returncode == 2
    found = json.loads(hanging.stdout)
    assert (found["reason_code"], found["evidence"]["address"]) == ("timeout", f"127.0.0.1:{site.port}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "URL"),
        (("nonsense",), "only http and https"),
        (("ftp://127.0.0.1/",), "only http and https"),
        (("http://user:secret@127.0.0.1/",), "user name or password"),
        (("http://10.0.0.1/",), "10.0.0.1 is a private or reserved address"),
        (("http://0xa.1/",), "10.0.0.1 is a private or reserved address"),
        (("http://[fd00::1]/",), "fd00::1 is a private or reserved address"),
        ((NOWHERE, "--method", "BREW"), "--method"),
        ((NOWHERE, "--header", "no colon"), "--header takes 'Name: value'"),
        ((NOWHERE, "--header", "X Y: secret"), "header cannot be sent"),
        ((NOWHERE, "--header", "Content-Length: 5"), "Content-Length"),
        ((NOWHERE, *("--header", "X: y") * 5), "at most 4 headers"),
        ((NOWHERE, *("--text-contains", "x") * 5), "at most 4 rules"),
        ((NOWHERE, "--json-field", "=ok"), "--json-field takes PATH"),
        ((NOWHERE, "--text-contains", ""), "--text-contains"),
        ((NOWHERE, "--timeout-ms", "999"), "--timeout-ms"),
        ((NOWHERE, "--timeout-ms", "soon"), "--timeout-ms"),
        ((NOWHERE, "--slow-ms", "-1"), "--slow-ms"),
        ((NOWHERE, "--expect-status", "99"), "--expect-status"),
        ((NOWHERE, "--unknown"), "--unknown"),
    ],
    ids=str,
)
def test_bad_usage(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "probe", *arguments])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (3, "")
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert "secret" not in printed.err


def test_bad_usage_ends_the_process_with_3() -> None:
    ran = probe(NOWHERE, "--unknown")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "--unknown" in ran.stderr


def test_a_private_address_has_to_be_allowed() -> None:
    ran = probe(NOWHERE, networks="")
    assert ran.returncode == 3
    assert "127.0.0.1 is a private or reserved address" in ran.stderr


def test_help_has_an_example() -> None:
    ran = probe("--help")
    assert ran.returncode == 0
    assert "manage.py probe https://" in ran.stdout
    assert "exit codes" in ran.stdout
