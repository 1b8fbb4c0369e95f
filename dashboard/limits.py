"""Apply the API's throttles to pages: requests to both count together."""

from __future__ import annotations

from core.errors import TooManyRequests
from core.throttles import seconds_to_wait
from dashboard.pages import PageRequest


def count(request: PageRequest, scope: str) -> None:
    """Count a request in `scope` of `settings.THROTTLES`. Raises TooManyRequests above the rate."""
    if seconds_to_wait(scope, request.caller.account) is not None:
        raise TooManyRequests
