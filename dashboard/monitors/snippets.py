"""Examples that send a heartbeat's signals. Each is a template in templates/dashboard/snippets."""

from __future__ import annotations

import re
from typing import NamedTuple

from django.template import Context, Engine

from monitors.models import Monitor

CURL = "curl -fsS -m 10 --retry 3 -o /dev/null"


class Example(NamedTuple):
    """`is_run`: tests/dashboard/test_snippets.py runs it. The page marks the others as untested."""

    title: str
    file: str
    help: str
    is_run: bool = True


EXAMPLES = (
    Example("curl", "curl", "At the end of a script, once the work is done."),
    Example(
        "Wrapper",
        "wrapper",
        "For any command, also in a crontab: sends the start, then the exit status with the end of the output. "
        "Copy docs/samples/pulsekeeper-run from the repository into the PATH; it needs only curl.",
    ),
    Example(
        "cron", "crontab", "Sends the start, then the exit status of the job. cron uses the time zone of the machine."
    ),
    Example(
        "systemd service",
        "job.service",
        "In /etc/systemd/system/job.service. ExecStopPost also runs after a crash or a timeout, with $EXIT_STATUS.",
    ),
    Example("systemd timer", "job.timer", "In /etc/systemd/system/job.timer; then: systemctl enable --now job.timer"),
    Example("Bash", "job.sh", "The trap sends the exit status however the script ends."),
    Example("Python", "job.py", "Needs only the standard library. A failure is sent with its traceback."),
    Example("Node.js", "job.mjs", "An ES module for Node.js 18 or newer."),
    Example("Go", "job.go", "With a function job that returns an error.", is_run=False),
    Example(
        "PowerShell",
        "job.ps1",
        "Windows exit codes may be above 255, so a failure sends its code as text.",
        is_run=False,
    ),
    Example(
        "Kubernetes CronJob", "cronjob.yaml", "The image needs curl. The time zone needs Kubernetes 1.27 or newer."
    ),
    Example(
        "GitHub Actions",
        "workflow.yml",
        "In .github/workflows/job.yml. In a public repository, make the address a secret.",
    ),
)


def snippets_of(monitor: Monitor) -> list[tuple[Example, str]]:
    """Return the examples for a heartbeat, with its address and schedule."""
    schedule, timezone = monitor.options["schedule"], monitor.options["timezone"]
    context = {
        "url": monitor.ping_url,
        "curl": CURL,
        "cron": schedule or _cron(monitor.interval_sec),
        "timezone": timezone,
        "interval_sec": monitor.interval_sec,
    }
    # systemd has no timers of cron expressions, and others read some expressions in another way.
    left_out = {"job.timer"} if schedule else set()
    if schedule and not _is_portable(schedule):
        left_out |= {"cronjob.yaml", "workflow.yml"}
    return [(one, _render(one.file, context)) for one in EXAMPLES if one.file not in left_out]


def _is_portable(schedule: str) -> bool:
    """Return whether Kubernetes and GitHub read the schedule as Debian's cron does.

    They have no weekday 7. Where both days are limited and one of them is a step of all days, Debian requires both.
    """
    *_, day, _, weekday = schedule.split()
    has_seven = re.search(r"(?<![/\d])7", weekday) is not None
    return not has_seven and ("*" in (day, weekday) or "*" not in day + weekday)


def _render(file: str, context: dict[str, object]) -> str:
    template = Engine.get_default().get_template(f"dashboard/snippets/{file}.txt")
    return template.render(Context(context, autoescape=False)).rstrip("\n")  # no HTML: the page escapes it


def _cron(interval_sec: int) -> str:
    """Return the closest cron schedule whose interval is not longer than the heartbeat's, if possible."""
    minutes = max(1, interval_sec // 60)
    if minutes < 60:
        return f"*/{minutes} * * * *" if minutes > 1 else "* * * * *"
    hours = minutes // 60
    if hours < 24:
        return f"0 */{hours} * * *" if hours > 1 else "0 * * * *"
    return "0 3 * * *"
