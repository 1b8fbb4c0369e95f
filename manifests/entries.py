"""Entries of a manifest and existing objects of an account, in one form that can be compared. Pure.

The values of both are a dict of their fields, named as in files, including defaults. They refer to projects and
monitors by ProjectRef and MonitorRef objects, which are the same on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from manifests.problems import Path

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of a plan in seconds: the shortest, and the default (None: the shortest)."""

    floor_sec: int
    default_sec: int | None


@dataclass(eq=False, slots=True)
class ProjectRef:
    """A project of the file, of the account, or of both. `id` is None until it is created.

    `owner` is the primary key of its owner, and `intervals` are those of the owner's plan.
    """

    name: str
    owner: int
    intervals: Intervals
    id: str | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class MonitorRef:
    """A monitor that other entries refer to. `key` is its id, or a placeholder until it is created."""

    key: str
    label: str = field(compare=False)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to a monitor in a file, by id or name.

    Without a project, the name is looked up in the entry's own project.
    """

    name: str | None = None
    id: str | None = None
    project: str | None = None
    elsewhere: bool = False  # whether `project` is given


@dataclass(eq=False, slots=True)
class Existing:
    """An existing object of the account. `name` identifies it in files."""

    section: str
    id: str
    pk: int
    name: str
    project_ref: ProjectRef | None
    values: Values
    config: Any = None  # only monitors: the source of `values`
    is_over: bool = False  # only maintenance windows: they have no further occurrence


@dataclass(eq=False, slots=True)
class Entry:
    """An entry of the file. `given` has the fields of its serializer."""

    section: str
    path: Path
    name: str
    project_ref: ProjectRef | None
    given: dict[str, Any]
    id: str | None = None
    existing: Existing | None = None
    values: Values | None = None  # None if the entry is invalid
    config: Any = None  # only monitors: the source of `values`

    @property
    def monitor_ref(self) -> MonitorRef:
        """Return the reference to a monitor."""
        key = self.existing.id if self.existing else f"new:{self.path}"
        return MonitorRef(key, self.name)
