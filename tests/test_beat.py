"""Beat sends the tasks in its table and does not import their code. Workers do not import pages."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from celery.beat import ScheduleEntry
from django.conf import settings
from honcho.environ import parse_procfile

from config.beat import Scheduler, SteadyCelery
from config.beat import app as beat
from config.celery import app
from core.metrics import read_processes
from monitors.scheduling.backlog import queued
from tests.helpers import flush_broker
from tests.processes.waiting import until

ROOT = Path(__file__).parents[1]


def test_it_names_tasks_that_there_are() -> None:
    app.loader.import_default_modules()
    entries = beat.conf.beat_schedule.values()
    assert entries
    assert {entry["task"] for entry in entries} <= set(app.tasks)
    assert beat.conf.beat_schedule == app.conf.beat_schedule


def test_it_sleeps_until_a_task_is_due() -> None:
    """Celery's scheduler looks without a pause for 10 ms before each task."""
    sent: list[str | None] = []

    class Recorder(Scheduler):
        producer = None  # type: ignore[assignment]  # the usual one connects to a broker

        def apply_entry(self, entry: ScheduleEntry, producer: object = None) -> None:
            sent.append(entry.name)

    app = SteadyCelery("test", set_as_current=False)
    app.conf.beat_schedule = {f"each {tenths}": {"task": "each", "schedule": tenths / 10} for tenths in (1, 2, 3)}
    scheduler, ticks = Recorder(app), 0
    while len(sent) < 12:
        ticks += 1
        assert ticks < 60
        time.sleep(max(0.0, scheduler.tick()))
    assert set(sent) == set(app.conf.beat_schedule)


NEVER = {"opentelemetry", "rich", "sentry_sdk", "structlog"}
"""Modules that are loaded only if configured, or when a line is written."""


def test_it_loads_no_code_of_tasks() -> None:
    spared = {"django.contrib.admin", "rest_framework", "monitors.models", "pycurl"} | NEVER
    code = (
        "import sys, config.beat; app = config.beat.app; app.finalize(); app.loader.import_default_modules()\n"
        "assert app.conf.beat_schedule\n"
        f"found = {spared!r} & set(sys.modules); sys.exit(' '.join(sorted(found)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_workers_load_no_code_of_pages(tmp_path: Path) -> None:
    spared = {
        "PIL",
        "accounts.admin",
        "core.staff",
        "monitors.admin",
        "config.urls",
        "dashboard.urls",
        "fido2",
        "openid",
        "prompt_toolkit",
        "qrcode",
        "requests",
        "social_core",
        "social_django",
    } | NEVER
    loaded = tmp_path / "modules"
    celery = str(Path(sys.executable).parent / "celery")
    lines = parse_procfile((ROOT / "Procfile").read_text()).processes.values()
    assert all('PYTHONPATH="config/lean' in line for line in lines if " celery " in line)
    options = [
        "--pool",
        "threads",
        "--concurrency",
        "1",
        "--queues",
        "interactive",
        "--include",
        "tests.loaded_modules",
    ]
    environment = os.environ | {"CELERY_SKIP_CHECKS": "1", "LOADED_MODULES": str(loaded)}
    environment["PYTHONPATH"] = "config/lean"
    subprocess.run([celery, "-A", "config", "worker", *options], cwd=ROOT, env=environment, check=True, timeout=60)
    modules = set(loaded.read_text().split())
    assert "monitors.tasks" in modules
    assert spared & modules == set()


def test_web_loads_no_code_of_tests_and_rare_pages() -> None:
    spared = {"django.test", "drf_spectacular.generators", "icalendar", "ruamel.yaml", "unittest"} | NEVER
    code = (
        "import sys; from django.core.wsgi import get_wsgi_application; get_wsgi_application(); import config.urls\n"
        f"found = {spared!r} & set(sys.modules); sys.exit(' '.join(sorted(found)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_it_sends() -> None:
    flush_broker()
    arguments = ["--quiet", "beat", "--pidfile="]
    with subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "config.beat", *arguments],
        cwd=ROOT,
        env=os.environ | {"REDIS_URL": settings.REDIS_URL or ""},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until(lambda: queued("dispatch") >= 2, 30, "ticks are sent")
            until(lambda: "beat" in read_processes(), 30, "it reports")
        finally:
            process.terminate()
    flush_broker()
