"""What a job sees of the wrapper, and what its heartbeat learns of the job."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes.waiting import until
from tests.targets.server import Routes, answer
from tests.wrapper.conftest import ROOT, WAIT_SEC, Reported, Reports, Wrapper, require

ALL_BYTES = bytes(range(256))

PASSED_ON = ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"]

Serve = Callable[[Routes], Reports]


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def outcome(running: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Return the exit status, and what came on stdout and stderr."""
    out, err = running.communicate(timeout=WAIT_SEC)
    return running.returncode, out, err


def line_of(running: subprocess.Popen[bytes]) -> bytes:
    """Return the next line of the command's output, while it runs."""
    assert running.stdout is not None
    line: bytes = running.stdout.readline()
    return line


def is_pending(number: signal.Signals, pid: int) -> bool:
    """Return whether the process has yet to receive the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return any(
        int(mask, 16) & 1 << (number - 1)
        for name, _, mask in (line.partition(":") for line in status.splitlines())
        if name in ("SigPnd", "ShdPnd")
    )


def ended(reports: Reports) -> Reported:
    """Return the end of the run, which follows its start and has its rid."""
    start, end = reports.all
    assert start == Reported("start", end.rid, b"")
    return end


@pytest.mark.parametrize("status", [0, 1, 255])
def test_the_exit_status_is_the_commands(wrapper: Wrapper, reports: Reports, status: int) -> None:
    assert outcome(wrapper.start(reports.ping_url, shell(f"exit {status}"))) == (status, b"", b"")
    assert ended(reports).signal == str(status)


def test_arguments_and_stdin_are_the_commands(wrapper: Wrapper, reports: Reports) -> None:
    words = ["sh", "-c", 'printf "<%s>" "$@"; cat', "sh", "--url", "a  b", "", "--"]
    running = wrapper.start(reports.ping_url, words, stdin=subprocess.PIPE)
    out, _ = running.communicate(b"line\n\0", timeout=WAIT_SEC)
    assert out == b"<--url><a  b><><-->line\n\0"


def test_stdin_may_be_a_terminal(wrapper: Wrapper, reports: Reports) -> None:
    ours, theirs = pty.openpty()
    running = wrapper.start(reports.ping_url, shell('[ -t 0 ] && read -r line && echo "$line"'), stdin=theirs)
    os.write(ours, b"typed\n")
    assert outcome(running) == (0, b"typed\n", b"")
    os.close(ours)
    os.close(theirs)


def test_output_is_unchanged_and_its_end_reported(wrapper: Wrapper, reports: Reports, tmp_path: Path) -> None:
    """Binary, more than pipes hold, and without a newline at its end."""
    data = ALL_BYTES * 8192 + b"end"
    (tmp_path / "data").write_bytes(data)
    script = f"cat {tmp_path}/data; cat {tmp_path}/data >&2"
    assert outcome(wrapper.start(reports.ping_url, shell(script))) == (0, data, data)
    body = ended(reports).body
    assert len(body) == 10_000
    assert data.endswith(body[-64:])


def test_both_outputs_are_reported(wrapper: Wrapper, reports: Reports) -> None:
    running = wrapper.start(reports.ping_url, shell("echo out; read -r _; echo err >&2; exit 2"), stdin=subprocess.PIPE)
    assert line_of(running) == b"out\n"  # unbuffered: the command still runs
    assert outcome(running) == (2, b"", b"err\n")
    end = ended(reports)
    # The script's two copies are processes of their own, so it does not keep the order of both outputs.
    body = b"".join(sorted(end.body.splitlines(keepends=True), reverse=True)) if wrapper.is_script else end.body
    assert (end.signal, body) == ("2", b"out\nerr\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_killed_command_has_the_status_that_shells_give(
    wrapper: Wrapper, reports: Reports, number: signal.Signals
) -> None:
    status, _, _ = outcome(wrapper.start(reports.ping_url, shell(f"kill -{number:d} $$")))
    assert status == 128 + number
    assert ended(reports).signal == str(status)


@pytest.mark.parametrize("name", PASSED_ON)
def test_signals_are_passed_on(wrapper: Wrapper, reports: Reports, name: str) -> None:
    traps = "".join(f"trap 'echo {each}; exit 7' {each}; " for each in PASSED_ON)
    running = wrapper.start(reports.ping_url, shell(f"{traps} echo ready; while :; do sleep 0.05; done"))
    assert line_of(running) == b"ready\n"
    running.send_signal(signal.Signals[f"SIG{name}"])
    received = "TERM" if wrapper.is_script and name in ("INT", "QUIT") else name
    assert outcome(running)[:2] == (7, f"{received}\n".encode())
    assert ended(reports).signal == "7"


@pytest.mark.parametrize("name", ["HUP", "TERM", "USR1"])
def test_a_signal_to_the_group_spares_the_output(wrapper: Wrapper, reports: Reports, name: str, tmp_path: Path) -> None:
    """systemd, timeout and a session that closes signal the wrapper's other processes as well."""
    number = signal.Signals[f"SIG{name}"]
    # Both the group and the wrapper signal the command, which may receive the latter's after `go`.
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    script = f"trap 'echo bye' {name}; echo ready; {waits}; trap '' {name}; echo end; exit 7"
    running = wrapper.start(reports.ping_url, shell(script))
    assert line_of(running) == b"ready\n"
    os.killpg(running.pid, number)
    assert line_of(running) == b"bye\n"
    until(lambda: not is_pending(number, running.pid), WAIT_SEC, "the wrapper receives the signal")
    (tmp_path / "go").touch()
    status, out, _ = outcome(running)
    assert (status, out.splitlines()[-1:]) == (7, [b"end"])
    assert reports.all[-1].signal == "7"
    # Shells report on standard error that their `sleep` was killed, and the script does not keep the order of both.
    lines = reports.all[-1].body.splitlines()
    assert [line for line in lines if line in (b"ready", b"bye", b"end")][-1] == b"end"
    assert wrapper.is_script or lines[-1] == b"end"


