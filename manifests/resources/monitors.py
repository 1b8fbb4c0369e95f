"""Monitors in files. They are made and changed many at once, by `monitors.bulk`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from accounts.models import User
from manifests.account import Account, pace_of
from manifests.entries import Entry, Place, Present, Shape
from manifests.parsing import Item
from manifests.resources.base import Kind, Names, Writing, WrongError, kept, without
from manifests.secrets import Secret
from monitors import configuration
from monitors.configuration import DEFAULT_METHODS, Header, MonitorConfig, MonitorType
from monitors.models import Monitor
from monitors.services import permits_host
from projects import access

_PLAIN = tuple(
    name for name in configuration.FIELDS if name not in {"type", "name", "content_rules", "request_headers"}
)
# In the order of a file that is written. An interval is always said: its default is the plan's.
_DEFAULTS: dict[str, Any] = {
    "enabled": True,
    "type": MonitorType.HTTP.value,
    "url": "",
    "method": "HEAD",
    "interval_sec": None,
    **{
        name: MonitorConfig.__dataclass_fields__[name].default
        for name in (
            "grace_sec",
            "slow_ms",
            "timeout_ms",
            "expect_status",
            "follow_redirects",
            "check_ssl",
            "check_domain",
            "fail_threshold",
            "recover_threshold",
            "request_body",
        )
    },
    "content_rules": [],
    "request_headers": [],
}


class Monitors(Kind):
    section, noun = "monitors", "monitor"

    def __init__(self, user: User) -> None:
        """What is in no project is the user's own."""
        self.user = user

    def read(self, account: Account, *, now: datetime) -> list[Present]:
        rows = access.accessible(account.caller, Monitor.objects.all()).order_by("pk")
        return [self._present(row, account) for row in rows if account.knows(row.project_id)]

    def _present(self, row: Monitor, account: Account) -> Present:
        place = account.place(row.project_id)
        config = row.full_config
        shape = shape_of(config, place=place, enabled=row.enabled)
        return Present("monitors", row.public_id, row.pk, row.name, place, shape, config)

    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        pace = entry.place.pace if entry.place else pace_of(self.user)
        given = {**item.given, "request_headers": self._headers(item, entry)}
        if not given["request_headers"]:
            del given["request_headers"]
        config = configuration.complete(
            given, floor_sec=pace.floor_sec, default_sec=pace.default_sec, permits_host=permits_host
        )
        if entry.present is not None:
            configuration.check_type(MonitorType(entry.present.shape["type"]), config.type)
        entry.config = config
        return shape_of(config, place=entry.place, enabled=item.given.get("enabled", True))

    def _headers(self, item: Item, entry: Entry) -> list[dict[str, Any]]:
        stored = self._stored_headers(item, entry)
        headers = []
        for index, header in enumerate(item.given.get("request_headers", [])):
            path = (*item.path, "request_headers", index, "value")
            if path in item.keeps:
                there = stored.get(header["name"].lower())
                if there is not None and there.dropped:
                    variable = item.keeps[path].variable
                    said = f"the stored value was for another server or owner; set {variable} in the environment."
                    raise WrongError(path, said)
                header = {**header, "value": kept(item.keeps[path], there and there.value, path)}
            headers.append(header)
        return headers

    def _owner(self, place: Place | None) -> int:
        return self.user.pk if place is None else place.owner

    def _stored_headers(self, item: Item, entry: Entry) -> dict[str, Header]:
        """Return the stored headers by their names in lower case, as the rules of a PATCH leave them."""
        if entry.present is None:
            return {}
        stored = configuration.keepable(entry.present.config, item.given)
        if self._owner(entry.place) != self._owner(entry.present.place):
            stored = configuration.without_secrets(stored)
        return {header.name.lower(): header for header in stored.request_headers}

    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        shape = present.shape
        method = DEFAULT_METHODS.get(MonitorType(shape["type"]), "HEAD")
        if shape["content_rules"] and method == "HEAD":
            method = "GET"
        found = {
            "name": present.name,
            "project": writing.place(present.place),
            **without(shape, {**_DEFAULTS, "method": method}),
        }
        if "request_headers" in found:
            found["request_headers"] = [
                {
                    **{name: value for name, value in header.items() if name != "value"},
                    "value": writing.variables.keep("monitor", present.name, header["name"]),
                }
                for header in shape["request_headers"]
            ]
        return {name: value for name, value in found.items() if name != "project" or value is not None}


def shape_of(config: MonitorConfig, *, place: Place | None, enabled: bool) -> Shape:
    """Of a settled config."""
    return {
        "name": config.name,
        "project": place,
        "enabled": enabled,
        "type": config.type.value,
        **{name: getattr(config, name) for name in _PLAIN},
        "content_rules": [
            {name: str(value) for name, value in asdict(rule).items() if value is not None}
            for rule in config.content_rules
        ],
        "request_headers": [
            {
                "name": header.name,
                **({"type": header.type} if header.type else {}),
                "value": Secret(header.value),
            }
            for header in config.request_headers
        ],
    }
