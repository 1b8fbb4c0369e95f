"""Domain registrations: which monitors use them, which lookup is due, and the result of a lookup.

Locks are taken in one order: states, then registrations. No transaction that has locked a registration waits for a
state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Subquery

from core.bulk import update_rows
from monitors.models import DomainRegistration, Monitor, MonitorState

LEASE = timedelta(minutes=5)  # many times the deadline of a lookup
INTERVAL = timedelta(days=1)
FIRST_RETRY = timedelta(hours=1)
UNSUPPORTED_RETRY = timedelta(days=7)  # a registry is seldom added
JITTER = 0.1


def lock_registrations(domains: Iterable[str], *, now: datetime) -> dict[str, DomainRegistration]:
    """Lock the registrations of these domains until the transaction ends, creating missing ones. Return them by name.

    Without the lock, a monitor that is being added could miss an expiry recorded at the same time, or the row could
    be deleted as unused. They are locked in name order, to prevent deadlocks.
    """
    missing = sorted(set(domains))
    locked: dict[str, DomainRegistration] = {}
    while missing:
        found = DomainRegistration.objects.select_for_update(no_key=True).filter(name__in=missing)
        locked |= {registration.name: registration for registration in found.order_by("name")}
        missing = [name for name in missing if name not in locked]
        new = [DomainRegistration(name=name, next_lookup_at=now) for name in missing]
        DomainRegistration.objects.bulk_create(new, ignore_conflicts=True)
    return locked


def claim_lookup(now: datetime) -> DomainRegistration | None:
    """Claim the lookup of the most overdue registration of an active monitor, if any. Committed when this returns.

    Only one at a time: a registry that asks for a pause postpones the lookups that would come next.
    """
    is_active = Exists(Monitor.objects.filter(registration=OuterRef("pk"), enabled=True))
    due = DomainRegistration.objects.filter(is_active, next_lookup_at__lte=now).order_by("next_lookup_at", "pk")
    with transaction.atomic():
        registration = due.select_for_update(skip_locked=True).first()
        if registration is not None:
            registration.next_lookup_at = now + LEASE
            registration.save(update_fields=["next_lookup_at"])
    return registration


def record_expiry(claimed: DomainRegistration, expires_at: datetime, *, now: datetime) -> None:
    """Store the expiry that the registry returned, and copy it to every monitor of the domain.

    Two transactions, because of the lock order. The second one ends the lease, so a crash between them repeats the
    lookup.
    """
    registration = DomainRegistration.objects.filter(pk=claimed.pk)
    registration.update(expires_at=expires_at, looked_up_at=now, failures=0, error=None)
    with transaction.atomic():
        # Nearly every lookup returns the known expiry: then no row is locked or written.
        outdated = MonitorState.objects.filter(monitor__registration=claimed).exclude(domain_expires_at=expires_at)
        ids = list(outdated.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))
        # A separate query after the lock: a PATCH that had the lock may have changed a monitor's domain.
        joined = Monitor.objects.filter(pk__in=ids, registration=claimed).values("pk")
        MonitorState.objects.filter(pk__in=joined).update(domain_expires_at=Subquery(registration.values("expires_at")))
        registration.update(next_lookup_at=now + jittered(INTERVAL, claimed.pk))


def record_failure(
    claimed: DomainRegistration, error: str, *, now: datetime, retry_after: timedelta | None = None
) -> None:
    """Store the error and keep the known expiry. Retry after that time, or by default after `retry_delay`."""
    with transaction.atomic():
        registration = DomainRegistration.objects.select_for_update(no_key=True).filter(pk=claimed.pk).first()
        if registration is None:
            return
        registration.failures += 1
        registration.error = error
        delay = retry_after or retry_delay(registration.failures)
        registration.next_lookup_at = now + jittered(delay, registration.pk)
        registration.save(update_fields=["failures", "error", "next_lookup_at"])


def put_off(top_level: str, delay: timedelta, *, error: str, now: datetime) -> None:
    """Postpone all lookups at a registry that are due within `delay` until after it.

    They are spread over another tenth of the delay, so that they are not all sent at once.
    """
    end = now + delay
    due = DomainRegistration.objects.filter(next_lookup_at__lte=end, name__endswith=f".{top_level}")
    with transaction.atomic():
        keys = due.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True)
        update_rows(
            "monitors_domainregistration",
            {"id": "bigint", "next_lookup_at": "timestamptz", "error": "text"},
            [(key, end + delay * JITTER * _spread(key), error) for key in keys],
            key="id",
        )


def remove_unused(now: datetime) -> None:
    """Delete due registrations that no monitor uses. Until it is due, a known registration can be reused.

    Checked again after locking: a monitor may have been added to one of them before the lock.
    """
    used = Exists(Monitor.objects.filter(registration=OuterRef("pk")))
    with transaction.atomic():
        due = DomainRegistration.objects.filter(~used, next_lookup_at__lte=now)
        locked = due.select_for_update(skip_locked=True).values_list("pk", flat=True)
        DomainRegistration.objects.filter(~used, pk__in=list(locked)).delete()


def retry_delay(failures: int) -> timedelta:
    """Return the delay after that many consecutive failures, 1 or more: FIRST_RETRY, doubling up to INTERVAL."""
    return min(FIRST_RETRY * (1 << min(failures - 1, 10)), INTERVAL)


def jittered(delay: timedelta, number: int) -> timedelta:
    """Return the delay, up to JITTER shorter or longer and constant for a row."""
    return delay * (1 + JITTER * (2 * _spread(number) - 1))


def _spread(number: int) -> float:
    """Return a value from 0 to 1 that is constant for a row. Those of neighbouring rows are far apart."""
    return number * 7919 % 1000 / 1000  # 7919 is prime: 1,000 consecutive rows get 1,000 different values
