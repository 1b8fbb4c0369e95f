"""What checks left behind."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from checks.hours import HourOf
from checks.spec import ReasonCode, Verdict


class CheckResult(models.Model):
    """One check, as it was found. Written once, in bulk, and never changed.

    The table is partitioned by day of UTC (checks.partitions, ADR 12). `monitor_id` is no foreign key: this is the
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
            # Rows come in the order of time, so an hour of everybody's is a short stretch of the table.
            BrinIndex(fields=["checked_at"], autosummarize=True, name="result_times"),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} at {self.checked_at}"
