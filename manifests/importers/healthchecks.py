"""What healthchecks answers to `GET /api/v3/checks/`, or v1 and v2: `{"checks": […]}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manifests.importers.cron import NoSuchScheduleError, longest_gap
from manifests.importers.mapped import Making, Mapped, Refused, UnreadableFileError, items_of, load_json

_ELSEWHERE = {
    "tags": "there are no tags here",
    "desc": "there is no description here",
    "channels": "alert channels are not imported",
    "methods": "every method pings here",
    "manual_resume": "a paused heartbeat is resumed by hand here in any case",
    "start_kw": "e-mails do not ping here",
    "success_kw": "e-mails do not ping here",
    "failure_kw": "e-mails do not ping here",
    "filter_subject": "e-mails do not ping here",
    "filter_body": "e-mails do not ping here",
    "filter_http_body": "the body of a ping is not read here",
    "filter_default_fail": "the body of a ping is not read here",
}


def read(text: str) -> list[Mapped]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if "checks" not in found:
            raise UnreadableFileError("the file has no checks")
        found = found["checks"]
    return [_one(item) for item in items_of(found, what="checks")]


def _one(item: Mapping[str, Any]) -> Mapped:
    making = Making(item, name=item.get("name") or item.get("slug"))
    try:
        _map(making)
    except Refused as refusal:
        return making.left_out(refusal)
    return making.mapped()


def _map(making: Making) -> None:
    making.given["type"] = "heartbeat"
    schedule = making.text("schedule")
    if schedule:
        _schedule(making, schedule)
    elif making.number("timeout") is None:
        raise Refused("timeout", "is missing, as is a schedule")
    else:
        making.seconds("timeout", to="interval_sec")
    making.seconds("grace", to="grace_sec")
    making.enabled = making.text("status") != "paused"
    making.note("ping_url", "the address to ping is another one")
    making.note_if_there(_ELSEWHERE)


def _schedule(making: Making, schedule: str) -> None:
    try:
        gap = longest_gap(schedule)
    except NoSuchScheduleError as error:
        raise Refused("schedule", str(error)) from None
    making.given["interval_sec"] = gap
    told = f"a job is expected every {gap} s, the longest gap in this schedule, not at its times"
    if (making.text("tz") or "UTC") != "UTC":
        told += "; where clocks are changed, a gap may be an hour longer"
    making.note("schedule", told)
