"""Which process of xdist runs which test."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

PROCESSES = "tests/processes/"
BROWSER = "tests/browser/"


class ByProcessTree(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Test by test, but those that start trees of processes by file, and those of the browser, which share one tree,
    together; all of these first.

    xdist has groups for this (`--dist=loadgroup`), which find nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BROWSER):
            return BROWSER
        return nodeid.partition("::")[0] if nodeid.startswith(PROCESSES) else nodeid
