"""Domain registrations: which monitors use them, which lookup is due, and the result of a lookup.

Locks are taken in one order: states, then registrations. Nobody waits for a state while holding a registration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Subquery

from monitors.models import DomainRegistration, Monitor, MonitorState

LEASE = timedelta(minutes=5)  # many times the deadline of a lookup
INTERVAL = timedelta(days=1)
FIRST_RETRY = timedelta(hours=1)
UNSUPPORTED_RETRY = timedelta(days=7)
JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Lookup:
    """The right to look one registration up, until its lease ends."""

    registration_id: int
    domain: str


def lock_registration(domain: str, *, now: datetime) -> DomainRegistration:
    """The registration of this domain, a new one if need be, held until the transaction ends.

    Without the lock, an expiry that is recorded at this moment would pass by the monitor that is just being
    joined to it, or the row be removed as one that nobody uses.
    """
    held = DomainRegistration.objects.select_for_update(no_key=True).filter(name=domain)
    while (registration := held.first()) is None:
        new = DomainRegistration(name=domain, next_lookup_at=now)
        DomainRegistration.objects.bulk_create([new], ignore_conflicts=True)
    return registration


def lock_registrations(domains: Iterable[str], *, now: datetime) -> dict[str, DomainRegistration]:
    """The same of many, by their names, held in the order of these: of two who hold some of the same, one waits."""
    missing = sorted(set(domains))
    held: dict[str, DomainRegistration] = {}
    while missing:
        found = DomainRegistration.objects.select_for_update(no_key=True).filter(name__in=missing)
        held |= {registration.name: registration for registration in found.order_by("name")}
        missing = [name for name in missing if name not in held]
        DomainRegistration.objects.bulk_create(
            [DomainRegistration(name=name, next_lookup_at=now) for name in missing], ignore_conflicts=True
        )
    return held


# Chosen in a WITH, which is run once. A subquery may be run for each row that it is joined to, and then skips the row
# that this statement has just updated, and chooses another, which nobody would look up before the end of its lease.
_CLAIM = """
    WITH due AS (
        SELECT id
          FROM monitors_domainregistration AS candidate
         WHERE next_lookup_at <= %(now)s
           AND EXISTS (SELECT FROM monitors_monitor WHERE registration_id = candidate.id AND enabled)
         ORDER BY next_lookup_at, id
         LIMIT 1
           FOR UPDATE SKIP LOCKED
    )
    UPDATE monitors_domainregistration AS registration
       SET next_lookup_at = %(lease_end)s
      FROM due
     WHERE registration.id = due.id
    RETURNING registration.id, registration.name
"""


def claim_lookup(now: datetime) -> Lookup | None:
    """Claim the longest due of those that a monitor watches which is not paused; committed when this returns.

    One at a time: a registry that asks for rest puts off what would have come next.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "lease_end": now + LEASE})
        row = cursor.fetchone()
    return None if row is None else Lookup(*row)


def record_expiry(lookup: Lookup, expires_at: datetime, *, now: datetime) -> None:
    """Store the expiry that the registry returned, and show it on every monitor of the domain.

    Two transactions, because of the order of locks. The lease ends with the second: were we to die between
    them, the lookup is repeated.
    """
    registration = DomainRegistration.objects.filter(pk=lookup.registration_id)
    registration.update(expires_at=expires_at, looked_up_at=now, failures=0, error=None)
    with transaction.atomic():
        # Nearly every lookup finds what is known already: then no row is locked, and none is written.
        outdated = MonitorState.objects.filter(monitor__registration=lookup.registration_id).exclude(
            domain_expires_at=expires_at
        )
        ids = list(outdated.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))
        # A query of its own, after the lock: a PATCH that we waited for may have moved a monitor elsewhere.
        joined = Monitor.objects.filter(pk__in=ids, registration=lookup.registration_id).values("pk")
        MonitorState.objects.filter(pk__in=joined).update(
            domain_expires_at=Subquery(registration.values("expires_at"))
        )
        registration.update(next_lookup_at=now + jittered(INTERVAL, lookup.registration_id))


def record_failure(lookup: Lookup, error: str, *, now: datetime) -> None:
    """The known expiry stays. Asked again after FIRST_RETRY, doubling to INTERVAL."""
    with transaction.atomic():
        registration = (
            DomainRegistration.objects.select_for_update(no_key=True)
            .filter(pk=lookup.registration_id)
            .first()
        )
        if registration is None:
            return
        registration.failures += 1
        registration.error = error
        registration.next_lookup_at = now + jittered(retry_delay(registration.failures), registration.pk)
        registration.save(update_fields=["failures", "error", "next_lookup_at"])


def record_unsupported(lookup: Lookup, error: str, *, now: datetime) -> None:
    """Nobody can be asked: a registry may come to be, but not every day."""
    DomainRegistration.objects.filter(pk=lookup.registration_id).update(
        failures=F("failures") + 1,
        error=error,
        next_lookup_at=now + jittered(UNSUPPORTED_RETRY, lookup.registration_id),
    )


def put_off(top_level: str, delay: timedelta, *, error: str, now: datetime) -> None:
    """Leave a registry alone for `delay`: whatever of its domains would be looked up before then comes after.

    Spread over the tenth of the delay that follows, or they would all be asked at once again.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE monitors_domainregistration AS registration
               SET next_lookup_at = %(end)s
                       + make_interval(secs => %(spread_sec)s * mod(registration.id * 7919, 1000) / 1000),
                   error = %(error)s
              FROM (
                    SELECT id
                      FROM monitors_domainregistration
                     WHERE next_lookup_at <= %(end)s AND right(name, length(%(suffix)s)) = %(suffix)s
                     ORDER BY id
                       FOR NO KEY UPDATE
                   ) AS affected
             WHERE registration.id = affected.id
            """,
            {
                "end": now + delay,
                "spread_sec": delay.total_seconds() * JITTER,
                "suffix": f".{top_level}",
                "error": error,
            },
        )


def remove_unused(now: datetime) -> None:
    """Drop due registrations that no monitor watches any more. Until it is due what is known serves again.

    Looked at once more after the lock: a monitor may have been joined to one of them meanwhile.
    """
    used = Exists(Monitor.objects.filter(registration=OuterRef("pk")))
    with transaction.atomic():
        due = DomainRegistration.objects.filter(~used, next_lookup_at__lte=now)
        locked = due.select_for_update(skip_locked=True).values_list("pk", flat=True)
        DomainRegistration.objects.filter(~used, pk__in=list(locked)).delete()


def retry_delay(failures: int) -> timedelta:
    """After that many failures in a row, 1 or more."""
    return min(FIRST_RETRY * (1 << min(failures - 1, 10)), INTERVAL)


def jittered(delay: timedelta, number: int) -> timedelta:
    """Up to JITTER shorter or longer, the same for the same row: neighbours are spread far apart."""
    spread = number * 7919 % 1000 / 1000  # 7919 is prime: a thousand rows in a row take all of the thousand
    return delay * (1 + JITTER * (2 * spread - 1))
