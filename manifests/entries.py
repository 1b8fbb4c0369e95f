"""What a file names and what an account has, in one shape, so that the two can be compared. Pure.

The shape of a thing is a dict of its fields as files name them, every default filled in. Projects and monitors in it
are objects that are the same on both sides: a Place, a Handle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from manifests.problems import Path

Shape = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pace:
    """A plan's intervals in seconds: the shortest, and the one of a monitor that names none (None: the shortest)."""

    floor_sec: int
    default_sec: int | None


@dataclass(eq=False, slots=True)
class Place:
    """A project: of the file, of the account, or both. `id` is None for one that is still to be made.

    `pace` is by the plan of its owner, whose key is `owner`.
    """

    name: str
    owner: int
    pace: Pace
    id: str | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Handle:
    """A monitor that something refers to. `key` is its id, or stands for one that is still to be made."""

    key: str
    label: str = field(compare=False)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Reference:
    """How a file refers to a monitor: by id, or by its name, in the place of what refers to it or in another."""

    name: str | None = None
    id: str | None = None
    project: str | None = None
    elsewhere: bool = False  # whether `project` is said


@dataclass(eq=False, slots=True)
class Present:
    """Something that the account has. `pk` is its key in the database, `name` what files know it by."""

    kind: str
    id: str
    pk: int
    name: str
    place: Place | None
    shape: Shape
    config: Any = None  # of a monitor: what its shape was made of
    is_over: bool = False  # a maintenance window without a further occurrence, which no file has to name


@dataclass(eq=False, slots=True)
class Entry:
    """Something that the file names. Fields of `given` are those of its serializer."""

    kind: str
    path: Path
    name: str
    place: Place | None
    given: dict[str, Any]
    id: str | None = None
    present: Present | None = None
    shape: Shape | None = None  # None where something about it is wrong, which has been said
    config: Any = None  # of a monitor: what its shape was made of

    @property
    def handle(self) -> Handle:
        """Of a monitor."""
        key = self.present.id if self.present else f"new:{self.path}"
        return Handle(key, self.name)
