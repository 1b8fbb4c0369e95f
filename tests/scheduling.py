"""Which process of xdist runs which tests, and in which order."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARED = {
    "tests/browser/": "browser",
    "tests/attacks/": "attacks",
    "tests/processes/test_alerts.py": "instance",
    "tests/processes/test_following.py": "instance",
    "tests/processes/test_outages.py": "instance",
    "tests/processes/test_readme.py": "instance",
    "tests/processes/test_restarts.py": "instance",
    # One group each, as they take long and share nothing.
    "tests/api/test_schemathesis.py::test_schemathesis[session]": "schemathesis with a session",
    "tests/api/test_schemathesis.py::test_schemathesis[project token]": "schemathesis with a token",
}
"""Tests that share one process tree: it is started once, by the process that runs them all."""

SLOWEST = (
    "browser",
    "schemathesis with a session",
    "instance",
    "tests/test_guides.py",
    "tests/api/test_hostile_input.py",
    "tests/processes/test_up.py",
    "schemathesis with a token",
    "attacks",
    "tests/alerts/test_notify.py",
    "tests/processes/",
    "tests/test_migrations.py",
    "tests/test_history.py",
    "tests/admin/test_every_page.py",
    "tests/wrapper/test_run.py",
    "tests/checks/test_catalogue.py",
    "tests/gateway/",
    "tests/core/test_stolen_broker.py",
    "tests/alerts/test_crashes.py",
    "tests/manifests/test_commands.py",
    "tests/monitors/test_heartbeat_machine.py",
    "tests/checks/test_fuzz.py",
    "tests/chart/",
    "tests/metrics/",
)
"""Started first, in this order: the last group to end must be a short one. Tests that wait for processes take turns
with tests that use the processor all the time."""


def group_of(nodeid: str) -> str:
    """Return the name of the tests that run one after the other in one process: a group of SHARED, or a file."""
    shared = (group for prefix, group in SHARED.items() if nodeid.startswith(prefix))
    return next(shared, nodeid.partition("::")[0])


def sort_slowest_first(items: list[pytest.Item]) -> None:
    """Keep the order within a group; then files with many tests before those with few."""
    counts: dict[str, int] = {}
    for item in items:
        group = group_of(item.nodeid)
        counts[group] = counts.get(group, 0) + 1

    def rank(item: pytest.Item) -> tuple[int, int, str]:
        group = group_of(item.nodeid)
        slow = (place for place, prefix in enumerate(SLOWEST) if group.startswith(prefix))
        return next(slow, len(SLOWEST)), -counts[group], group

    items.sort(key=rank)


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Hand out groups in the order of the collection.

    xdist's own groups (`--dist=loadgroup`) find nothing under pytest 9.2.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
