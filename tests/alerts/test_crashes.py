"""A worker is killed (-9) after each step of an alert: the alert arrives, and repetitions have the same key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from alerts.models import AlertChannel, Delivery, DeliveryItem
from checks.spec import Verdict
from core.clock import utc_now
from incidents.models import Incident
from tests.alerts.drivers import Drive, make_channel, timeline
from tests.alerts.receiver import Receiver
from tests.factories import UserFactory

ROOT = Path(__file__).parents[2]
# A copy of the steps in tests.alerts.dying_worker. Importing it would load the settings of a separate process.
STEPS = (
    *("locked", "consuming", "consumed", "pending", "put", "announced"),
    *("claimed", "loaded", "sent", "finishing", "finished"),
)


PLANNED_STEPS = ("releasing", "released")


@contextmanager
def dying_workers() -> Iterator[Callable[[str], int]]:
    """Yield what runs a worker until it dies after a step, or with "" to its end, and returns its exit code."""
    given = urlsplit(os.environ["DATABASE_URL"])
    address = given._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.alerts.dying_worker"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        steps, codes = process.stdin, process.stdout
        assert steps is not None
        assert codes is not None

        def work(step: str) -> int:
            print(step, file=steps, flush=True)
            return int(codes.readline())

        yield work


def end_leases() -> None:
    """Expire the leases of killed workers."""
    Delivery.objects.update(leased_until=utc_now() - timedelta(seconds=1))


@pytest.mark.django_db(transaction=True)
def test_no_alert_is_lost_wherever_a_worker_dies() -> None:
    drive, owner = Drive(), UserFactory()
    AlertChannel.objects.all().delete()
    with Receiver() as receiver, dying_workers() as work:
        for step in STEPS:
            monitor = drive.monitor(owner, step)
            channel = make_channel(owner, scope="chosen", monitors=[monitor])
            channel.config = {"url": f"{receiver.url}/{step}", "secret": "s" * 40}
            channel.save()
            drive.check(monitor, Verdict.DOWN, utc_now())
            end_leases()
            assert work(step) == -signal.SIGKILL, step
        end_leases()
        assert work("") == 0
        keys = {step: [call.key for call in receiver.calls if call.path == f"/{step}"] for step in STEPS}
    assert all(keys.values()), keys
    assert all(len(set(found)) == 1 for found in keys.values())
    assert any(len(found) > 1 for found in keys.values()), "one died after the receiver had answered"
    assert set(Delivery.objects.values_list("state", flat=True)) == {"sent"}
    assert DeliveryItem.objects.count() == Incident.objects.count() == len(STEPS)
    for incident in Incident.objects.all():
        assert timeline(incident) == ["first_failure", "confirmed", "announced", "alert_sent"], incident.name


@pytest.mark.django_db(transaction=True)
def test_no_planned_alert_is_lost_or_repeated_wherever_a_worker_dies() -> None:
    drive, owner = Drive(), UserFactory()
    AlertChannel.objects.all().delete()
    with Receiver() as receiver, dying_workers() as work:
        for step in PLANNED_STEPS:
            monitor = drive.monitor(owner, step)
            channel = make_channel(owner, scope="chosen", monitors=[monitor], delay_min=10)
            channel.config = {"url": f"{receiver.url}/{step}", "secret": "s" * 40}
            channel.save()
            drive.check(monitor, Verdict.DOWN, utc_now())
            assert work("") == 0
            DeliveryItem.objects.filter(delivery=None).update(due_at=utc_now())
            assert work(step) == -signal.SIGKILL, step
        assert work("") == 0
        assert sorted(call.path for call in receiver.calls) == sorted(f"/{step}" for step in PLANNED_STEPS)
    assert DeliveryItem.objects.filter(delivery__state="sent").count() == len(PLANNED_STEPS)
