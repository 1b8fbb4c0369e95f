"""The distribution of tests to processes of xdist, and their order."""

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
"""Started first, in this order: the last group to end must be short. Tests that wait for processes alternate with
tests that use the processor all the time."""

LONG = (
    "tests/admin/test_every_page.py",
    "tests/alerts/test_apprise.py",
    "tests/alerts/test_concurrency.py",
    "tests/alerts/test_crashes.py",
    "tests/alerts/test_dns_changes.py",
    "tests/alerts/test_notify.py",
    "tests/alerts/test_sender.py",
    "tests/alerts/test_too_often.py",
    "tests/api/test_hostile_input.py",
    "tests/api/test_long_lists.py",
    "tests/api/test_no_worker.py",
    "tests/api/test_query_counts.py",
    "tests/api/test_schemathesis.py",
    "tests/attacks",
    "tests/browser",
    "tests/chart",
    "tests/checks/test_catalogue.py",
    "tests/checks/test_decoding.py",
    "tests/checks/test_fuzz.py",
    "tests/checks/test_liveness.py",
    "tests/checks/test_ping.py",
    "tests/checks/test_probe_command.py",
    "tests/checks/test_probes.py",
    "tests/checks/test_rate_limit.py",
    "tests/checks/test_rdap.py",
    "tests/checks/test_rollups.py",
    "tests/checks/test_tcp.py",
    "tests/checks/test_udp.py",
    "tests/connectors/test_importing.py",
    "tests/contract/test_metrics.py",
    "tests/core/test_clock.py",
    "tests/core/test_db.py",
    "tests/core/test_pgbouncer.py",
    "tests/core/test_stolen_broker.py",
    "tests/dashboard/test_imports.py",
    "tests/dashboard/test_two_tabs.py",
    "tests/faults",
    "tests/fuzz",
    "tests/gateway",
    "tests/importers/test_mappers.py",
    "tests/incidents/test_recurrence.py",
    "tests/manifests/test_commands.py",
    "tests/manifests/test_export.py",
    "tests/manifests/test_races.py",
    "tests/metrics/test_metrics.py",
    "tests/metrics/test_prometheus.py",
    "tests/metrics/test_writes.py",
    "tests/monitors/test_clock_changes.py",
    "tests/monitors/test_fast_path.py",
    "tests/monitors/test_heartbeat_machine.py",
    "tests/monitors/test_ping_gaps.py",
    "tests/monitors/test_ping_rights.py",
    "tests/monitors/test_races.py",
    "tests/monitors/test_rate_limit.py",
    "tests/monitors/test_runner.py",
    "tests/monitors/test_signal_races.py",
    "tests/monitors/test_slots.py",
    "tests/monitors/test_state_machine.py",
    "tests/monitors/test_turns.py",
    "tests/pipelines",
    "tests/privacy/test_export.py",
    "tests/privacy/test_slow_export.py",
    "tests/processes",
    "tests/reporting",
    "tests/statuspages/test_domains.py",
    "tests/test_beat.py",
    "tests/test_deploy.py",
    "tests/test_guides.py",
    "tests/test_history.py",
    "tests/test_layers.py",
    "tests/test_locks.py",
    "tests/test_migrations.py",
    "tests/test_neighbours.py",
    "tests/test_private_networks.py",
    "tests/test_pulsekeeper.py",
    "tests/test_regexes.py",
    "tests/test_reverse_proxies.py",
    "tests/test_routing.py",
    "tests/test_strangers.py",
    "tests/test_task_logs.py",
    "tests/upgrade",
    "tests/wrapper",
)
"""What `make check` leaves out: files whose tests start processes, wait for time to pass, or try generated examples for
seconds."""


def group_of(nodeid: str) -> str:
    """Return the group of a test, which runs sequentially in one process: one of SHARED, or its file."""
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
