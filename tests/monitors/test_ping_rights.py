"""A worker without permission to send pings: the draft test reports it, checks stay due, and a metric counts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.checks import run_checks

from checks.results.models import CheckResult
from config import system_checks
from core import metrics
from core.clock import utc_now
from monitors.metrics import CHECKS_DROPPED
from monitors.models import Monitor, MonitorState
from monitors.pipelines import LocalSource
from monitors.tasks import dispatch_due
from pulsekeeper.check.findings import FindingStatus
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import state_of
from tests.processes.waiting import until
from tests.targets.namespace import Namespace, why_no_namespace
from tests.targets.workers import worker_in

NOT_ALLOWED = "Pulsekeeper could not run this check: this worker may not send pings"
PING = {"type": "ping", "url": "icmp://127.0.0.1", "timeout_ms": 1_000}


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    if reason := why_no_namespace():
        pytest.skip(reason)
    with Namespace() as namespace:
        namespace.permit_datagram_pings(False)
        yield namespace


@pytest.fixture
def worker(namespace: Namespace, transactional_db: None) -> Iterator[None]:
    """A real worker in the namespace, without CAP_NET_RAW."""
    with worker_in(namespace, concurrency=2, may_ping=False):
        yield


def test_what_waits_for_a_check_says_why_there_is_none(worker: None) -> None:
    user = UserFactory()
    api = Api.signed_in(user)
    monitor = MonitorFactory(owner=user, up=True, **PING)
    for path, body in (("/v1/monitors/test", PING), (f"/v1/monitors/{monitor.public_id}/checks", None)):
        answer = api.post(path, body)
        assert (answer.status, answer.json["error"]) == (503, "no_worker")
        assert answer.json["reason"].startswith(NOT_ALLOWED)
    source = LocalSource(account=None, project=None, ids=[monitor.public_id])
    (finding,) = source.run(source.targets(), timeout_sec=1)
    assert finding.status is FindingStatus.NOT_CHECKED
    assert NOT_ALLOWED in str(finding.detail)


def test_a_scheduled_check_is_left_due_until_it_is_allowed(worker: None, namespace: Namespace) -> None:
    monitor = MonitorFactory(owner=UserFactory(), **PING)
    _dispatch(monitor)
    not_made = f"{CHECKS_DROPPED.name}|not_made|"
    until(lambda: metrics.read_sums().get(not_made, 0) >= 1, 120, "the check is counted")
    assert not CheckResult.objects.exists()
    state = state_of(monitor)
    assert (state.status, state.last_checked_at) == (None, None)
    assert state.next_due_at is not None, "at the end of the lease"
    namespace.permit_datagram_pings(True)
    try:
        _dispatch(monitor)
        until(lambda: CheckResult.objects.exists(), 30, "the check is made")
    finally:
        namespace.permit_datagram_pings(False)
    result = CheckResult.objects.get()
    assert (result.verdict, result.loss) == ("up", 0)


def test_the_system_check_warns(namespace: Namespace) -> None:
    def found() -> set[str]:
        return {str(message.id) for message in run_checks(tags=[system_checks.TAG])}

    assert "pulsekeeper.W005" in namespace.without_raw_sockets(found)
    assert "pulsekeeper.W005" not in namespace.run(found)


def _dispatch(monitor: Monitor) -> None:
    MonitorState.objects.filter(pk=monitor.pk).update(claimed_at=None, next_due_at=utc_now())
    dispatch_due()
