"""An account with a twentieth of the monitors is deleted, with their results."""

from __future__ import annotations

from benchmarks.growing.cost import longest_transaction, memory_mib, timed
from benchmarks.growing.seeds import World

ERASED = 1_000


def measure_removal(world: World) -> dict[str, float]:
    """Delete the account. `delete_longest_s` is its longest transaction; `erase_us` the cost of the results."""
    from accounts.models import User
    from accounts.services import delete_account
    from checks.results.models import DeletedMonitor
    from checks.results.retention import erase_deleted
    from incidents.models import Incident
    from monitors.models import Monitor

    user = User.objects.get(pk=world.largest)
    owned = Monitor.objects.filter(owner=user).count()
    before = memory_mib()
    with longest_transaction() as longest:
        cost, _ = timed(lambda: delete_account(user), owned)
    found = {
        "delete_us": round(cost, 1),
        "delete_longest_s": round(longest[0], 2),
        "delete_mib": round(memory_mib() - before),
    }
    assert not Monitor.objects.filter(owner=world.largest).exists()
    assert not Incident.objects.filter(owner=world.largest).exists()
    assert DeletedMonitor.objects.count() == owned
    some = DeletedMonitor.objects.order_by("pk").values("pk")[:ERASED]
    DeletedMonitor.objects.exclude(pk__in=some).delete()
    cost, erased = timed(erase_deleted, ERASED)
    return found | {"erase_us": round(cost * ERASED / erased, 1)}
