"""Load the specs of claimed monitors for workers, in one statement and without the ORM."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from cryptography.fernet import InvalidToken
from django.db import connection

from checks.spec import CheckSpec
from checks.verdict import own_fault
from core.bulk import array
from core.clock import to_ms, utc_now
from core.crypto import decrypt
from monitors import types
from monitors.configuration import load
from monitors.models import LEASE_MARGIN, locations_of
from monitors.scheduling import note_faults, start_runs
from monitors.types.base import MonitorType
from monitors.types.settings import MonitorConfig

logger = logging.getLogger(__name__)

_UNREADABLE_HEADERS = (
    "its request headers cannot be decrypted; give ENCRYPTION_KEYS the key they were stored with, or enter them again"
)
_INVALID_CONFIG = "its stored settings are no longer valid; save the monitor with valid ones"

START_SEC = LEASE_MARGIN.total_seconds() / 2
"""How long a trigger may wait for other checks of its worker. Then its slot moves."""

# Only monitors that are not paused, and whose claim is still open and the latest. The time is text, as Django reads
# times slowly.
_LOAD = f"""
    SELECT monitor.id, state.claim, monitor.owner_id, monitor.config_version, monitor.public_id, state.slot_at::text,
           state.status = 'down', state.agent_id, monitor.header_values, monitor.config::text,
           {", ".join(f"monitor.{name}" for name in MonitorConfig.checked_columns)}
      FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (monitor_id, claim)
      JOIN monitors_monitorstate AS state USING (monitor_id, claim)
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
     WHERE monitor.enabled AND state.claimed_at IS NOT NULL
"""  # noqa: S608


_LOCATIONS = MonitorConfig.checked_columns.index("locations")


@dataclass(frozen=True, slots=True)
class CheckJob:
    """A check to make: the spec, the numbers under which its result is recorded, and the account it counts for.

    It was due at `slot_at`. `is_down` is the status of the monitor before. After `start_by` of the monotonic clock a
    trigger must no longer be sent: before its result is stored, its lease could expire. `votes`: another location saw a
    failure under this claim.
    """

    monitor_id: int
    claim: int
    owner_id: int
    kind: MonitorType
    config_version: int
    spec: CheckSpec
    slot_at: datetime | None = None
    is_down: bool = False
    start_by: float = math.inf
    votes: bool = False
    agent_id: int | None = None
    locations: Sequence[str] = ()

    @property
    def key(self) -> tuple[int, int]:
        return self.monitor_id, self.claim


def load_jobs(claims: Sequence[tuple[int, int]]) -> list[CheckJob]:
    """Return the jobs of those (monitor, claim) pairs that still need a check. Store why others cannot be made."""
    with connection.cursor() as cursor:
        cursor.execute(_LOAD, [array(monitor_id for monitor_id, _ in claims), array(claim for _, claim in claims)])
        rows = cursor.fetchall()
    jobs = []
    faults = {}
    for (
        monitor_id,
        claim,
        owner_id,
        config_version,
        public_id,
        slot,
        is_down,
        agent_id,
        encrypted,
        stored,
        *common,
    ) in rows:
        try:
            slot_at = None if slot is None else datetime.fromisoformat(slot)
            common[_LOCATIONS] = locations_of(common[_LOCATIONS])
            secrets = json.loads(decrypt(encrypted)) if encrypted else ()
            config = load(common, stored, secrets, whole=False)
            kind = types.get(config.type)
            spec = kind.spec(config, run_id=run_id_of(public_id, slot_at) if kind.fires else "")
        except InvalidToken:
            # Our own fault, not the target's: record no verdict, and continue with the rest of the batch.
            logger.exception("no key of ENCRYPTION_KEYS decrypts the headers of %s", public_id)
            faults[monitor_id, claim] = own_fault(_UNREADABLE_HEADERS).detail
        except (ValueError, KeyError):  # stored before it was refused, or by a newer version; our own fault too
            logger.exception("the stored config of %s is no longer valid", public_id)
            faults[monitor_id, claim] = own_fault(_INVALID_CONFIG).detail
        else:
            where = {"agent_id": agent_id, "locations": config.locations}
            key = (monitor_id, claim, owner_id, kind, config_version)
            jobs.append(CheckJob(*key, spec, slot_at, bool(is_down), **where))
    note_faults(faults)
    return jobs


def startable(jobs: list[CheckJob]) -> list[CheckJob]:
    """Return the jobs without the triggers whose slot was already fired. The others have START_SEC to be sent."""
    runs = {job.key: job for job in jobs if job.kind.fires}
    if not runs:
        return jobs
    started, start_by = start_runs(runs, now=utc_now()), time.monotonic() + START_SEC
    fired = {key: replace(job, start_by=start_by) for key, job in runs.items() if key in started}
    return [fired.get(job.key, job) for job in jobs if not job.kind.fires or job.key in started]


def run_id_of(public_id: str, slot_at: datetime | None) -> str:
    """Return the id that identifies a scheduler's slot to its target. Retries of the slot have the same id."""
    return f"{public_id}-{0 if slot_at is None else to_ms(slot_at)}"


def load_draft(encrypted: str) -> tuple[int, CheckSpec]:
    """Return the owner and the spec of any protocol that `interactive` sent with the name of its type."""
    from checks.probes.engine import PROTOCOLS  # loads libcurl, which only workers need

    name, encoded, owner_id = msgspec.json.decode(decrypt(encrypted), type=tuple[str, msgspec.Raw, int])
    spec_type = {known.__name__: known for known in PROTOCOLS}[name]
    return owner_id, msgspec.json.decode(encoded, type=spec_type)
