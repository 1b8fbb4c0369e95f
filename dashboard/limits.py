"""The throttles of the API for what pages do: one person has one number of tries, by whichever door."""

from __future__ import annotations

from core.errors import TooManyRequests
from core.throttles import seconds_to_wait
from dashboard.pages import PageRequest


def count(request: PageRequest, scope: str) -> None:
    """One more request in `scope` of `settings.THROTTLES`; raises TooManyRequests past the rate."""
    if seconds_to_wait(scope, request.caller.account) is not None:
        raise TooManyRequests
