"""Report what each process finds of its own network, for /metrics and System health."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from checks.own_network import OwnNetwork
from checks.probes.target import join_host_port
from core.metrics import Level

DOWN = Level("pulsekeeper_own_network_down", "Processes that check and whose own network is down.")
_SILENT = "own_network_silent,"


def follow(network: OwnNetwork) -> None:
    """Report for this process from now on whether its network is down, and which servers have never answered."""
    if network.servers:
        DOWN.follow(lambda: network.is_down)
    for server in network.servers:
        Level(_SILENT + join_host_port(*server), "").follow(partial(network.is_silent, server))


def silent_servers(levels: Mapping[str, float]) -> list[str]:
    """Return the servers that have never answered some process, out of what `core.metrics.read_levels` returned."""
    return sorted(name.removeprefix(_SILENT) for name, count in levels.items() if count and name.startswith(_SILENT))
