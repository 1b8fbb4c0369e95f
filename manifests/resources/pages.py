"""Status pages in files, known by their slugs. Their logos stay out: a file holds no pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.hashers import check_password

from manifests.account import Account
from manifests.entries import Entry, Handle, Present, Shape
from manifests.parsing import Item
from manifests.resources.base import (
    BrokenError,
    Making,
    Names,
    Single,
    Writing,
    WrongError,
    secret_of,
    without,
)
from manifests.secrets import Secret
from statuspages import colours, selectors, services
from statuspages.names import check_domain

_DEFAULTS: dict[str, Any] = {
    "description": "",
    "published": True,
    "theme": "auto",
    "accent": None,
    "custom_domain": None,
    "show_window_names": False,
    "groups": [],
}


@dataclass(frozen=True, slots=True)
class Hashed:
    """A password of which only a hash is known."""

    hash: str = field(repr=False)

    def __str__(self) -> str:
        return "(secret)"


@dataclass(frozen=True, slots=True)
class Group:
    """`monitors`: each with its name on the page."""

    name: str
    monitors: tuple[tuple[Handle, str], ...]

    def parts(self) -> dict[str, str]:
        heading = f"{self.name}: " if self.name else ""
        return {heading + handle.label: name for handle, name in self.monitors}

    def __str__(self) -> str:
        shown = ", ".join(f"{handle.label} as {name!r}" for handle, name in self.monitors)
        return f"{self.name or 'without a heading'} ({shown})"


class Pages(Single):
    section, noun, identity = "status_pages", "status page", "slug"
    fields: ClassVar = {"project_id": "project", "monitor_id": "monitor"}

    def read(self, account: Account, *, now: datetime) -> list[Present]:
        handles = account.handles()
        found = []
        for row in selectors.list_pages(account.caller).order_by("pk"):
            if not account.knows(row.project_id):
                continue
            place = account.place(row.project_id)
            shape = {
                "slug": row.slug,
                "project": place,
                "name": row.name,
                "password": Hashed(row.password_hash) if row.password_hash else None,
                **{name: getattr(row, name) for name in _DEFAULTS if name != "groups"},
                "groups": [
                    Group(
                        group.name,
                        tuple(
                            (handles[one.monitor_id], one.name)
                            for one in group.monitors.all()
                            if one.monitor_id in handles
                        ),
                    )
                    for group in row.groups.all()
                ],
            }
            found.append(Present(self.section, row.public_id, row.pk, row.slug, place, shape))
        return found

    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        given = item.given
        there = entry.present.shape["password"] if entry.present else None
        password = secret_of(item, "password", there)
        if isinstance(password, Secret) and there is not None and check_password(password.value, there.hash):
            password = there
        return {
            "slug": entry.name,
            "project": entry.place,
            "name": given["name"],
            "password": password,
            **{name: given.get(name, default) for name, default in _DEFAULTS.items() if name != "groups"},
            "accent": _as_kept(given.get("accent"), colours.check_accent),
            "custom_domain": _as_kept(given.get("custom_domain"), _domain),
            "groups": self._groups(item, entry, names),
        }

    def _groups(self, item: Item, entry: Entry, names: Names) -> list[Group]:
        groups = []
        broken: BrokenError | None = None
        seen: set[Handle] = set()
        for i, group in enumerate(item.given.get("groups", [])):
            shown = []
            for j, one in enumerate(group["monitors"]):
                path = (*item.path, "groups", i, "monitors", j, "monitor")
                try:
                    handle = names.monitor(one["monitor"], entry.place, path)
                except BrokenError as error:
                    broken = error
                    continue
                if handle in seen:
                    raise WrongError(path, "is on the page already.")
                seen.add(handle)
                shown.append((handle, one["name"]))
            groups.append(Group(group.get("name", ""), tuple(shown)))
        if broken is not None:
            raise broken
        return groups

    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        shape = present.shape
        found: dict[str, Any] = {"slug": shape["slug"], "name": shape["name"]}
        if present.place is not None:
            found["project"] = writing.place(present.place)
        if shape["password"] is not None:
            found["password"] = writing.variables.keep("status_page", shape["slug"], "password")
        found |= without(shape, _DEFAULTS)
        if "groups" in found:
            found["groups"] = [
                {
                    **({"name": group.name} if group.name else {}),
                    "monitors": [
                        {"monitor": writing.monitor(handle, present.place), "name": name}
                        for handle, name in group.monitors
                    ],
                }
                for group in shape["groups"]
            ]
        return found

    def create(self, making: Making, shape: Shape) -> None:
        services.create_page(making.account.caller, self._given(making, shape, set(shape)), now=making.now)

    def update(self, making: Making, present: Present, shape: Shape, changed: set[str]) -> None:
        services.update_page(making.account.caller, present.id, self._given(making, shape, changed))

    def delete(self, making: Making, present: Present) -> None:
        services.delete_page(making.account.caller, present.id)

    def _given(self, making: Making, shape: Shape, names: set[str]) -> dict[str, Any]:
        """The body of the API that sets these fields."""
        given: dict[str, Any] = {name: shape[name] for name in names}
        if "project" in given:
            given["project_id"] = making.project_id(given.pop("project"))
        if isinstance(given.get("password"), Secret):
            given["password"] = given["password"].value
        if "groups" in given:
            given["groups"] = [
                {
                    "name": group.name,
                    "monitors": [
                        {"monitor_id": making.monitor_id(handle), "name": name}
                        for handle, name in group.monitors
                    ],
                }
                for group in given["groups"]
            ]
        return given


def _as_kept(value: str | None, check: Callable[[str], str]) -> str | None:
    """As the service would keep it; what it would refuse is left for it to say so."""
    try:
        return None if value is None else check(value)
    except ValueError:
        return value


def _domain(text: str) -> str:
    return check_domain(text, own=())
