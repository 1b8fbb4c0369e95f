"""People in schedules and policies, with a mark for those who cannot be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from accounts.models import User
from oncall import selectors
from oncall.selectors import People, Row
from projects.access import Caller

UNREACHABLE = "no confirmed contact"
FORMER = "a former member"


@dataclass(frozen=True, slots=True)
class Person:
    """`name` is the part of the address before the @, where no one else of the page has it."""

    public_id: str
    email: str
    name: str
    is_reachable: bool = True
    is_you: bool = False

    @property
    def label(self) -> str:
        """Return the text of the person in a select."""
        return self.email if self.is_reachable else f"{self.email} ({UNREACHABLE})"


@dataclass(frozen=True, slots=True)
class Roster:
    """Who can be on call, or notified, for one row, by public id."""

    people: Mapping[str, Person]

    def __getitem__(self, user_id: str) -> Person:
        """Return a person. The address of one who has left is not shown."""
        return self.people.get(user_id) or Person(user_id, FORMER, FORMER)

    def choices(self, kept: Iterable[str] = ()) -> list[tuple[str, str]]:
        """Return the choices of a select, sorted. `kept` are ids that may stay though they have left."""
        there = sorted(self.people.values(), key=lambda person: person.email)
        gone = [self[user_id] for user_id in dict.fromkeys(kept) if user_id not in self.people]
        return [(person.public_id, person.label) for person in (*there, *gone)]


def rosters(caller: Caller, found: Sequence[People]) -> list[Roster]:
    """Return the roster of each set of people, in two queries."""
    users = {user for people in found for user in people.values()}
    rules, names = selectors.contact_rules(users), _names(users)
    known = {
        user.public_id: Person(
            user.public_id,
            user.email,
            names[user],
            is_reachable=bool(rules[user]),
            is_you=user.pk == caller.user.pk,
        )
        for user in users
    }
    return [Roster({user_id: known[user_id] for user_id in people}) for people in found]


def roster_of(caller: Caller, row: Row) -> Roster:
    """Return the roster of a row, which may be unsaved."""
    return rosters(caller, [selectors.present_in(row)])[0]


def _names(users: Iterable[User]) -> dict[User, str]:
    names = {user: user.email.partition("@")[0] for user in users}
    counts = Counter(names.values())
    return {user: name if counts[name] == 1 else user.email for user, name in names.items()}
