"""Which process of xdist runs which test."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


class ByProcessTree(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Test by test, but those that start trees of processes by file: theirs are made once for a file, and first.

    xdist has groups for this (`--dist=loadgroup`), which find nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith("tests/processes/") else nodeid
