"""Check monitors for CI pipelines through the database: claim all at once, enqueue them, and poll for the results."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import msgspec

from accounts.models import User
from core.cli import UnreachableError, UsageError
from core.clock import utc_now
from core.errors import NoWorker
from monitors.check_ids import CheckIds
from monitors.checking import on_demand
from monitors.history_views import CheckDetailSerializer
from monitors.models import Monitor
from monitors.scheduling import claim_now, return_claims
from monitors.selectors import list_monitors, monitors_named
from monitors.serializers import serialize_monitors
from projects import access
from projects.access import Caller
from pulsekeeper.check.findings import Finding, FindingStatus, Target, from_check

LOOK_SEC = 0.2
PATIENCE_SEC = 10.0  # without a new result, in addition to the longest timeout: then no worker runs


class LocalSource:
    """The monitors of one account or one project, or of any tenant by their ids."""

    def __init__(self, *, account: str | None, project: str | None, ids: Sequence[str]) -> None:
        self._account = account
        self._project = project
        self._ids = ids
        self._monitors: dict[str, Monitor] = {}

    def targets(self) -> list[Target]:
        self._monitors = {monitor.public_id: monitor for monitor in self._chosen()}
        return msgspec.convert(serialize_monitors(list(self._monitors.values()), caller=None), list[Target])

    def run(self, targets: Sequence[Target], *, timeout_sec: float) -> Generator[Finding]:
        now = utc_now()
        wanted = {self._monitors[target.id].pk: target for target in targets}
        claims = claim_now(list(wanted), now=now)
        for key in wanted.keys() - claims.keys():
            yield Finding(wanted[key], FindingStatus.PAUSED, detail="It was paused or deleted during the check.")
        pending = dict(claims)
        try:
            if not on_demand.hand_out(claims, now=now):
                raise UnreachableError("the broker (REDIS_URL) does not answer")
            deadline = time.monotonic() + timeout_sec
            patience = max((target.timeout_ms for target in targets), default=0) / 1000 + PATIENCE_SEC
            silent_at = time.monotonic() + patience
            while pending and time.monotonic() < min(deadline, silent_at):
                for key, result in on_demand.results(pending, now=now).items():
                    del pending[key]
                    silent_at = time.monotonic() + patience
                    ids = CheckIds(wanted[key].id)
                    yield from_check(wanted[key], CheckDetailSerializer(result, context={"ids": ids}).data)
                if pending:
                    time.sleep(LOOK_SEC)
            faults = on_demand.faults(pending)
            for key in pending:
                yield Finding(wanted[key], FindingStatus.NOT_CHECKED, detail=faults.get(key, NoWorker.reason))
        finally:  # also when the caller is interrupted
            if pending:
                return_claims(pending.items(), now=now)

    def _chosen(self) -> list[Monitor]:
        caller = None if self._account is None else Caller(self._user())
        if self._project is not None:
            project = access.project_named(self._project)
            visible = None if caller is None else access.accessible_projects(caller)
            if project is None or (visible is not None and not visible.filter(pk=project.pk).exists()):
                raise UsageError(f"project {self._project} not found")
            caller = Caller(access.owner_of(project), project)
        if caller is None:
            return list(monitors_named(self._ids))
        return list(list_monitors(caller).order_by("name", "pk"))

    def _user(self) -> User:
        user = User.objects.filter(email=(self._account or "").strip().lower()).first()
        if user is None:
            raise UsageError(f"account {self._account} not found")
        return user
