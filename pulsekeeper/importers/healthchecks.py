"""Checks of healthchecks, as returned by `GET /api/v3/checks/` (also v1 and v2): `{"checks": […]}`."""

from __future__ import annotations

from collections.abc import Mapping

from monitors import cron
from pulsekeeper.importers.channels import with_channels
from pulsekeeper.importers.mapped import MappedFile, MonitorBuilder, UnreadableFileError, load_json, map_items


def read(text: str) -> MappedFile:
    found = load_json(text)
    if isinstance(found, Mapping):
        if "checks" not in found:
            raise UnreadableFileError("the file has no checks")
        found = found["checks"]
    monitors = map_items(found, _map, what="checks", name=lambda item: item.get("name") or item.get("slug"))
    return with_channels(monitors, field="channels")


def _map(builder: MonitorBuilder) -> None:
    builder.body["type"] = "heartbeat"
    if expression := builder.text("schedule"):
        _schedule(builder, expression)
    elif builder.number("timeout") is None:
        builder.reject("timeout", "is missing, and there is no schedule")
    else:
        builder.copy_number("timeout", "interval_sec")
    builder.copy_number("grace", "grace_sec")
    builder.note("ping_url", "the ping URL changes")
    builder.enabled = builder.text("status") != "paused"
    builder.set_channels(key for key in builder.text("channels").split(",") if key)
    builder.set_tags("tags", builder.text("tags").split())
    builder.note_ignored(_IGNORED)


def _schedule(builder: MonitorBuilder, expression: str) -> None:
    try:
        found = cron.Schedule(expression, builder.text("tz") or "UTC")
    except cron.BadScheduleError as error:
        if error.setting == "timezone":
            builder.reject("tz", str(error))
        # The source does not say whether the expression is one of cron or of systemd.
        builder.reject("schedule", f"{error} OnCalendar is not supported.")
    builder.body |= {"schedule": found.expression, "timezone": found.timezone}


_IGNORED = {
    "desc": "descriptions are not supported",
    "methods": "every method counts as a ping",
    "manual_resume": "paused heartbeats are always resumed manually",
    "start_kw": "pings by e-mail are not supported",
    "success_kw": "pings by e-mail are not supported",
    "failure_kw": "pings by e-mail are not supported",
    "filter_subject": "pings by e-mail are not supported",
    "filter_body": "pings by e-mail are not supported",
    "filter_http_body": "the body of a ping does not decide; signal failures with /ping/fail",
    "filter_default_fail": "the body of a ping does not decide; signal failures with /ping/fail",
}
