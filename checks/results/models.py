"""What checks left behind."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now

from checks.results.hours import HourOf, MinuteOf
from checks.spec import ReasonCode, Verdict


class CheckResult(models.Model):
    """One check, as it was found. Written once, in bulk, and never changed.

    The table is partitioned by day of UTC (ADR 12). `monitor_id` is no foreign key: this is the
    largest table by far, and it lies below `monitors`. A result is named by (monitor, claim), and recording, under
    the lock of the monitor's state, stores it once: the database has no unique index, which would be as large as the
    rows themselves. The order of the columns is that of their alignment.
    """

    pk = models.CompositePrimaryKey("monitor_id", "checked_at", "claim")
    monitor_id = models.BigIntegerField()
    checked_at = models.DateTimeField()
    claim = models.IntegerField()
    latency_ms = models.IntegerField(null=True)
    connect_ms = models.IntegerField(null=True)
    ttfb_ms = models.IntegerField(null=True)
    http_status = models.SmallIntegerField(null=True)
    verdict = models.CharField(max_length=4, choices=[(v.value, v.value) for v in Verdict])
    reason_code = models.CharField(max_length=20, null=True, choices=[(r.value, r.value) for r in ReasonCode])
    detail = models.TextField(null=True)
    evidence = models.JSONField(
        null=True, help_text="Of a failure: checks.evidence.Evidence, without its Nones."
    )

    class Meta:
        indexes: ClassVar = [
            # By hour, not by time: the rows of an hour share one entry, which makes it a sixth as large.
            models.Index("monitor_id", HourOf("checked_at"), name="result_hours"),
            # Failures are few and looked for by themselves; of passes this costs nothing but the comparison.
            models.Index(
                "monitor_id",
                HourOf("checked_at"),
                name="result_failures",
                condition=~models.Q(verdict=Verdict.UP.value),
            ),
            # Rows come in the order of time, so an hour of everybody's is a short stretch of the table.
            BrinIndex(MinuteOf("checked_at"), autosummarize=True, name="result_times"),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} at {self.checked_at}"


class HourlyRollup(models.Model):
    """What an hour of a monitor's results comes to. Partitioned by month of UTC.

    `timed` counts the passed checks that have a latency; sum, least and most are over those.
    """

    pk = models.CompositePrimaryKey("monitor_id", "hour")
    monitor_id = models.BigIntegerField()
    hour = models.DateTimeField()
    latency_sum = models.BigIntegerField()
    up = models.IntegerField()
    slow = models.IntegerField()
    down = models.IntegerField()
    timed = models.IntegerField()
    latency_min = models.IntegerField(null=True)
    latency_max = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.hour}: {self.up} up, {self.slow} slow, {self.down} down"


class RollupProgress(models.Model):
    """One row: how far the roll-ups are. Nulls: nothing is rolled up yet.

    Hours before `closed_until` are closed: a result that comes for one of them leaves a LateHour. Hours before
    `rolled_until`, which follows, are rolled up. Between the two lies what is being rolled up.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    closed_until = models.DateTimeField(null=True)
    rolled_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"rolled up until {self.rolled_until}"


class LateHour(models.Model):
    """A result came for an hour that is closed: it has to be rolled up again.

    A row for each result, not for each hour: those who note them never wait for one another, nor for the one who
    works them off.
    """

    monitor_id = models.BigIntegerField()
    hour = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.hour} of {self.monitor_id}"


class DeletedMonitor(models.Model):
    """A monitor that is gone, and whose results and roll-ups still have to go.

    A trigger on monitors writes it: whatever deletes a monitor, be it a cascade or somebody at the database's prompt.
    """

    monitor_id = models.BigIntegerField(primary_key=True)
    deleted_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.monitor_id}, deleted at {self.deleted_at}"
