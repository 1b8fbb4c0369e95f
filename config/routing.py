"""The queue of each task, without a default: a task without a route is an error at startup and when it is sent.

A queue decides which process runs a task, and so which services the task can reach: see docs/operate/deployment.md.
Only `interactive` serves `alerts`: tasks that send webhooks and mails need access to the internet, which `dispatcher`
does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader

QUEUES = ("probes", "interactive", "dispatch", "alerts")

PROCESSES = {
    "web": frozenset[str](),
    "worker": frozenset({"probes"}),
    "interactive": frozenset({"interactive", "alerts"}),
    "dispatcher": frozenset({"dispatch"}),
    "beat": frozenset[str](),
}
"""The kinds of processes, which are the lines of the Procfile, and the queues that they serve."""

ROUTES = {
    "monitors.tasks.dispatch_due": "dispatch",
    "monitors.tasks.probe_batch": "probes",
    "monitors.tasks.probe_now": "interactive",
    "monitors.tasks.verify": "interactive",
    "monitors.tasks.first_check": "interactive",
    "monitors.tasks.check_draft": "interactive",
    "monitors.tasks.ask_canary": "interactive",  # connects to BASE_URL
    "monitors.tasks.refresh_registrations": "probes",  # queries registries of domains
    "monitors.tasks.note_excess": "dispatch",
    "monitors.tasks.warn_of_expiries": "dispatch",
    "monitors.tasks.apply_tzdata": "probes",  # computes many times after an update
    # These send webhooks and mails.
    "alerts.tasks.*": "alerts",
    "oncall.tasks.*": "alerts",
    "statuspages.tasks.*": "alerts",
    # These may take a minute, and the dispatcher has only two threads.
    "accounts.tasks.finish_deletions": "probes",
    "checks.tasks.*": "probes",
    "monitors.tasks.write_days": "probes",
    # Short deletions in the database.
    "audit.tasks.sweep": "dispatch",
    "connectors.tasks.sweep": "dispatch",
    "accounts.web.tasks.sweep": "dispatch",
    "projects.tasks.sweep": "dispatch",
    "manifests.tasks.sweep": "dispatch",
    "monitors.tasks.forget_bulk_edits": "dispatch",
    "locations.tasks.sweep": "dispatch",
    # Celery registers its own tasks in every application.
    "celery.*": "dispatch",
}


class UnroutedTask(Exception):
    """A task has no queue in ROUTES."""


def queue_of(task: str) -> str | None:
    """Return the queue of a task by its name, or None if no route matches."""
    return next((queue for pattern, queue in ROUTES.items() if fnmatchcase(task, pattern)), None)


def kinds_serving(queues: Collection[str]) -> list[str]:
    """Return the kinds of processes whose queues are all among these."""
    return [kind for kind, own in PROCESSES.items() if own and own <= set(queues)]


def unrouted(tasks: Iterable[str]) -> list[str]:
    """Return the names without a route, sorted."""
    return sorted(task for task in set(tasks) if queue_of(task) is None)


def route(name: str, args: object, kwargs: object, options: Mapping[str, Any], **_: Any) -> dict[str, str] | None:
    """Route a task for Celery. Return None if the caller chose a queue. Raises UnroutedTask."""
    if "queue" in options:
        return None
    if queue := queue_of(name):
        return {"queue": queue}
    raise UnroutedTask(f"{name} has no queue: add it to config/routing.py.")


class RoutedLoader(AppLoader):
    """Loads the tasks of a worker, or beat's schedule, and refuses to start if a task has no queue.

    Django's system checks look for this too, but workers start with CELERY_SKIP_CHECKS=1.
    """

    app: Celery

    def import_default_modules(self) -> list[Any]:
        modules: list[Any] = super().import_default_modules()
        scheduled = {entry["task"] for entry in self.app.conf.beat_schedule.values()}
        if missing := unrouted(scheduled | set(self.app.tasks)):
            raise UnroutedTask(f"No queue in config/routing.py for: {', '.join(missing)}.")
        return modules
