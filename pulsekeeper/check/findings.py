"""The results of a pipeline run, and the exit code that follows from them. Pure.

Both sources of monitors, the REST API (`api`) and the server's database (`monitors.pipelines`), return these values.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from checks.spec import Verdict
from core.cli import UsageError
from monitors import types


class Exit(IntEnum):
    """The exit codes of a complete run. A monitor that is down takes precedence over one not checked."""

    PASSED = 0
    FAILED = 1
    NOT_CHECKED = 3


class FindingStatus(StrEnum):
    UP = "up"
    SLOW = "slow"
    DOWN = "down"
    PAUSED = "paused"
    WAITING = "waiting"  # a heartbeat or scheduler that has no status yet
    NOT_CHECKED = "not checked"


class Target(msgspec.Struct, frozen=True):
    """The fields of a monitor that a pipeline needs, as in the API. Times in epoch milliseconds."""

    id: str
    name: str
    type: str
    url: str
    project_id: str | None
    enabled: bool
    status: Verdict | None
    timeout_ms: int
    last_latency_ms: int | None = None
    last_checked_at: int | None = None
    stale_reason: str | None = None

    @property
    def shown_id(self) -> str | None:
        """Return the id, or None for a heartbeat, whose id is a secret: many people can read CI logs."""
        return None if self.type in types.with_secret_ids() else self.id

    @property
    def checkable(self) -> bool:
        """Return whether it is enabled and polled. Checks of schedulers are actions, and heartbeats only get pings."""
        return self.enabled and self.type in types.polling()


class Finding(msgspec.Struct, frozen=True):
    """The result of one monitor, as in the API. `known`: the stored status, without a new check."""

    target: Target
    status: FindingStatus
    detail: str | None = None
    latency_ms: int | None = None
    http_status: int | None = None
    reason_code: str | None = None
    checked_at: int | None = None
    evidence: Mapping[str, Any] | None = None
    known: bool = False


class Source(Protocol):
    """Access to monitors. Raises UsageError and UnreachableError."""

    def targets(self) -> list[Target]: ...

    def run(self, targets: Sequence[Target], *, timeout_sec: float) -> Generator[Finding]:
        """Check these and yield each result when it arrives. Ends within about `timeout_sec`."""
        ...


def choose(targets: Iterable[Target], *, ids: Sequence[str], names: Sequence[str]) -> list[Target]:
    """Return the targets with one of the ids and a name that matches one of the globs. Empty filters match all.

    Raises UsageError for an unknown id, or if nothing is left: a pipeline that checks nothing must not pass.
    """
    chosen = list(targets)
    if missing := set(ids) - {target.id for target in chosen}:
        raise UsageError(f"monitor {', '.join(sorted(missing))} not found")
    if ids:
        chosen = [target for target in chosen if target.id in ids]
    if names:
        chosen = [target for target in chosen if any(fnmatchcase(target.name, glob) for glob in names)]
    if not chosen:
        raise UsageError("no monitor matches, so there is nothing to check")
    return chosen


def from_check(target: Target, check: Mapping[str, Any]) -> Finding:
    """Return the finding of a check in the API's format, with evidence. Raises ValueError or TypeError for another."""
    return msgspec.convert({**check, "target": target}, Finding)


def without_check(target: Target) -> Finding:
    """Return the finding of a monitor that is not checked: paused, or a heartbeat or scheduler with its own status.

    The status of a scheduler that no longer runs is outdated, so it does not count.
    """
    if not target.enabled:
        return Finding(target, FindingStatus.PAUSED)
    if target.stale_reason is not None:
        return Finding(target, FindingStatus.NOT_CHECKED, detail=target.stale_reason, known=True)
    if target.status is None:
        return Finding(target, FindingStatus.WAITING, detail=f"This {target.type} has no status yet.", known=True)
    text = f"This is the {target.type}'s status; nothing was sent."
    return Finding(
        target,
        FindingStatus(target.status.value),
        detail=text,
        latency_ms=target.last_latency_ms,
        checked_at=target.last_checked_at,
        known=True,
    )


def by_threshold(finding: Finding, *, slow_ms: int | None) -> Finding:
    """Return the finding with `slow_ms`, if given, instead of the monitor's own threshold."""
    if slow_ms is None or finding.known or finding.status not in (FindingStatus.UP, FindingStatus.SLOW):
        return finding
    if finding.latency_ms is None or finding.latency_ms < slow_ms:
        return msgspec.structs.replace(finding, status=FindingStatus.UP, detail=None)
    detail = f"Answered in {finding.latency_ms} ms, which is slow (threshold {slow_ms} ms)."
    return msgspec.structs.replace(finding, status=FindingStatus.SLOW, detail=detail)


def failing(fail_on: Verdict) -> frozenset[FindingStatus]:
    """Return the statuses that fail a pipeline. `slow` includes down."""
    return frozenset({FindingStatus.DOWN} if fail_on is Verdict.DOWN else {FindingStatus.DOWN, FindingStatus.SLOW})


def exit_code(findings: Iterable[Finding], *, fail_on: Verdict) -> Exit:
    statuses = {finding.status for finding in findings}
    if statuses & failing(fail_on):
        return Exit.FAILED
    return Exit.NOT_CHECKED if FindingStatus.NOT_CHECKED in statuses else Exit.PASSED


def counts(findings: Iterable[Finding]) -> dict[FindingStatus, int]:
    """Return the number of findings for each status that occurs, in the order of declaration."""
    statuses = [finding.status for finding in findings]
    return {status: statuses.count(status) for status in FindingStatus if status in statuses}
