"""Let time pass in a test: move due times, run a tick of the scheduler, and wait for the result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import F

from core.clock import utc_now
from monitors.models import Monitor, MonitorState
from monitors.tasks import dispatch_due
from tests.api.client import Api
from tests.processes.waiting import until


def check_now(api: Api, monitor_id: str) -> dict[str, Any]:
    """Return the Monitor after one more scheduled check by the worker."""
    state = MonitorState.objects.get(monitor__public_id=monitor_id)
    MonitorState.objects.filter(pk=state.pk).update(next_due_at=utc_now(), claimed_at=None)
    dispatch_due()
    until(
        lambda: MonitorState.objects.get(pk=state.pk).applied_claim > state.applied_claim,
        10,
        "a result of the check is applied",
    )
    return shown(api, monitor_id)


def pings_stop_for(api: Api, monitor_id: str, *, seconds: float) -> dict[str, Any]:
    """Return the heartbeat after a run of the scheduler at that time after its last ping."""
    back = timedelta(seconds=seconds)
    states = MonitorState.objects.filter(monitor__public_id=monitor_id)
    states.update(last_ping_at=F("last_ping_at") - back, next_due_at=F("next_due_at") - back)
    dispatch_due()
    return shown(api, monitor_id)


def mute_ends(monitor_id: str) -> None:
    """Let its mute end a moment ago."""
    Monitor.objects.filter(public_id=monitor_id).update(muted_until=utc_now())


def shown(api: Api, monitor_id: str) -> dict[str, Any]:
    monitor: dict[str, Any] = api.get(f"/v1/monitors/{monitor_id}").json
    return monitor
