"""What somebody may paste elsewhere: a command that repeats a check, and what pings a heartbeat. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.configuration import MonitorType
from monitors.models import Monitor

_PING = "curl -fsS -m 10 --retry 5 -o /dev/null"


@dataclass(frozen=True, slots=True)
class Snippet:
    name: str
    explained: str
    text: str


def curl_of(monitor: Monitor) -> str:
    """The check of a monitor as a command for a shell. The values of its headers are secret: names stand for them."""
    arguments = ["curl", "--verbose", "--max-time", f"{monitor.timeout_ms / 1000:g}"]
    if monitor.method == "HEAD":
        arguments.append("--head")
    else:
        arguments += ["--request", monitor.method]
    if monitor.follow_redirects:
        arguments.append("--location")
    if not monitor.check_ssl and monitor.url.lower().startswith("https:"):
        arguments.append("--insecure")
    for header in monitor.request_headers:
        arguments += ["--header", f"{header['name']}: VALUE"]
    if monitor.request_body is not None:
        arguments += ["--data-raw", monitor.request_body]
    # Brackets in a URL are no pattern of several, and the URL is none of the options, whatever it begins with.
    arguments += ["--globoff", "--url", monitor.url]
    return _lines(arguments)


def _lines(arguments: Sequence[str]) -> str:
    """One option a line, each with its value."""
    lines: list[list[str]] = [[arguments[0]]]
    for argument in arguments[1:]:
        if argument.startswith("--") and lines[-1][-1] not in ("--data-raw", "--header", "--url"):
            lines.append([])
        lines[-1].append(argument)
    return " \\\n  ".join(" ".join(map(shlex.quote, line)) for line in lines)


def ping_snippets(url: str, *, interval_sec: int) -> list[Snippet]:
    return [
        Snippet("curl", "At the end of a script, once the work is done.", f"{_PING} {shlex.quote(url)}"),
        Snippet(
            "cron",
            "The ping goes out only when the job succeeds.",
            f"{_cron(interval_sec)} /path/to/job && {_PING} {shlex.quote(url)}",
        ),
        Snippet(
            "Python",
            "With nothing but the standard library.",
            f"import urllib.request\n\nurllib.request.urlopen({url!r}, timeout=10)",
        ),
        Snippet(
            "systemd service",
            "ExecStartPost runs only when ExecStart succeeded. In /etc/systemd/system/job.service:",
            "[Unit]\nDescription=A job that Pulsekeeper watches\n\n[Service]\nType=oneshot\n"
            f"ExecStart=/path/to/job\nExecStartPost=/usr/bin/{_PING} {url}",
        ),
        Snippet(
            "systemd timer",
            "In /etc/systemd/system/job.timer; then: systemctl enable --now job.timer",
            f"[Timer]\nOnBootSec=1min\nOnUnitActiveSec={interval_sec}s\n\n[Install]\nWantedBy=timers.target",
        ),
    ]


def _cron(interval_sec: int) -> str:
    """The nearest schedule of cron that is not more seldom than the interval, where there is one."""
    minutes = max(1, interval_sec // 60)
    if minutes < 60:
        return f"*/{minutes} * * * *" if minutes > 1 else "* * * * *"
    hours = minutes // 60
    if hours < 24:
        return f"0 */{hours} * * *" if hours > 1 else "0 * * * *"
    return "0 3 * * *"


def is_request(monitor: Monitor) -> bool:
    """Whether its check is a request that can be repeated."""
    return monitor.type != MonitorType.HEARTBEAT
