"""Decide whether the pings of most accounts stopped at once, which is a fault of ours and not of their jobs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

WINDOW = timedelta(minutes=1)
LEAST_HEARTBEATS = 20
LEAST_ACCOUNTS = 5
SILENT_SHARE = 0.8
RETURNED_SHARE = 0.5
RETURNED_ACCOUNTS = 3
HELD_BACK_FOR = timedelta(hours=1)
"""How long deadlines are held back in a day, in all gaps together."""
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Account:
    """The heartbeats of an account that were expected to ping within WINDOW: `silent` did not, `pinged` did."""

    silent: int
    pinged: int
    last_ping_at: datetime

    @property
    def silent_share(self) -> float:
        return self.silent / (self.silent + self.pinged)


def has_collapsed(accounts: Collection[Account]) -> bool:
    """Return whether most pings are missing. Each account has the same weight, however many heartbeats it has."""
    silent = [account for account in accounts if account.silent]
    return (
        len(silent) >= LEAST_ACCOUNTS
        and sum(account.silent for account in silent) >= LEAST_HEARTBEATS
        and _silent_share(accounts) >= SILENT_SHARE
    )


def has_returned(accounts: Collection[Account]) -> bool:
    """Return whether most pings arrive again. One account alone cannot end a gap."""
    pinging = sum(account.pinged > 0 for account in accounts)
    return pinging >= RETURNED_ACCOUNTS and _silent_share(accounts) <= RETURNED_SHARE


def began_at(accounts: Collection[Account], *, now: datetime) -> datetime:
    """Return the last ping of the accounts that have become silent."""
    silent = (account.last_ping_at for account in accounts if account.silent and not account.pinged)
    return max(silent, default=now - WINDOW)


def held_until(past: Collection[tuple[datetime, datetime]], *, now: datetime) -> datetime:
    """Return until when deadlines are held back. `past` are the times that they were held back before."""
    used = sum((max(timedelta(), end - max(start, now - DAY)) for start, end in past), timedelta())
    return now + max(timedelta(), HELD_BACK_FOR - used)


def _silent_share(accounts: Collection[Account]) -> float:
    return fmean(account.silent_share for account in accounts) if accounts else 0.0
