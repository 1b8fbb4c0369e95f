"""Examples that ping a heartbeat. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

_PING = "curl -fsS -m 10 --retry 5 -o /dev/null"


@dataclass(frozen=True, slots=True)
class Snippet:
    name: str
    explained: str
    text: str


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
    """Return the closest cron schedule whose interval is not longer than the heartbeat's, if possible."""
    minutes = max(1, interval_sec // 60)
    if minutes < 60:
        return f"*/{minutes} * * * *" if minutes > 1 else "* * * * *"
    hours = minutes // 60
    if hours < 24:
        return f"0 */{hours} * * *" if hours > 1 else "0 * * * *"
    return "0 3 * * *"
