"""Which process of xdist runs which test."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

PROCESSES = ("tests/processes/", "tests/browser/")


class ByProcessTree(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Test by test, but those that start trees of processes and browsers by file: once for it, and first.

    xdist has groups for this (`--dist=loadgroup`), which find nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(PROCESSES) else nodeid
