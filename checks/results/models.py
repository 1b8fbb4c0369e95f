"""Results of checks, and what is made of them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from checks.results.hours import HourOf
from checks.spec import ReasonCode, Verdict


class CheckResult(models.Model):
    """The result of one check. Written once, in bulk, and never changed.

    The table is partitioned by day of UTC (ADR 12). `monitor_id` is not a foreign key, because `monitors` is a
    higher layer. A result is identified by (monitor, claim). Recording stores it once, under the lock of the monitor's
    state: a unique index would be as large as the rows. The columns are ordered by alignment.
    """

    pk = models.CompositePrimaryKey("monitor_id", "checked_at", "claim")
    monitor_id = models.BigIntegerField()
    checked_at = models.DateTimeField()
    claim = models.IntegerField()
    latency_ms = models.IntegerField(null=True)
    connect_ms = models.IntegerField(null=True)
    ttfb_ms = models.IntegerField(null=True)
    location_id = models.IntegerField(null=True, help_text="Null: the default location.")
    http_status = models.SmallIntegerField(null=True)
    loss = models.SmallIntegerField(null=True, help_text="Percent of packets, of a ping that sent any.")
    verdict = models.CharField(max_length=4, choices=[(v.value, v.value) for v in Verdict])
    reason_code = models.CharField(max_length=20, null=True, choices=[(r.value, r.value) for r in ReasonCode])
    detail = models.TextField(null=True)
    confirmed = models.BooleanField(null=True, help_text="Of a failure about which other locations answered.")
    evidence = models.JSONField(null=True, help_text="Of a failure: checks.evidence.Evidence, without its Nones.")

    class Meta:
        indexes: ClassVar = [
            # By hour, not by time: the rows of an hour share one entry, which makes it a sixth as large.
            models.Index("monitor_id", HourOf("checked_at"), name="result_hours"),
            # Failures are few and queried separately; a pass costs only the comparison.
            models.Index(
                "monitor_id",
                HourOf("checked_at"),
                name="result_failures",
                condition=~models.Q(verdict=Verdict.UP.value),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} at {self.checked_at}"


class PackedResults(models.Model):
    """The results of one monitor in an hour or in six, in the bytes of `checks.results.codec` (ADR 62).

    Partitioned by hour, and by day once the hours of a day are merged. Six hours with very many results keep a row for
    each. `verdicts` has a bit for each verdict among them, in the order of VERDICTS.
    """

    pk = models.CompositePrimaryKey("monitor_id", "start")
    monitor_id = models.BigIntegerField()
    start = models.DateTimeField()
    count = models.IntegerField()
    verdicts = models.SmallIntegerField()
    data = models.BinaryField()

    class Meta:
        # Without the start: in a partition, nearly every monitor has one row or four.
        indexes: ClassVar = [models.Index("monitor_id", name="packed_monitors")]

    def __str__(self) -> str:
        return f"{self.count} results from {self.start}"


class PackedReasons(models.Model):
    """Reason, detail, confirmation and evidence of the packed results of one monitor in one hour that have any.

    Compressed JSON: lists of (microseconds since the hour, claim, number of the verdict, reason_code, detail,
    confirmed), and of (microseconds, claim, evidence). Partitioned by day.
    """

    pk = models.CompositePrimaryKey("monitor_id", "hour")
    monitor_id = models.BigIntegerField()
    hour = models.DateTimeField()
    reasons = models.BinaryField()
    evidence = models.BinaryField(null=True)

    def __str__(self) -> str:
        return f"reasons of {self.hour}"


class HourlyRollup(models.Model):
    """The results of one monitor in one hour. Partitioned by month of UTC.

    `timed` counts the passed checks that have a latency; sum, least and most are over those. `measured` counts the
    checks that have a loss, passed or not, and `loss_sum` is over those; both are null without any.
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
    loss_sum = models.IntegerField(null=True)
    measured = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.hour}: {self.up} up, {self.slow} slow, {self.down} down"


class RollupProgress(models.Model):
    """How far the roll-ups are, in one row. Null: nothing is rolled up yet.

    Hours before `closed_until` are closed: a result that is recorded for one of them adds a LateHour. Hours before
    `rolled_until`, which follows, are rolled up. Of the hour `part_hour`, monitors before `part_until` are too. Results
    before `packed_until`, which follows too, are packed, except late ones that will be.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    closed_until = models.DateTimeField(null=True)
    rolled_until = models.DateTimeField(null=True)
    packed_until = models.DateTimeField(null=True)
    part_hour = models.DateTimeField(null=True)
    part_until = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"rolled up until {self.rolled_until}"


class LateHour(models.Model):
    """A result was recorded for a closed hour, which has to be rolled up again.

    One row for each result, not for each hour, so that transactions that add them never wait for each other.
    """

    monitor_id = models.BigIntegerField()
    hour = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.hour} of {self.monitor_id}"


class DeletedMonitor(models.Model):
    """A deleted monitor whose results and roll-ups are not deleted yet.

    A trigger on monitors adds it, so cascades and manual deletions in the database are covered.
    """

    monitor_id = models.BigIntegerField(primary_key=True)
    deleted_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.monitor_id}, deleted at {self.deleted_at}"
