"""What checks left behind."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from checks.spec import ReasonCode, Verdict


class CheckResult(models.Model):
    """One check, as it was found. Written once, in bulk, and never changed.

    `monitor_id` is no foreign key: this is the largest table by far, and it lies below `monitors`.
    A result is identified by (monitor, claim), so a batch that is delivered twice is stored once.
    """

    monitor_id = models.BigIntegerField()
    claim = models.BigIntegerField()
    checked_at = models.DateTimeField()
    verdict = models.CharField(max_length=4, choices=[(v.value, v.value) for v in Verdict])
    latency_ms = models.IntegerField(null=True)
    connect_ms = models.IntegerField(null=True)
    ttfb_ms = models.IntegerField(null=True)
    http_status = models.SmallIntegerField(null=True)
    reason_code = models.CharField(max_length=20, null=True, choices=[(r.value, r.value) for r in ReasonCode])
    detail = models.TextField(null=True)
    evidence = models.JSONField(
        null=True, help_text="Of a failure: checks.evidence.Evidence, without its Nones."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["monitor_id", "claim"], name="one_result_per_claim")
        ]
        indexes: ClassVar = [models.Index(fields=["monitor_id", "-checked_at"], name="result_history")]

    def __str__(self) -> str:
        return f"{self.verdict} at {self.checked_at}"
