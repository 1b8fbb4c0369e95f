"""Monitors: configuration (Monitor), status and schedule (MonitorState), transitions (StatusChange), uptime by day
(DailyUptime) without maintenance (MaintenanceSpan), expiries (DomainRegistration, ExpiryWarning), the records that
dns monitors find (DnsAnswer, DnsChange, DnsAlert), and the signals of heartbeats' jobs (Ping, PingExcess).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from msgspec import to_builtins

from checks.spec import ReasonCode, Verdict
from core import ids
from core.crypto import EncryptedField
from core.db import Derived
from monitors import configuration, cron, types
from monitors.types.base import MonitorType
from monitors.types.settings import DEFAULT_LOCATION, MonitorConfig
from monitors.types.tags import settle_tags, tag_key
from projects.models import Project

READING_PREFIX = "hbt"
STATUS_CHOICES = [(v.value, v.value) for v in Verdict]
REASON_CHOICES = [(r.value, r.value) for r in ReasonCode]


class ListField(models.JSONField):
    """A list of texts. `usual`, which nearly all monitors have, is stored as NULL."""

    usual: ClassVar[Sequence[str]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"null": True, "default": self._usual})

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        del kwargs["default"]
        return name, "django.db.models.JSONField", args, kwargs

    def from_db_value(self, value: Any, *args: Any) -> list[str]:
        return self._usual() if value is None else json.loads(value)

    def get_db_prep_value(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return None if value == self._usual() else super().get_db_prep_value(value, *args, **kwargs)

    def to_text(self, value: Sequence[str]) -> str | None:
        """Return the value for raw SQL."""
        return None if value == self._usual() else json.dumps(value)

    def _usual(self) -> list[str]:
        return list(self.usual)


class SelectsByTag(models.Model):
    """A row that selects monitors by tags, among those that its owner, or if it has one its project, has.

    Evaluated whenever monitors are selected, so a monitor is covered as long as it has one of the tags.
    """

    monitor_tags = ListField()
    monitor_tag_keys = ListField(editable=False, help_text="The tags as `monitors.types.tags.tag_key` returns them.")

    class Meta:
        abstract = True

    def select_tags(self, given: Sequence[str], *, field: str = "monitor_tags") -> None:
        """Set the tags. Raises ValidationFailed for `field`."""
        self.monitor_tags = [*settle_tags(given, field=field)]
        self.monitor_tag_keys = [tag_key(tag) for tag in self.monitor_tags]


class LocationsField(ListField):
    """Public ids of locations."""

    usual = (DEFAULT_LOCATION,)


def locations_of(stored: str | None) -> list[str]:
    """Return the ids that a query read from the column."""
    return [DEFAULT_LOCATION] if stored is None else json.loads(stored)


class DomainRegistration(models.Model):
    """A registrable domain and its expiry, looked up once for all monitors of all tenants that watch it.

    `next_lookup_at` is the next due time, or the end of a worker's lease. `error` is the error of the last lookup;
    a failure keeps the known expiry.
    """

    name = models.CharField(max_length=253, unique=True, help_text="ASCII, in lower case.")
    expires_at = models.DateTimeField(null=True)
    looked_up_at = models.DateTimeField(null=True, help_text="The last successful lookup.")
    next_lookup_at = models.DateTimeField(db_index=True)
    failures = models.IntegerField(default=0, help_text="Lookups that failed since then.")
    error = models.TextField(null=True)

    def __str__(self) -> str:
        return self.name


class Monitor(models.Model):
    """The configuration of a monitor. `owner` is the account whose quota it uses: its project's owner, if any."""

    public_id = models.CharField(max_length=40, unique=True, default=ids.monitor_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="monitors")
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL, related_name="monitors")
    registration = models.ForeignKey(
        DomainRegistration, null=True, on_delete=models.SET_NULL, related_name="monitors", editable=False
    )
    created_at = models.DateTimeField()
    owned_since = models.DateTimeField(null=True, help_text="When it moved to this owner; null if it never moved.")
    enabled = models.BooleanField(default=True)
    muted_until = models.DateTimeField(null=True)
    config_version = models.IntegerField(
        default=1, help_text="Raised by every change of what is probed: older results no longer move the state."
    )

    type = models.CharField(max_length=10)
    name = models.CharField(max_length=200)
    url = models.TextField()
    interval_sec = models.IntegerField()
    slow_ms = models.IntegerField()
    timeout_ms = models.IntegerField()
    check_ssl = models.BooleanField()
    check_domain = models.BooleanField()
    fail_threshold = models.IntegerField()
    recover_threshold = models.IntegerField()
    confirmation_sec = models.IntegerField(null=True)
    locations = LocationsField()
    quorum = models.IntegerField(null=True)
    tags = ListField()
    tag_keys = ListField(editable=False, help_text="The tags as `monitors.types.tags.tag_key` returns them.")
    escalation_policy = models.ForeignKey(
        "oncall.EscalationPolicy",
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,  # a partial one below
        help_text="Without one, its project's applies.",
    )
    config = models.JSONField(help_text="The settings of the type, as its struct in monitors.types says.")
    header_values = EncryptedField(null=True, help_text="In the order of request_headers.")

    class Meta:
        # The dispatcher looks for due heartbeats among all monitors while workers are behind.
        indexes: ClassVar = [
            models.Index(fields=["type"], name="monitor_type"),
            GinIndex(fields=["locations"], name="monitor_locations", condition=models.Q(locations__isnull=False)),
            GinIndex(
                fields=["tag_keys"],
                name="monitor_tags",
                opclasses=["jsonb_path_ops"],
                condition=models.Q(tag_keys__isnull=False),
            ),
            models.Index(Derived("public_id"), name="monitor_reading_id"),
            models.Index(
                fields=["escalation_policy"],
                name="monitor_policy",
                condition=models.Q(escalation_policy__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name  # without the id, which is the secret of a heartbeat

    @property
    def kind(self) -> MonitorType:
        return types.get(self.type)

    @property
    def reading_id(self) -> str:
        """Another id, for those who only read: `monitors.selectors.shown_id` decides. Heartbeats' ids are secrets."""
        is_secret = self.kind.has_secret_id and not self.public_id.startswith(READING_PREFIX)
        return ids.derived_id(READING_PREFIX, self.public_id) if is_secret else self.public_id

    @property
    def options(self) -> dict[str, Any]:
        """Return the settings that types own, as the API shows them."""
        return {**types.option_defaults(), **self.config}

    @property
    def full_config(self) -> MonitorConfig:
        return self._config(self.header_values or ())

    @full_config.setter
    def full_config(self, config: MonitorConfig) -> None:
        for name, value in configuration.config_columns(config).items():
            setattr(self, name, value)

    @property
    def public_config(self) -> MonitorConfig:
        """Return the configuration without secrets."""
        return self._config(())

    first_check_at: datetime | None
    """When its observed time began, if `selectors.get_monitor_with_first_check` loaded it."""

    child_count: int | None
    has_parents = True
    """What `dependencies.summary` loaded. By default it is unknown whether it has parents."""
    shown_parents: list[Monitor]
    parent_keys: list[int] | None = None
    """The parents that a caller sees, and the keys of all of them, if `dependencies.load` loaded them."""

    @property
    def tagged_settings(self) -> Any:
        parents = self.parent_keys
        if parents is None:  # sorted here, because `order_by` would ignore what is prefetched
            rows = sorted(self.dependencies.all(), key=lambda row: (row.position, row.pk))
            parents = [row.parent_id for row in rows]
        place = self.project and self.project.public_id
        return [to_builtins(self.full_config), self.enabled, place, self.escalation_policy_id, parents]

    @property
    def schedule(self) -> cron.Schedule | None:
        """The cron schedule of a heartbeat or scheduler, or None if its interval counts."""
        expression = self.config.get("schedule")
        return None if expression is None else cron.schedule(expression, self.config["timezone"])

    def next_slot(self, slot: datetime, *, now: datetime) -> datetime:
        """Return the first slot after `slot` and `now`. Slots do not drift, and missed ones are skipped."""
        if self.schedule is not None:
            return self.schedule.next_after(max(slot, now))
        interval = timedelta(seconds=self.interval_sec)
        return slot + interval * max(1, (now - slot) // interval + 1)

    @property
    def shortest_interval(self) -> timedelta:
        """The shortest time between two checks or pings."""
        return timedelta(seconds=self.interval_sec) if self.schedule is None else self.schedule.least_gap()

    @property
    def confirmation(self) -> timedelta | None:
        """The least age of an outage that counts. None: only `fail_threshold` counts."""
        if self.confirmation_sec is None or not self.kind.polls:
            return None
        return timedelta(seconds=self.confirmation_sec)

    @property
    def ping_url(self) -> str:
        """The address to which a heartbeat's job sends its signals. Anyone who knows it can."""
        return f"{settings.BASE_URL}/v1/heartbeats/{self.public_id}/ping"

    @property
    def ping_expected_at(self) -> datetime | None:
        """The time at which a heartbeat's next ping is expected, or None before its first ping."""
        last = self.state.last_ping_at
        return None if last is None else self._expected_after(last)

    @property
    def ping_deadline(self) -> datetime | None:
        """The time until which a heartbeat's ping is due, or None before its first ping."""
        last = self.state.last_ping_at
        return None if last is None else self.ping_deadline_after(last)

    def ping_deadline_after(self, moment: datetime) -> datetime:
        """Return the time until which a heartbeat's ping is due if the previous one came at `moment`."""
        return self._expected_after(moment) + timedelta(seconds=self.options["grace_sec"])

    def _expected_after(self, moment: datetime) -> datetime:
        return self.schedule.next_after(moment) if self.schedule else moment + timedelta(seconds=self.interval_sec)

    @property
    def run_patience(self) -> timedelta:
        """How long a run of a heartbeat's job may take."""
        longest = self.options["max_duration_sec"]
        return timedelta(seconds=self.options["grace_sec"] if longest is None else longest)

    @property
    def run_deadline(self) -> datetime | None:
        """The time until which a run that was started must end, or None if none is open."""
        started_at = self.state.run_started_at
        return None if started_at is None else started_at + self.run_patience

    def ping_due_at(self, *, muted: bool = True) -> datetime | None:
        """Return the time after which a heartbeat is down, or None if nothing is due.

        It is the earlier deadline, that of a ping or that of a run, or `armed_at` or the end of a mute if later.
        Without `muted`, mutes do not count.
        """
        deadline = min(filter(None, (self.ping_deadline, self.run_deadline)), default=None)
        times = (deadline, self.state.armed_at, self.muted_until if muted else None)
        return None if deadline is None else max(filter(None, times))

    def _config(self, secrets: Sequence[str]) -> MonitorConfig:
        common = [getattr(self, name) for name in MonitorConfig.columns]
        return configuration.load(common, self.config, secrets)


# The lease of a claim is the check's timeout plus this margin for queueing and recording.
LEASE_MARGIN = timedelta(seconds=30)
NOBODY = -1
"""In place of the agent of a claim: none of the monitor's locations is online."""


class MonitorState(models.Model):
    """The frequently updated row of a monitor: its status, last result and schedule.

    `claim` increases with each claimed check; (monitor, claim) identifies a result. While a claim is open,
    `claimed_at` is set and `next_due_at` is the end of the lease: without a result the monitor is due again then.
    `slot_at` is the due time of the open claim, and `agent_id` the agent of a location that has it: its result alone
    counts. Null: a worker. While paused, `next_due_at` is null.

    A scheduler's slot fires at most once: `started_slot` is committed before the request is sent. A heartbeat is due
    at its deadline, or at `armed_at` if that is later; it is never down before `armed_at`. `runs` are the open runs of
    its job (`monitors.heartbeats.runs`), and `run_started_at` is the start of the one that must end first.
    """

    monitor = models.OneToOneField(
        Monitor, on_delete=models.CASCADE, primary_key=True, related_name="state", db_index=True
    )
    next_due_at = models.DateTimeField(null=True)
    slot_at = models.DateTimeField(null=True)
    claim = models.BigIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True)
    applied_claim = models.BigIntegerField(default=0)
    agent_id = models.BigIntegerField(null=True)
    started_slot = models.DateTimeField(null=True, help_text="Schedulers: the last slot that was fired.")
    fault = models.TextField(null=True, help_text="Why the last check was not made; null once a check ended.")
    fault_since = models.DateTimeField(null=True, help_text="The first slot that was not checked since the last check.")
    armed_at = models.DateTimeField(null=True, help_text="Heartbeats: a later start of the watch.")

    status = models.CharField(max_length=4, null=True, choices=STATUS_CHOICES)
    status_since = models.DateTimeField(null=True)
    fresh = models.BooleanField(default=True)
    failures = models.IntegerField(default=0)
    passes = models.IntegerField(default=0)
    failing_since = models.DateTimeField(null=True)

    last_checked_at = models.DateTimeField(null=True)
    last_latency_ms = models.IntegerField(null=True)
    last_connect_ms = models.IntegerField(null=True)
    last_ttfb_ms = models.IntegerField(null=True)
    last_ping_at = models.DateTimeField(null=True, help_text="Heartbeats: the last success.")
    last_signal_at = models.DateTimeField(null=True, help_text="Heartbeats: the last signal of any kind.")
    runs = models.JSONField(null=True)
    run_started_at = models.DateTimeField(null=True)
    last_duration_ms = models.BigIntegerField(null=True, help_text="Heartbeats: the last run that was started.")
    bodies_since = models.DateTimeField(null=True, help_text="Heartbeats: start of the hour of `body_bytes`.")
    body_bytes = models.IntegerField(null=True, help_text="Heartbeats: the size of the bodies kept in that hour.")
    cert_expires_at = models.DateTimeField(null=True)
    domain_expires_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["next_due_at"], name="state_due", condition=models.Q(next_due_at__isnull=False)),
            models.Index(fields=["fault_since"], name="state_fault", condition=models.Q(fault_since__isnull=False)),
            models.Index(
                fields=["agent_id"],
                name="state_agent",
                condition=models.Q(agent_id__isnull=False, claimed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"state of {self.monitor_id}"


class Dependency(models.Model):
    """A monitor (`child`) whose alerts are held while another one of its owner (`parent`) is down.

    No chain is longer than `monitors.dependencies.LONGEST_CHAIN`, and none is a cycle. `position` is the order of a
    child's parents.
    """

    # Without database constraints, as Verification. The constraint's index starts with the child.
    child = models.ForeignKey(
        Monitor, on_delete=models.CASCADE, related_name="dependencies", db_constraint=False, db_index=False
    )
    parent = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="dependents", db_constraint=False)
    position = models.SmallIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["child", "parent"], name="one_dependency_per_parent"),
        ]

    def __str__(self) -> str:
        return f"{self.child_id} on {self.parent_id}"


class ScheduleSlots(models.Model):
    """Coming times of a monitor's cron schedule, and what they were computed from (`monitors.slots`).

    `times` are the first ones after `since`, without a gap.
    """

    monitor = models.OneToOneField(Monitor, on_delete=models.CASCADE, primary_key=True, related_name="slots")
    schedule = models.CharField(max_length=100)
    timezone = models.CharField(max_length=64)
    tzdata = models.CharField(max_length=20)
    since = models.DateTimeField()
    times = ArrayField(models.DateTimeField())

    def __str__(self) -> str:
        return f"{self.schedule} {self.timezone}"


class StatusChange(models.Model):
    """A transition of a monitor. The row is also the outbox: incidents consume rows without `processed_at`.

    Pausing and resuming keep the status; they are stored because observed time depends on them. So are the start and
    the end of a period in which the monitor was stale, both stored when it ends, and processed (`monitors.stale`).
    """

    class Kind(models.TextChoices):
        STATUS = "status"
        PAUSED = "paused"
        RESUMED = "resumed"
        STALE = "stale"
        CHECKED = "checked"

    monitor = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=7, choices=Kind.choices, default=Kind.STATUS)
    at = models.DateTimeField()
    before = models.CharField(max_length=4, null=True, choices=STATUS_CHOICES)
    after = models.CharField(max_length=4, null=True, choices=STATUS_CHOICES)
    claim = models.BigIntegerField(null=True, help_text="The result that brought it about.")
    failing_since = models.DateTimeField(null=True, help_text="Down: the first failure of the run.")
    reason_code = models.CharField(max_length=20, null=True, choices=REASON_CHOICES)
    detail = models.TextField(null=True)
    processed_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["monitor", "at"], name="change_history"),
            models.Index(fields=["id"], name="change_outbox", condition=models.Q(processed_at=None)),
            # Few of the changes of a monitor that is often slow. See `incidents.holding`.
            models.Index(
                fields=["monitor", "at"],
                name="change_recoveries",
                condition=models.Q(kind="status", before="down", after__in=["up", "slow"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}"


class Verification(models.Model):
    """A failed check about which the other locations of its monitor are asked, under its claim, until `ends_at`.

    `asked` are their public ids. `outcome` is what the check from `location_id` found (null: the default location), and
    `votes` what the others found (`monitors.recording.verifying`).
    """

    # No database constraint: during an upgrade, old code deletes monitors and does not know this table.
    monitor = models.OneToOneField(
        Monitor, on_delete=models.CASCADE, primary_key=True, related_name="verification", db_constraint=False
    )
    claim = models.BigIntegerField()
    config_version = models.IntegerField()
    location_id = models.BigIntegerField(null=True)
    began_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    asked = ArrayField(models.CharField(max_length=40))
    outcome = models.JSONField()
    votes = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"verification of {self.monitor_id} claim {self.claim}"


class LocationFailure(models.Model):
    """A location from which the last checks of a monitor failed while the monitor was not down (`monitors.partial`).

    `location_id` is None for the default location. `failures` are its turns in a row with this `config_version`, the
    first at `since`. 0: its last turn passed. `notified_at`: of the last alert.
    """

    # Without a database constraint, as Verification. The constraint's index starts with the column.
    monitor = models.ForeignKey(
        Monitor, on_delete=models.CASCADE, related_name="location_failures", db_constraint=False, db_index=False
    )
    location_id = models.BigIntegerField(null=True)
    config_version = models.IntegerField()
    failures = models.IntegerField(default=0)
    since = models.DateTimeField()
    reason_code = models.CharField(max_length=20, null=True, choices=REASON_CHOICES)
    detail = models.TextField(null=True)
    notified_at = models.DateTimeField(null=True)

    title: str
    """The name of the location, set by `monitors.partial.with_titles`."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["monitor", "location_id"], nulls_distinct=False, name="one_failure_per_location"
            )
        ]

    def __str__(self) -> str:
        return f"{self.failures} failures of {self.monitor_id}"


class ExpiryWarning(models.Model):
    """A warning that a monitor's certificate or domain expires soon. The row is also the outbox, as in StatusChange.

    One row per threshold and expiry: another `expires_at` means a new certificate or a renewed registration.
    """

    class Subject(models.TextChoices):
        CERTIFICATE = "certificate"
        DOMAIN = "domain"

    monitor = models.ForeignKey(  # the constraint's index starts with it
        Monitor, on_delete=models.CASCADE, related_name="expiry_warnings", db_index=False
    )
    subject = models.CharField(max_length=11, choices=Subject.choices)
    expires_at = models.DateTimeField()
    threshold_days = models.SmallIntegerField()
    at = models.DateTimeField()
    processed_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["monitor", "subject", "expires_at", "threshold_days"], name="expiry_warning_once"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["id"], name="expiry_outbox", condition=models.Q(processed_at=None))]

    def __str__(self) -> str:
        return f"{self.subject} expires at {self.expires_at}"


class DnsAnswer(models.Model):
    """The records that a dns monitor found last, sorted, and when it first found them.

    They are compared with later ones of the same owner and the same `config_version` only.
    """

    monitor = models.OneToOneField(Monitor, on_delete=models.CASCADE, primary_key=True, related_name="dns_answer")
    owner_id = models.BigIntegerField()
    config_version = models.IntegerField()
    since = models.DateTimeField()
    records = models.JSONField()

    def __str__(self) -> str:
        return f"answer of {self.monitor_id}"


class DnsChange(models.Model):
    """A dns monitor found other records than the time before.

    `added` and `removed` list the first few of these records.
    """

    monitor = models.ForeignKey(  # the index starts with it
        Monitor, on_delete=models.CASCADE, related_name="dns_changes", db_index=False
    )
    at = models.DateTimeField()
    added = models.JSONField()
    removed = models.JSONField()
    added_count = models.IntegerField()
    removed_count = models.IntegerField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["monitor", "at", "id"], name="dns_change_history")]

    def __str__(self) -> str:
        return f"{self.added_count} added, {self.removed_count} removed"

    @property
    def more_added(self) -> int:
        """Return how many of the added records are not listed."""
        return self.added_count - len(self.added)

    @property
    def more_removed(self) -> int:
        return self.removed_count - len(self.removed)


class DnsAlert(models.Model):
    """The outbox of changed DNS answers: at `due_at`, an answer that differs from `records` is alerted about.

    These are the records before the first change, or those of the last alert. Recorders lock the row for each change;
    the alerts tick skips locked rows, so it never waits for a recorder.
    """

    monitor = models.OneToOneField(Monitor, on_delete=models.CASCADE, primary_key=True, related_name="dns_alert")
    records = models.JSONField()
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"alert of {self.monitor_id}, due at {self.due_at}"


class Ping(models.Model):
    """A signal of a heartbeat's job. Written once, kept as long as results, and never changed.

    As in CheckResult, the table is partitioned by day of UTC, and `monitor_id` is not a foreign key. The columns are
    ordered by alignment.
    """

    class Kind(models.TextChoices):
        SUCCESS = "success"
        START = "start"
        FAIL = "fail"
        LOG = "log"

    pk = models.CompositePrimaryKey("monitor_id", "at", "id")
    id = models.BigIntegerField()
    monitor_id = models.BigIntegerField()
    at = models.DateTimeField()
    duration_ms = models.BigIntegerField(null=True, help_text="Of the run that it ends.")
    exit_status = models.SmallIntegerField(null=True)
    body_dropped = models.BooleanField(default=False, help_text="The heartbeat had too many bodies in that hour.")
    kind = models.CharField(max_length=7, choices=Kind.choices)
    method = models.CharField(max_length=4)
    rid = models.UUIDField(null=True)
    remote_addr = models.GenericIPAddressField(null=True)
    user_agent = models.TextField()
    body = models.TextField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["monitor_id", "at"], name="ping_history"),
            models.Index(fields=["monitor_id", "rid", "at"], name="ping_runs", condition=models.Q(rid__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}"


class PingExcess(models.Model):
    """A job ran more often than its heartbeat's `max_pings_per_hour`, noted at most once an hour.

    The row is also the outbox, as in StatusChange.
    """

    monitor = models.ForeignKey(  # the index starts with it
        Monitor, on_delete=models.CASCADE, related_name="ping_excesses", db_index=False
    )
    at = models.DateTimeField()
    allowed = models.IntegerField()
    processed_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["monitor", "at"], name="ping_excess_history"),
            models.Index(fields=["id"], name="ping_excess_outbox", condition=models.Q(processed_at=None)),
        ]

    def __str__(self) -> str:
        return f"more than {self.allowed} in the hour before {self.at}"

    @property
    def text(self) -> str:
        pings = "1 ping" if self.allowed == 1 else f"{self.allowed} pings"
        return f"The job ran more often than expected: more than {pings} within an hour."


class SchedulerTick(models.Model):
    """One row: the last run of the scheduler. A long time between two ticks means that Pulsekeeper was stopped."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"last tick at {self.at}"


class SchedulerGap(models.Model):
    """A period in which Pulsekeeper itself was stopped and observed nothing."""

    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.started_at} to {self.ended_at}"


class PingGap(models.Model):
    """A period in which pings could not reach us, by our own evidence. At most one is open (`ended_at` is null).

    Missed deadlines are postponed until it ends, or until `held_until`: `armed_at` of these heartbeats is `held_until`,
    and `slot_at` their deadline. `reason` is the evidence (`monitors.heartbeats.gaps`).
    """

    started_at = models.DateTimeField()
    held_until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, db_index=True)
    reason = models.TextField(null=True)

    def __str__(self) -> str:
        return f"{self.started_at} to {self.ended_at or 'now'}"


