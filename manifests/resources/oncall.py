"""On-call schedules and escalation policies in manifests. People are named by their e-mail addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from core.clock import from_ms, to_ms
from core.hours import settle_hours
from core.zones import TIME_ZONES
from manifests.account import Account, Entry, Existing, Person, Values
from manifests.naming import ExportNames, Names
from manifests.resources.base import Resource
from oncall import selectors, services
from oncall.models import EscalationPolicy, OnCallSchedule
from pulsekeeper.manifest.problems import EntryError, Path

Ref = Existing | Entry | str
"""What a policy or monitor names: of the account, of the file, or the id of what the caller cannot access."""


def ref_id(ref: Ref, new_ids: Mapping[Entry, str]) -> str:
    """Return the id. `new_ids` are those of what was created."""
    if isinstance(ref, str):
        return ref
    return ref.id if isinstance(ref, Existing) else new_ids[ref]


@dataclass(frozen=True, slots=True)
class Layer:
    people: tuple[Person, ...]
    every: Mapping[str, Any]
    starts_at: datetime
    hours: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        hours = "".join(f", {','.join(map(str, one['days']))} {one['from']}-{one['to']}" for one in self.hours)
        names = ", ".join(map(str, self.people))
        return f"{names} every {self.every['count']} {self.every['unit']} from {self.starts_at.isoformat()}{hours}"


@dataclass(frozen=True, slots=True)
class Override:
    person: Person
    starts_at: datetime
    ends_at: datetime

    def __str__(self) -> str:
        return f"{self.person} {self.starts_at.isoformat()}/{self.ends_at.isoformat()}"


@dataclass(frozen=True, slots=True)
class Target:
    type: str
    ref: Ref | Person

    def __str__(self) -> str:
        return f"{self.type} {self.ref.name if isinstance(self.ref, Existing | Entry) else self.ref}"


@dataclass(frozen=True, slots=True)
class Step:
    after_min: int
    targets: tuple[Target, ...]

    def __str__(self) -> str:
        return f"after {self.after_min} min {', '.join(map(str, self.targets)) or 'no one'}"


class Schedules(Resource):
    section, noun = "on_call_schedules", "on-call schedule"
    defaults: ClassVar[dict[str, Any]] = {"timezone": "UTC", "layers": None, "overrides": []}
    rows = staticmethod(selectors.list_schedules)
    create = staticmethod(services.create_schedule)
    delete = staticmethod(services.delete_schedule)
    update = staticmethod(lambda caller, public_id, body, **_: services.update_schedule(caller, public_id, body))

    def stored(self, row: OnCallSchedule, account: Account, links: Sequence[Any]) -> Values:
        people = account.people(account.project_ref(row.project_id))

        def person(user_id: str) -> Person:
            return people.get(user_id, Person(user_id))

        layers = [
            Layer(tuple(map(person, one["user_ids"])), one["every"], from_ms(one["starts_at"]), one["hours"])
            for one in row.layers
        ]
        overrides = [
            Override(person(one["user_id"]), from_ms(one["starts_at"]), from_ms(one["ends_at"]))
            for one in row.overrides
        ]
        return {"timezone": row.time_zone, "layers": layers, "overrides": overrides}

    def desired(self, entry: Entry, names: Names) -> Values:
        given = entry.given
        kept = {*selectors.named_in(entry.existing.row)} if entry.existing else set()

        def person(word: str, *path: str | int) -> Person:
            return _person(word, entry, kept, names.account, (*entry.path, *path))

        layers = [
            Layer(
                tuple(person(word, "layers", i, "people", k) for k, word in enumerate(one["people"])),
                one["every"],
                _moment(one["starts_at"]),
                settle_hours(one.get("hours", []), f"layers[{i}].hours"),
            )
            for i, one in enumerate(given["layers"])
        ]
        overrides = [
            Override(
                person(one["person"], "overrides", i, "person"), _moment(one["starts_at"]), _moment(one["ends_at"])
            )
            for i, one in enumerate(given.get("overrides", ()))
        ]
        place = {"name": entry.name, "project": entry.project_ref, "timezone": given.get("timezone", "UTC")}
        return {**place, "layers": layers, "overrides": overrides}

    def body(self, values: Values, names: Collection[str], new_ids: Mapping[Entry, str]) -> dict[str, Any]:
        body = super().body(values, names, new_ids)
        if "layers" in body:
            body["layers"] = [
                {
                    "user_ids": [person.id for person in layer.people],
                    "every": layer.every,
                    "starts_at": to_ms(layer.starts_at),
                    "hours": layer.hours,
                }
                for layer in body["layers"]
            ]
        if "overrides" in body:
            body["overrides"] = [
                {"user_id": one.person.id, "starts_at": to_ms(one.starts_at), "ends_at": to_ms(one.ends_at)}
                for one in body["overrides"]
            ]
        return body

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        values = existing.values
        zone = ZoneInfo(values["timezone"] if values["timezone"] in TIME_ZONES else "UTC")
        found = self.non_defaults(values)
        found["layers"] = [
            {
                "people": list(map(str, layer.people)),
                "every": dict(layer.every),
                "starts_at": layer.starts_at.astimezone(zone).isoformat(),
                **({"hours": list(layer.hours)} if layer.hours else {}),
            }
            for layer in values["layers"]
        ]
        if values["overrides"]:
            found["overrides"] = [
                {
                    "person": str(one.person),
                    "starts_at": one.starts_at.astimezone(zone).isoformat(),
                    "ends_at": one.ends_at.astimezone(zone).isoformat(),
                }
                for one in values["overrides"]
            ]
        return found


class Policies(Resource):
    section, noun = "escalation_policies", "escalation policy"
    defaults: ClassVar[dict[str, Any]] = {"steps": None, "repeat": 0, "acknowledge_timeout_min": 0}
    rows = staticmethod(selectors.list_policies)
    create = staticmethod(services.create_policy)
    delete = staticmethod(services.delete_policy)
    update = staticmethod(lambda caller, public_id, body, **_: services.update_policy(caller, public_id, body))

    def links(self, keys: Collection[int]) -> dict[int, Sequence[selectors.Targets]]:
        rows = list(EscalationPolicy.objects.filter(pk__in=keys))
        return {row.pk: [found] for row, found in zip(rows, selectors.targets_of(rows), strict=True)}

    def stored(self, row: EscalationPolicy, account: Account, links: Sequence[selectors.Targets]) -> Values:
        people = account.people(account.project_ref(row.project_id))
        known = {one.id: one for name in ("channels", Schedules.section) for one in account.existing.get(name, ())}

        def target(one: Mapping[str, str]) -> Target:
            ref = people.get(one["id"], Person(one["id"])) if one["type"] == "user" else known.get(one["id"], one["id"])
            return Target(one["type"], ref)

        steps = [
            Step(step["after_min"], tuple(map(target, step["targets"])))
            for targets in links
            for step in selectors.shown_steps(row, targets)
        ]
        plain = {name: getattr(row, name) for name in ("repeat", "acknowledge_timeout_min")}
        return {"steps": steps, **plain}

    def desired(self, entry: Entry, names: Names) -> Values:
        given = {name: entry.given.get(name, default) for name, default in self.defaults.items() if name != "steps"}
        return {"name": entry.name, "project": entry.project_ref, "steps": [], **given}

    def resolve(self, entry: Entry, names: Names) -> None:
        stored = entry.existing.values["steps"] if entry.existing else []
        kept = {target.ref for step in stored for target in step.targets if isinstance(target.ref, str)}
        people = {target.ref.id for step in stored for target in step.targets if isinstance(target.ref, Person)}
        steps = []
        for number, step in enumerate(entry.given["steps"]):
            targets = []
            for index, given in enumerate(step["targets"]):
                ((kind, word),) = given.items()
                path = (*entry.path, "steps", number, "targets", index)
                if kind == "user":
                    targets.append(Target(kind, _person(word, entry, people, names.account, path)))
                elif isinstance(word, Mapping) and word["id"] in kept:
                    targets.append(Target(kind, word["id"]))
                else:
                    section = "channels" if kind == "channel" else Schedules.section
                    targets.append(Target(kind, names.found(section, word, entry.project_ref, path)))
            steps.append(Step(step["after_min"], tuple(targets)))
        if entry.values is not None:
            entry.values["steps"] = steps

    def new_refs(self, values: Values) -> Iterator[Entry]:
        refs = (target.ref for step in values["steps"] for target in step.targets)
        return (ref for ref in refs if isinstance(ref, Entry))

    def body(self, values: Values, names: Collection[str], new_ids: Mapping[Entry, str]) -> dict[str, Any]:
        body = super().body(values, names, new_ids)
        if "steps" in body:
            body["steps"] = [
                {
                    "after_min": step.after_min,
                    "targets": [
                        {
                            "type": one.type,
                            "id": one.ref.id if isinstance(one.ref, Person) else ref_id(one.ref, new_ids),
                        }
                        for one in step.targets
                    ],
                }
                for step in body["steps"]
            ]
        return body

    def exported(self, existing: Existing, names: ExportNames) -> dict[str, Any]:
        def word(one: Target) -> Any:
            if isinstance(one.ref, Person):
                return str(one.ref)
            section = "channels" if one.type == "channel" else Schedules.section
            return names.found(section, one.ref, existing.project_ref)

        found = self.non_defaults(existing.values)
        found["steps"] = [
            {"after_min": step.after_min, "targets": [{one.type: word(one)} for one in step.targets]}
            for step in existing.values["steps"]
        ]
        return found


def _moment(given: datetime) -> datetime:
    """Return the time in UTC, with the precision of stored times."""
    return from_ms(to_ms(given))


def _person(word: str, entry: Entry, kept: Collection[str], account: Account, path: Path) -> Person:
    """Return a person by e-mail address or id; `kept` are the ids that are stored. Raises EntryError."""
    people = account.people(entry.project_ref)
    found = people.get(word) or next((one for one in people.values() if one.email == word.lower()), None)
    if found is not None:
        return found
    if word in kept:
        return Person(word)
    where = "has no project, so only you can be" if entry.project_ref is None else "names only members of the project"
    raise EntryError(path, f"{word!r} not found: {where}.")
