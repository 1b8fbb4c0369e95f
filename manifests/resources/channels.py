"""Alert channels in files. Where they send to is a secret, as over the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from alerts import selectors, services
from alerts.models import DEFAULT_TOPICS, AlertChannel, Topic
from alerts.transports import KINDS, secret_settings, settings_by_name
from alerts.transports.base import Setting
from manifests.account import Account
from manifests.entries import Entry, Present, Shape
from manifests.parsing import Item
from manifests.problems import Path
from manifests.resources import scopes
from manifests.resources.base import Making, Names, Single, Writing, WrongError, secret_of, without
from manifests.resources.scopes import Chosen, OfProject, Scope
from manifests.secrets import Secret

_DEFAULTS = {
    "enabled": True,
    "topics": [topic.value for topic in DEFAULT_TOPICS],
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
                **dict.fromkeys(settings_by_name()),
                **{
                    setting.name: Secret(config[setting.name]) if setting.secret else config[setting.name]
                    for setting in KINDS[row.kind].settings
                    if setting.name in config
                },
            }
            found.append(Present(self.section, row.public_id, row.pk, row.name, place, shape))
        return found

    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        given, there = item.given, entry.present.shape if entry.present else {}
        settings = KINDS[given["kind"]].settings
        for setting in settings:
            needed = setting.name
            if setting.required and needed not in given and (*item.path, needed) not in item.keeps:
                said = f"{needed} is required for a channel of kind {given['kind']}"
                raise WrongError(
                    item.path,
                    f"{said}; ${{keep:PK_NAME}} is what is stored." if setting.secret else f"{said}.",
                )
        secrets = secret_settings()
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
            **{name: secret_of(item, name, there.get(name)) for name in secrets},
            **{name: given.get(name) for name in settings_by_name() if name not in secrets},
        }
        for setting in settings:
            name = setting.name
            if name in given:
                value = _checked(setting, given[name], (*item.path, name))
                shape[name] = Secret(value) if setting.secret else value
            elif not setting.secret:
                shape[name] = setting.default() if setting.default else None
            elif shape[name] is None and given["kind"] == there.get("kind"):
                shape[name] = there[name]  # left out: what is stored stays, also a generated secret
        return shape

    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        shape = present.shape
        found: dict[str, Any] = {"name": present.name}
        if present.place is not None:
            found["project"] = writing.place(present.place)
        found["kind"] = shape["kind"]
        for setting in KINDS[shape["kind"]].settings:
            name = setting.name
            if setting.secret and shape[name] is not None:
                found[name] = writing.variables.keep("channel", present.name, name)
            elif not setting.secret and (setting.default is None or shape[name] != setting.default()):
                found[name] = shape[name]
        for name, value in without(shape, _DEFAULTS).items():
            found[name] = scopes.written(value, present.place, writing) if name == "monitors" else value
        return found

    def create(self, making: Making, shape: Shape) -> None:
        given = self._given(making, shape, set(shape) - {"enabled"})
        given = {name: value for name, value in given.items() if value is not None}
        channel, _ = services.create_channel(making.account.caller, given, now=making.now)
        if not shape["enabled"]:
            services.update_channel(
                making.account.caller, channel.public_id, {"enabled": False}, now=making.now
            )

    def update(self, making: Making, present: Present, shape: Shape, changed: set[str]) -> None:
        given = self._given(making, shape, changed)
        services.update_channel(making.account.caller, present.id, given, now=making.now)

    def delete(self, making: Making, present: Present) -> None:
        services.delete_channel(making.account.caller, present.id)

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


def _checked(setting: Setting, value: str, path: Path) -> str:
    """Return the value as it would be stored, so that a file that spells it otherwise changes nothing."""
    try:
        return setting.check(value)
    except ValueError as error:
        raise WrongError(path, str(error)) from None