class Canary(models.Model):
    """One row: the requests that Pulsekeeper sends to its own BASE_URL, and their results (`heartbeats.canary`).

    `public_id` replaces a heartbeat's id in the path of the ping; `seen_at` is when a web process stored that ping. For
    ping and page: when the last successful one was sent, the first failure since, its error, and the duration of the
    last one. Null before the first success or failure at this `base_url`.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    public_id = models.CharField(max_length=40, unique=True, default=ids.monitor_id)
    base_url = models.TextField()
    asked_at = models.DateTimeField(null=True, help_text="The start of the last attempt.")
    answered_at = models.DateTimeField(null=True, help_text="When the result of the last attempt was stored.")
    seen_at = models.DateTimeField(null=True)
    ping_ok_at = models.DateTimeField(null=True)
    ping_failing_since = models.DateTimeField(null=True)
    ping_error = models.TextField(null=True)
    ping_ms = models.IntegerField(null=True)
    page_ok_at = models.DateTimeField(null=True)
    page_failing_since = models.DateTimeField(null=True)
    page_error = models.TextField(null=True)
    page_ms = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"canary of {self.base_url}"


class BulkEdit(models.Model):
    """A change of many monitors that its user may undo for a while (`monitors.bulk_edits`).

    `channels` are its changes of alert channels: their ids with the keys of the monitors that were `added` and
    `removed`.
    """

    # No database constraint: during an upgrade, old code deletes accounts and does not know this table.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    public_id = models.CharField(max_length=40, unique=True, default=ids.bulk_edit_id, editable=False)
    created_at = models.DateTimeField(db_index=True)
    undone_at = models.DateTimeField(null=True)
    channels = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"edit of {self.user_id} at {self.created_at}"


class BulkEditItem(models.Model):
    """A monitor that an edit changed: its tag after the edit, and the earlier values of the changed settings.

    `before` is null if the monitor got another owner: nothing of it is restored then.
    """

    edit = models.ForeignKey(BulkEdit, on_delete=models.CASCADE, related_name="items")
    monitor = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    etag = models.CharField(max_length=40)
    before = EncryptedField(null=True)

    def __str__(self) -> str:
        return f"{self.monitor_id} in {self.edit_id}"


class DailyUptime(models.Model):
    """Observed time and downtime of a monitor on one UTC day (`monitors.uptime.daily`).

    `status_observed_ms` and `status_down_ms` are those of `uptime_24h`; null on days that an older version wrote.
    """

    pk = models.CompositePrimaryKey("monitor_id", "day")
    monitor = models.ForeignKey(Monitor, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField()
    observed_ms = models.IntegerField()
    down_ms = models.IntegerField()
    outages = models.IntegerField()
    status_observed_ms = models.IntegerField(null=True)
    status_down_ms = models.IntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["day"], name="uptime_day")]

    def __str__(self) -> str:
        return f"{self.day}: {self.down_ms} of {self.observed_ms} ms down"


class MaintenanceSpan(models.Model):
    """A maintenance period of one monitor, excluded from the daily uptime of status pages and the API.

    `ended_at` may be in the future. `incidents.windows` writes the rows. Editing or deleting a window later does not
    change them.
    """

    # No database constraint: during an upgrade, old code deletes monitors and does not know this table.
    monitor = models.ForeignKey(
        Monitor, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["monitor", "started_at"], name="maintenance_span_once")
        ]

    def __str__(self) -> str:
        return f"{self.started_at} to {self.ended_at}"


class UptimeProgress(models.Model):
    """One row: days before `written_until` are in DailyUptime."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    written_until = models.DateField(null=True)

    def __str__(self) -> str:
        return f"written until {self.written_until}"
