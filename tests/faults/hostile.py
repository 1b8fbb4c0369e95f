"""Hostile tenants during a run: accounts that play attacks of `benchmarks.fairness`.

Import it after Django is set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from alerts.models import AlertChannel, Delivery, DeliveryItem
from benchmarks.fairness.rows import ROWS
from benchmarks.fairness.stage import answers
from benchmarks.fairness.tenants import Hostile, Process, add_monitors, equip, make_hostile, retry
from incidents.models import Incident
from monitors.models import Monitor


@contextmanager
def hostile_tenants(names: Sequence[str], *, port: int) -> Iterator[dict[str, int]]:
    """Play these rows with one account each. At the end delete everything that the accounts own.

    The dict is filled at the end with the number of responses by status. Raises SystemExit if an attack failed.
    """
    counts: dict[str, int] = {}
    if not names:
        yield counts
        return
    rows = [ROWS[name] for name in names]
    accounts = make_hostile(len(rows))
    with ExitStack() as stack:
        targets = stack.enter_context(Process("benchmarks.fairness.targets", "hostile", nice=True))
        shared = Hostile("", accounts[0].user)
        add_monitors([shared], [{"type": "heartbeat"}])
        facts = {"ports": targets.read(), "quiet": {}, "shared": {}, "heartbeat": shared.own["monitors"][0]}
        attackers = []
        for row, account in zip(rows, accounts, strict=True):
            equip(row, [account], facts)
            attackers.append(stack.enter_context(Process("benchmarks.fairness.attacker", nice=True)))
            given = [{"address": account.address, "own": account.own}]
            front = {"port": port, "name": ""}
            attackers[-1].write({"row": row.name, "front": front, "attackers": given, "facts": facts})
        for attacker in attackers:
            attacker.read()  # it has begun
        yield counts
        counts |= answers(attackers)
    users = [account.user for account in accounts]
    retry(Monitor.objects.filter(owner__in=users).delete)
    retry(Incident.objects.filter(monitor=None).delete)
    retry(DeliveryItem.objects.filter(channel__owner__in=users).delete)
    retry(Delivery.objects.filter(channel__owner__in=users).delete)
    retry(AlertChannel.objects.filter(owner__in=users).delete)
