"""Alert channels in files. Where they send to is a secret, as over the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from alerts import channels, selectors
from alerts.defaults import TOPICS
from alerts.models import AlertChannel, Topic
from declared.account import Account
from declared.kinds import scopes
from declared.kinds.base import Making, Names, Single, Writing, WrongError, secret_of, without
from declared.kinds.scopes import Chosen, OfProject, Scope
from declared.parsing import Item
from declared.secrets import Secret
from declared.things import Entry, Present, Shape

# What each kind keeps: its name in a file, and in the stored configuration.
_CONFIG = {
    "email": {"address": "address"},
    "webhook": {"url": "url", "secret": "secret"},
    "apprise": {"apprise_url": "url"},
}
_ADDRESSES = ("address", "url", "secret", "apprise_url")
_DEFAULTS = {
    "enabled": True,
    "topics": [topic.value for topic in TOPICS],
    "monitors": "all",
    "remind_every_hours": 24,
}


class Channels(Single):
    section, noun = "channels", "alert channel"
    fields: ClassVar = {
        "project_id": "project",
        "monitor_ids": "monitors",
        "scope_project_id": "monitors",
    }

    def read(self, account: Account, *, now: datetime) -> list[Present]:
        handles = account.handles()
        found = []
        for row in selectors.list_channels(account.caller).order_by("pk"):
            if not account.knows(row.project_id):
                continue
            place = account.place(row.project_id)
            scope: Scope = "all"
            if row.scope == AlertChannel.Scope.PROJECT:
                scope = OfProject(account.place(row.scope_project_id))
            elif row.scope == AlertChannel.Scope.CHOSEN:
                there = [one for one in row.monitors.all() if row.project_id in (None, one.project_id)]
                scope = Chosen(frozenset(handles[one.pk] for one in there if one.pk in handles))
            config = row.config
            shape = {
                "name": row.name,
                "project": place,
                "kind": row.kind,
                "enabled": row.enabled,
                "topics": list(row.topics),
                "monitors": scope,
                "remind_every_hours": row.remind_every_hours,
                **dict.fromkeys(_ADDRESSES),
                **{name: Secret(config[stored]) for name, stored in _CONFIG[row.kind].items()},
            }
            found.append(Present(self.section, row.public_id, row.pk, row.name, place, shape))
        return found

    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        given, there = item.given, entry.present.shape if entry.present else {}
        needed = next(iter(_CONFIG[given["kind"]]))
        if needed not in given and (*item.path, needed) not in item.keeps:
            said = f"{needed} is required for a channel of kind {given['kind']}; ${{keep:PK_NAME}} is what is stored."
            raise WrongError(item.path, said)
        shape = {
            "name": entry.name,
            "project": entry.place,
            "kind": given["kind"],
            "enabled": given.get("enabled", True),
            "topics": [topic.value for topic in Topic if topic in given.get("topics", _DEFAULTS["topics"])],
            "monitors": scopes.wanted(
                given.get("monitors", "all"), entry.place, (*item.path, "monitors"), names
            ),
            "remind_every_hours": given.get("remind_every_hours", _DEFAULTS["remind_every_hours"]),
            **{name: secret_of(item, name, there.get(name)) for name in _ADDRESSES},
        }
        if shape["address"] is not None:
            shape["address"] = Secret(shape["address"].value.strip().lower())
        if shape["secret"] is None and given["kind"] == there.get("kind"):
            shape["secret"] = there["secret"]  # it may be left out: one that was generated stays
        return shape

    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        shape = present.shape
        found: dict[str, Any] = {"name": present.name}
        if present.place is not None:
            found["project"] = writing.place(present.place)
        found["kind"] = shape["kind"]
        for name in _CONFIG[shape["kind"]]:
            found[name] = writing.variables.keep("channel", present.name, name)
        for name, value in without(shape, _DEFAULTS).items():
            found[name] = scopes.written(value, present.place, writing) if name == "monitors" else value
        return found

    def create(self, making: Making, shape: Shape) -> None:
        given = self._given(making, shape, set(shape) - {"enabled"})
        given = {name: value for name, value in given.items() if value is not None}
        channel, _ = channels.create_channel(making.account.caller, given, now=making.now)
        if not shape["enabled"]:
            channels.update_channel(
                making.account.caller, channel.public_id, {"enabled": False}, now=making.now
            )

    def update(self, making: Making, present: Present, shape: Shape, changed: set[str]) -> None:
        given = self._given(making, shape, changed)
        channels.update_channel(making.account.caller, present.id, given, now=making.now)

    def delete(self, making: Making, present: Present) -> None:
        channels.delete_channel(making.account.caller, present.id)

    def _given(self, making: Making, shape: Shape, names: set[str]) -> dict[str, Any]:
        """The body of the API that sets these fields."""
        given: dict[str, Any] = {}
        for name in names:
            value = shape[name]
            if name == "project":
                given["project_id"] = making.project_id(value)
            elif name != "monitors":
                given[name] = value.value if isinstance(value, Secret) else value
            elif isinstance(value, OfProject):
                given |= {"monitors": "project", "scope_project_id": making.project_id(value.place)}
            elif isinstance(value, Chosen):
                ids = [making.monitor_id(handle) for handle in value.handles]
                given |= {"monitors": "chosen", "monitor_ids": sorted(ids)}
            else:
                given["monitors"] = value
        return given