def test_a_signal_to_the_group_may_end_the_command(wrapper: Wrapper, reports: Reports) -> None:
    """At the moment when the wrapper receives it."""
    running = wrapper.start(reports.ping_url, shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    assert line_of(running) == b"ready\n"
    os.killpg(running.pid, signal.SIGTERM)
    assert outcome(running)[0] == 7
    assert reports.all[-1].signal == "7"


def test_a_command_of_another_user_may_refuse_signals(wrapper: Wrapper, reports: Reports) -> None:
    """As sudo's does. Root without CAP_KILL stands for the user."""
    require("setpriv")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    words = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill", *wrapper.words)
    job = ["setpriv", "--reuid=65534", "--clear-groups", *shell("echo ready; read -r _; exit 3")]
    running = replace(wrapper, words=words).start(reports.ping_url, job, stdin=subprocess.PIPE)
    assert line_of(running) == b"ready\n"
    running.send_signal(signal.SIGTERM)
    until(lambda: not is_pending(signal.SIGTERM, running.pid), WAIT_SEC, "the wrapper receives SIGTERM")
    assert outcome(running)[:2] == (3, b"")
    assert ended(reports).signal == "3"


def test_a_command_is_not_found(wrapper: Wrapper, reports: Reports) -> None:
    status, _, err = outcome(wrapper.start(reports.ping_url, ["no-such-command"]))
    assert status == 127
    assert b"no-such-command" in err
    assert reports.all[-1].signal == "127"
    assert b"no-such-command" in reports.all[-1].body


def test_a_command_cannot_be_executed(wrapper: Wrapper, reports: Reports, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("exit 0")
    status, _, err = outcome(wrapper.start(reports.ping_url, [str(tmp_path / "job")]))
    assert status == 126
    assert b"denied" in err
    assert reports.all[-1].signal == "126"


def test_a_script_may_lack_its_first_line(wrapper: Wrapper, reports: Reports, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("exit $1")
    (tmp_path / "job").chmod(0o700)
    assert outcome(wrapper.start(reports.ping_url, [str(tmp_path / "job"), "9"])) == (9, b"", b"")


def test_a_process_in_the_background_delays_nothing(wrapper: Wrapper, reports: Reports) -> None:
    """It has the command's stdout and stderr. The script's copies last until it ends."""
    running = wrapper.start(reports.ping_url, shell("sleep 600 & echo $!"))
    background = int(line_of(running))
    try:
        assert running.wait(WAIT_SEC) == 0
        assert ended(reports).body == f"{background}\n".encode()
    finally:
        os.kill(background, signal.SIGTERM)
    assert outcome(running) == (0, b"", b"")


def test_a_slow_reader_loses_nothing(wrapper: Wrapper, reports: Reports) -> None:
    """manage.py waits for the reader. The script does not, and its copies outlive it."""
    running = wrapper.start(reports.ping_url, shell("head -c 130000 /dev/zero"))
    if wrapper.is_script:
        running.wait(WAIT_SEC)
    assert outcome(running) == (0, bytes(130_000), b"")
    assert ended(reports).signal == "0"


def test_a_command_learns_that_nobody_reads(wrapper: Wrapper, reports: Reports) -> None:
    running = wrapper.start(reports.ping_url, ["yes"])
    assert line_of(running) == b"y\n"
    assert running.stdout is not None
    running.stdout.close()
    running.stdout = None
    assert outcome(running)[0] == 128 + signal.SIGPIPE
    assert ended(reports).signal == "141"


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full", "2>&1 >/dev/null"])
def test_streams_that_fail_are_no_obstacle(wrapper: Wrapper, serve: Serve, streams: str, tmp_path: Path) -> None:
    """Nor to the message that the end was not reported. The last one is a pipe without a reader."""
    reports = serve([answer(404)])
    words = (*shell(f'exec "$@" {streams}'), "sh", *wrapper.words)
    running = replace(wrapper, words=words).start(reports.ping_url, shell("echo lost; exit 4"))
    assert running.stdout is not None
    running.stdout.close()
    running.stdout = None
    assert outcome(running)[0] == 4
    assert ended(reports).signal == "4"
    assert list(tmp_path.glob("tmp.*")) == []


def test_other_open_files_are_the_commands(wrapper: Wrapper, reports: Reports, tmp_path: Path) -> None:
    words = (*shell(f'exec "$@" 3>{tmp_path}/3 4>{tmp_path}/4 5>{tmp_path}/5'), "sh", *wrapper.words)
    running = replace(wrapper, words=words).start(reports.ping_url, shell("for n in 3 4 5; do echo $n >&$n; done"))
    assert outcome(running) == (0, b"", b"")
    assert [(tmp_path / name).read_text() for name in "345"] == ["3\n", "4\n", "5\n"]


def test_a_server_that_is_away_is_asked_again(wrapper: Wrapper, serve: Serve) -> None:
    """With one rid, and not before it wants to be."""
    answers = iter([answer(503), answer(200), answer(500), answer(429, b"", "Retry-After: 1"), answer(200)])
    reports = serve(lambda _: [next(answers)])
    assert outcome(wrapper.start(reports.ping_url, shell("read -r _; exit 3"), stdin=subprocess.PIPE))[0] == 3
    signals = [each.signal for each in reports.all]
    assert signals[0] == "start"
    assert signals[-1] == "3"
    assert len({each.rid for each in reports.all}) == 1


def test_a_heartbeat_that_does_not_exist_is_not_asked_again(wrapper: Wrapper, serve: Serve) -> None:
    reports = serve([answer(404)])
    status, _, err = outcome(wrapper.start(reports.ping_url, shell("exit 3")))
    assert status == 3
    assert ended(reports).signal == "3"
    assert b"the end of the run was not reported" in err
    assert b"SECRET" not in err


def test_a_redirect_is_not_followed(wrapper: Wrapper, serve: Serve, reports: Reports) -> None:
    """The URL is a secret."""
    redirecting = serve([answer(307, b"", f"Location: {reports.ping_url}")])
    assert outcome(wrapper.start(redirecting.ping_url, shell("exit 3")))[0] == 3
    assert reports.all == []


def test_a_silent_server_does_not_delay_the_command(wrapper: Wrapper) -> None:
    """And the end of the run follows its start."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_SEC)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/heartbeats/SECRET/ping"
        running = wrapper.start(url, shell("echo ran; read -r _; exit 3"), stdin=subprocess.PIPE)
        start, _ = listening.accept()
        with start:
            assert line_of(running) == b"ran\n"
            assert running.stdin is not None
            running.stdin.close()
            running.stdin = None
            start.sendall(answer(200))
        end, _ = listening.accept()
        with end:
            received = b""
            while not received.endswith(b"ran\n"):
                received += end.recv(4096)
            assert received.startswith(b"POST /v1/heartbeats/SECRET/ping/3?rid=")
            end.sendall(answer(200))
    assert outcome(running) == (3, b"", b"")


def test_sigterm_ends_the_retries_but_changes_no_status(wrapper: Wrapper, serve: Serve) -> None:
    reports = serve(lambda request: [answer(200 if "start" in request.path else 503)])
    running = wrapper.start(reports.ping_url, shell("exit 3"))
    until(lambda: any(each.signal == "3" for each in reports.all), WAIT_SEC, "the end is sent")
    running.send_signal(signal.SIGTERM)
    status, _, err = outcome(running)
    assert status == 3
    assert b"the end of the run was not reported" in err
    assert b"SECRET" not in err
    assert len(reports.all) <= 3


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
def test_ctrl_c_in_a_terminal_arrives_once(wrapper: Wrapper, reports: Reports) -> None:
    """The terminal sends SIGINT to the command and to the wrapper. The script sends SIGTERM instead."""
    words = shell("trap 'echo interrupted' INT; echo ready; until read -r line; do :; done; echo $line; exit 6")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            wrapper.words[0], [*wrapper.words, *words], wrapper.environment | {"PULSEKEEPER_PING_URL": reports.ping_url}
        )
    seen = b""

    def see(text: bytes, times: int = 1) -> None:
        nonlocal seen
        while seen.count(text) < times:
            assert select.select([terminal], [], [], WAIT_SEC)[0], seen
            seen += os.read(terminal, 4_096)

    try:
        see(b"ready")
        os.write(terminal, b"\x03")
        see(b"interrupted")
        os.write(terminal, b"done\n")
        see(b"done", 2)  # its echo, and the command's
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 6
    assert seen.count(b"interrupted") == 1
    assert ended(reports).signal == "6"


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["--url=http://127.0.0.1/SECRET", "--", "true"],
        ["--url", "http://127.0.0.1:port/SECRET/ping", "--", "true"],
        ["--url", "http://user@127.0.0.1/SECRET/ping", "--", "true"],
        ["--url", "http://127.0.0.1/SECRET/ping", "--id", "SECRET", "--", "true"],
        ["--url", "http://127.0.0.1/SECRET/ping", "--timeout", "SECRET", "--", "true"],
        ["--ulr=http://127.0.0.1/SECRET/ping", "--", "true"],
        ["http://127.0.0.1/SECRET/ping", "true"],
        ["--id", "SECRET", "--", "true"],
        ["--id", "a/SECRET", "--server", "http://127.0.0.1", "--", "true"],
    ],
)
def test_wrong_use_runs_nothing_and_shows_no_secret(wrapper: Wrapper, arguments: list[str], tmp_path: Path) -> None:
    words = [*wrapper.words[:-1], *(f"{tmp_path}/ran" if word == "true" else word for word in arguments)]
    (tmp_path / "ran").write_text(f"#!/bin/sh\ntouch {tmp_path}/done\n")
    (tmp_path / "ran").chmod(0o700)
    done = subprocess.run(words, env=wrapper.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert done.stderr.startswith("run: ")
    assert "SECRET" not in done.stderr + done.stdout
    assert not (tmp_path / "done").exists()
    assert not (tmp_path / "data").exists(), "private servers were started"


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
def test_server_and_id_are_a_ping_url(wrapper: Wrapper, reports: Reports) -> None:
    server = reports.ping_url.partition("/v1/")[0]
    words = [*wrapper.words[:-1], "--server", f"{server}/", "--id", "SECRET", "true"]
    assert subprocess.run(words, env=wrapper.environment, check=False).returncode == 0
    assert ended(reports).signal == "0"


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
def test_a_proxy_that_is_no_address_changes_no_status(wrapper: Wrapper, reports: Reports) -> None:
    environment = wrapper.environment | {"http_proxy": "http:/SECRET:3128"}
    status, _, err = outcome(replace(wrapper, environment=environment).start(reports.ping_url, shell("exit 3")))
    assert status == 3
    assert err == b"run: the end of the run was not reported: the address of the proxy is invalid\n"


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
def test_a_machine_that_starts_no_threads_runs_the_command(wrapper: Wrapper, reports: Reports) -> None:
    """Their stacks are larger than the memory."""
    words = ("prlimit", f"--stack={1 << 40}", f"--as={1 << 39}", *wrapper.words)
    running = replace(wrapper, words=words).start(reports.ping_url, shell("yes | head -n 99999; exit 3"))
    assert outcome(running) == (3, b"y\n" * 99_999, b"")
    assert ended(reports) == Reported("3", ended(reports).rid, b"")


@pytest.mark.parametrize("wrapper", ["manage.py"], indirect=True)
def test_the_retries_end(wrapper: Wrapper) -> None:
    words = [*wrapper.words[:-1], "--timeout", "0.5", "--url", "http://127.0.0.1:9/SECRET/ping", "--", *shell("exit 3")]
    done = subprocess.run(words, env=wrapper.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "run: the end of the run was not reported: the server cannot be reached\n"


def test_the_script_is_clean() -> None:
    require("shellcheck")
    script = ROOT / "docs/samples/pulsekeeper-run"
    checked = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert os.access(script, os.X_OK)
