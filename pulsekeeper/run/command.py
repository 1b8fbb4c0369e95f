"""Run a job and report it to its heartbeat. It needs the standard library only, and starts quickly."""

from __future__ import annotations

import os
import re
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from core.cli import Command, CommandFailed, Output
from pulsekeeper.run.process import Process
from pulsekeeper.run.reporter import Reporter, checked_ping_url

PING_URL = "PULSEKEEPER_PING_URL"
TIMEOUT_SEC = 60.0
MAX_TIMEOUT_SEC = 3600.0
EXIT_USAGE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127

_ID = re.compile("[0-9A-Za-z_-]{1,64}")


class Run(Command):
    help = "Runs a command and reports its start, exit status and output to a heartbeat."
    epilog = """\
The ping URL is a secret. Other users of the machine see it in the list of processes, but not in the environment:

  PULSEKEEPER_PING_URL=https://pulsekeeper.example.com/v1/heartbeats/…/ping {prog} -- backup.sh /srv
  {prog} --server https://pulsekeeper.example.com --id mon_… -- backup.sh /srv

The command starts and ends as without this one, also while the server cannot be reached. The last 10 KB of its output
are sent with the exit status. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are passed
on to it.

exit codes:
  125  usage error: the command was not run
  126  the command cannot be executed
  127  the command was not found

Otherwise the exit code is the command's, or 128 plus the number of the signal that killed it.
"""
    usage_code = EXIT_USAGE  # 2, with which argparse exits, may be the status of a command

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", metavar="PING_URL", help=f"the heartbeat's ping URL; default: ${PING_URL}")
        parser.add_argument("--server", metavar="BASE_URL", help="the address of Pulsekeeper; with --id")
        parser.add_argument("--id", help="the id of the heartbeat; with --server")
        parser.add_argument(
            "--timeout",
            type=_seconds,
            default=TIMEOUT_SEC,
            metavar="SECONDS",
            help=f"how long to retry while the server is away; default: {TIMEOUT_SEC:.0f}",
        )
        parser.add_argument("command", nargs=REMAINDER, metavar="-- COMMAND", help="the command and its arguments")

    def explain(self, message: str) -> str:
        return message.partition("=")[0]  # a mistyped `--ulr=…` holds a secret

    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        command: list[str] = options["command"]
        reporter = Reporter(_ping_url(options), patience_sec=options["timeout"])
        words = command[1:] if command[:1] == ["--"] else command
        if not words:
            raise _usage("name the command to run, after --")
        if "://" in words[0]:
            raise _usage("the command is an address; give a ping URL with --url")
        try:
            process = Process(words)
        except OSError as error:
            status = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
            output = _write_problem(f"{words[0]}: {error.strerror}")
        else:
            reporter.begin()
            status = process.wait()
            output = process.output(on_stop=reporter.hurry)
        reporter.finish(status, output)
        if reporter.problem is not None:
            _write_problem(f"the end of the run was not reported: {reporter.problem}")
        return status


def _write_problem(problem: str) -> bytes:
    """Write a line to standard error, if that is possible, and return it.

    A failed write to sys.stderr would change the exit status, even if handled: Python flushes the rest at its end.
    """
    line = f"run: {problem}\n".encode(errors="replace")
    with suppress(OSError):
        os.write(2, line)
    return line


def _usage(message: str) -> CommandFailed:
    return CommandFailed(message, code=EXIT_USAGE)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= MAX_TIMEOUT_SEC:
        return seconds
    raise ArgumentTypeError(f"must be more than 0 and at most {MAX_TIMEOUT_SEC:.0f} seconds")


def _ping_url(options: Mapping[str, Any]) -> str:
    """Return the ping URL that the options or the environment give. Raises CommandFailed."""
    url, server, monitor_id = options["url"], options["server"], options["id"]
    if url is not None and (server or monitor_id):
        raise _usage("give --url, or --server and --id")
    if bool(server) != bool(monitor_id):
        raise _usage("--server and --id must be used together")
    if server:
        if not _ID.fullmatch(monitor_id):
            raise _usage("--id is not the id of a heartbeat")
        url = f"{server.rstrip('/')}/v1/heartbeats/{monitor_id}/ping"
    elif url is None:
        url = os.environ.get(PING_URL)
        if not url:
            raise _usage(f"give --url, --server and --id, or {PING_URL} in the environment")
    try:
        return checked_ping_url(url)
    except ValueError as error:
        raise _usage(str(error)) from None
