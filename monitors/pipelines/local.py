"""Check monitors through the database, for operators: claim all at once, enqueue them, and poll for the results."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError, ProgrammingError

from accounts.models import User
from checks.spec import Verdict
from core.clock import to_ms, utc_now
from monitors.check_ids import CheckIds
from monitors.history_views import CheckDetailSerializer
from monitors.models import Monitor
from monitors.pipelines.findings import Finding, Standing, Target, UnreachableError, UsageError, from_check
from monitors.probing import on_demand
from monitors.selectors import list_monitors, monitors_named
from projects import access
from projects.access import Caller

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
        with _database():
            self._monitors = {monitor.public_id: monitor for monitor in self._chosen()}
        return [_target(monitor) for monitor in self._monitors.values()]

    def run(self, targets: Sequence[Target], *, timeout_sec: float) -> Generator[Finding]:
        now = utc_now()
        wanted = {self._monitors[target.id].pk: target for target in targets}
        with _database():
            claims = on_demand.claim([self._monitors[target.id] for target in targets], now=now)
        for key in wanted.keys() - claims.keys():
            yield Finding(wanted[key], Standing.PAUSED, detail="It was paused or deleted meanwhile.")
        pending = dict(claims)
        try:
            with _database():
                on_demand.hand_out(claims, now=now)
            deadline = time.monotonic() + timeout_sec
            patience = max((target.timeout_ms for target in targets), default=0) / 1000 + PATIENCE_SEC
            silent_at = time.monotonic() + patience
            while pending and time.monotonic() < min(deadline, silent_at):
                with _database():
                    found = on_demand.results(pending, now=now)
                for key, result in found.items():
                    del pending[key]
                    silent_at = time.monotonic() + patience
                    ids = CheckIds(wanted[key].id)
                    yield from_check(wanted[key], CheckDetailSerializer(result, context={"ids": ids}).data)
                if pending:
                    time.sleep(LOOK_SEC)
            for key in pending:
                yield Finding(wanted[key], Standing.NOT_CHECKED, detail="No worker made the check in time.")
        except on_demand.BrokerAway:
            raise UnreachableError("the broker (REDIS_URL) does not answer") from None
        finally:  # also when the caller is interrupted
            if pending:
                with _database():
                    on_demand.give_back(pending, now=now)

    def _chosen(self) -> list[Monitor]:
        if self._project is None and self._account is None:
            return list(monitors_named(self._ids))
        if self._project is None:
            caller = Caller(self._user())
        else:
            project = access.project_named(self._project)
            if project is None or (self._account is not None and not self._has(project.pk)):
                raise UsageError(f"there is no project {self._project} here")
            caller = Caller(access.owner_of(project), project)
        return list(list_monitors(caller).order_by("name", "pk"))

    def _has(self, project_id: int) -> bool:
        return access.accessible_projects(Caller(self._user())).filter(pk=project_id).exists()

    def _user(self) -> User:
        user = User.objects.filter(email=(self._account or "").strip().lower()).first()
        if user is None:
            raise UsageError(f"there is no account {self._account}")
        return user


def _target(monitor: Monitor) -> Target:
    state = monitor.state
    return Target(
        id=monitor.public_id,
        name=monitor.name,
        type=monitor.type,
        url=monitor.url,
        project_id=None if monitor.project is None else monitor.project.public_id,
        enabled=monitor.enabled,
        status=None if state.status is None else Verdict(state.status),
        timeout_ms=monitor.timeout_ms,
        last_latency_ms=state.last_latency_ms,
        last_checked_at=None if state.last_checked_at is None else to_ms(state.last_checked_at),
    )


@contextmanager
def _database() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        raise UnreachableError(f"the database does not answer: {_first_line(error)}") from error
    except ProgrammingError as error:
        raise UnreachableError(f"the database is not migrated: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
