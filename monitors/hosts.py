"""What a monitor's URL says about whose certificate and whose registration it depends on. Pure."""

from __future__ import annotations

from checks.domains import registrable_domain
from checks.probes.request import BadRequestError, Target, parse_target
from monitors.drafts import Draft, MonitorType

Origin = tuple[str, str, int]


def origin_of(draft: Draft) -> Origin | None:
    """Scheme, host and port that are probed; None for what probes nothing."""
    target = _target(draft)
    return None if target is None else target.origin


def watched_domain(draft: Draft) -> str | None:
    """The registrable domain whose expiry is to be watched, if it is and there is one."""
    target = _target(draft) if draft.check_domain else None
    return None if target is None or target.host is None else registrable_domain(target.host)


def _target(draft: Draft) -> Target | None:
    if draft.type is MonitorType.HEARTBEAT:
        return None
    try:
        return parse_target(draft.url)
    except BadRequestError:  # stored under older rules than today's
        return None
