"""What a worker is to check: specs of claimed monitors, read in one statement and without the ORM."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography.fernet import InvalidToken
from django.db import connection

from checks.probes.http.spec import ContentRule, HttpSpec, RuleType
from core.clock import to_ms
from core.crypto import decrypt
from monitors.configuration import RUN_ID_HEADER, MonitorType

logger = logging.getLogger(__name__)

# Not paused, the claim still open and not handed out anew.
_LOAD = """
    SELECT monitor.id, state.claim, monitor.type, monitor.config_version, monitor.public_id, state.slot_at,
           monitor.url, monitor.method, monitor.timeout_ms, monitor.slow_ms, monitor.expect_status,
           monitor.follow_redirects, monitor.check_ssl, monitor.request_body,
           nullif(monitor.content_rules, '[]'), nullif(monitor.request_headers, '[]'),
           monitor.header_values
      FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (monitor_id, claim)
      JOIN monitors_monitorstate AS state USING (monitor_id, claim)
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
     WHERE monitor.enabled AND state.claimed_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class CheckJob:
    """One check to be made: the spec, and the numbers that its result will be recorded under."""

    monitor_id: int
    claim: int
    type: str
    config_version: int
    spec: HttpSpec


def load_jobs(claims: Sequence[tuple[int, int]]) -> list[CheckJob]:
    """What is still to be checked of (monitor, claim)."""
    with connection.cursor() as cursor:
        cursor.execute(_LOAD, [[monitor_id for monitor_id, _ in claims], [claim for _, claim in claims]])
        rows = cursor.fetchall()
    jobs = []
    for monitor_id, claim, kind, config_version, public_id, slot_at, *settings in rows:
        try:
            spec = _spec(kind, run_id_of(public_id, slot_at), *settings)
        except InvalidToken:
            # Our own fault, not the target's: no verdict, and the others of the batch go on.
            logger.exception("no key of ENCRYPTION_KEYS decrypts the headers of %s", public_id)
            continue
        jobs.append(CheckJob(monitor_id, claim, kind, config_version, spec))
    return jobs


def run_id_of(public_id: str, slot_at: datetime | None) -> str:
    """Names a slot of a scheduler to its target, the same however often the slot is tried."""
    return f"{public_id}-{0 if slot_at is None else to_ms(slot_at)}"


def _spec(
    kind: str,
    run_id: str,
    url: str,
    method: str,
    timeout_ms: int,
    slow_ms: int,
    expect_status: int | None,
    follow_redirects: bool,  # noqa: FBT001
    check_ssl: bool,  # noqa: FBT001
    body: str | None,
    rules: str | None,
    names: str | None,
    encrypted_values: bytes,
) -> HttpSpec:
    """The same as `models.spec_of` makes of a draft; a test compares the two."""
    headers: list[tuple[str, str]] = []
    if names is not None:
        values = json.loads(decrypt(encrypted_values))
        headers = [(name["name"], value) for name, value in zip(json.loads(names), values, strict=True)]
    triggers = kind == MonitorType.SCHEDULER
    if triggers:
        headers.append((RUN_ID_HEADER, run_id))
    return HttpSpec(
        url=url,
        method=method,
        headers=tuple(headers),
        only_2xx=triggers,
        body=body,
        timeout_ms=timeout_ms,
        slow_ms=slow_ms,
        expect_status=expect_status,
        follow_redirects=follow_redirects,
        check_ssl=check_ssl,
        rules=() if rules is None else tuple(_rule(**rule) for rule in json.loads(rules)),
    )


def _rule(type: str, value: str = "", path: str = "", equals: str | None = None) -> ContentRule:  # noqa: A002
    return ContentRule(RuleType(type), value, path, equals)
