"""The query of the overview: its filters, the matching monitors, and their number by state."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.postgres.aggregates import StringAgg
from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    Func,
    IntegerField,
    OrderBy,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import MD5, Cast, Coalesce, Concat, Lower
from django.http import QueryDict

from checks.spec import Verdict
from core.api.converters import is_public_id
from core.db import compiled_once
from incidents import windows
from monitors import types
from monitors.filters import Filters
from monitors.models import Monitor
from monitors.partial import is_partial
from monitors.selectors import failing, held_back, list_monitors
from monitors.stale import stale
from monitors.types.tags import MAX_TAGS, normalized, tag_key
from projects.access import Caller
from projects.models import Project

PAGE = 50
MAX_SEARCH = 200
# Each monitor has exactly one standing. They are sorted by urgency.
STANDINGS = {
    "down": "Down",
    "stale": "Not checked",
    "slow": "Slow",
    "pending": "Waiting",
    "up": "Up",
    "paused": "Paused",
}
# Shown in addition to the standing. Failing: not down yet, because of a mute or `fail_threshold`. Partial: it fails
# from some of its locations.
MARKS = {"failing": "Failing", "partial": "Partial outage", "muted": "Muted", "maintenance": "Maintenance"}
STATES = {**STANDINGS, **MARKS}
SORTS = {"state": "State", "name": "Name", "latency": "Latency", "uptime": "Uptime"}
_PLACED = ("pk", "name", "project", "project__name")
# `is_stale`, because a stale monitor that is down keeps that standing.
_SHOWN = (
    *_PLACED, "url", "muted_until", "state__last_checked_at", "state__last_latency_ms", "is_stale", "state__fault",
    "tags",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """The filters in the query string. Invalid values are ignored."""

    state: str = ""
    type: str = ""
    project: str = ""
    tag: tuple[str, ...] = ()
    depends_on: str = ""
    search: str = ""
    sort: str = "state"
    grouped: bool = False
    page: int = 1

    @classmethod
    def read(cls, given: QueryDict) -> Listing:
        page, project = given.get("page", ""), given.get("project", "")
        parent = given.get("depends_on", "")
        return cls(
            state=_one_of(STATES, given.get("state")),
            type=_one_of(types.REGISTRY, given.get("type")),
            project=project if is_public_id(project) else "",
            tag=_valid_tags(given.getlist("tag")),
            depends_on=parent if is_public_id(parent) else "",
            search=given.get("search", "").replace("\0", "").strip()[:MAX_SEARCH],
            sort=_one_of(SORTS, given.get("sort")) or "state",
            grouped=given.get("grouped") == "1",
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 6 and int(page) else 1,
        )

    @property
    def query(self) -> str:
        """Return the query string with `?` and without defaults, or an empty string."""
        return f"?{urlencode(self.pairs)}" if self.pairs else ""

    @property
    def pairs(self) -> list[tuple[str, Any]]:
        """Return the names and values of the query string, without defaults."""
        usual = Listing()
        changes = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != getattr(usual, field.name)
        }
        return [
            (name, "1" if one is True else one)
            for name, value in changes.items()
            for one in (value if isinstance(value, tuple) else (value,))
        ]

    @property
    def is_narrowed(self) -> bool:
        return bool(self.state or self.type or self.project or self.tag or self.depends_on or self.search)

    def changed(self, **changes: Any) -> Listing:
        """Return a copy with these changes, on its first page."""
        return replace(self, **{"page": 1, **changes})


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts by state, regardless of the state in the query, and digests that change with the list."""

    counts: Mapping[str, int]
    total: int
    order: str
    content: str


def matching(caller: Caller, listing: Listing, *, now: datetime) -> QuerySet[Monitor]:
    """Return the matching monitors, sorted, and with the alias `standing`. Sorting by uptime happens elsewhere."""
    monitors: QuerySet[Any] = _narrowed(caller, listing).alias(standing=_standing(now))
    if listing.state in MARKS:
        monitors = monitors.filter(_marks(now)[listing.state])
    elif listing.state:
        monitors = monitors.filter(standing=listing.state)
    return monitors.order_by(*_order(listing))


def tally(caller: Caller, listing: Listing, *, now: datetime) -> Tally:
    """Count the states in one query and the marks in another: conditions of marks would slow down the row digests.

    The SQL of these queries is compiled once.

    `order` changes with the monitors in the list and their positions, except in a list by latency or uptime, and
    `content` with everything that a row shows.
    """
    ids = list(_narrowed(caller, listing).order_by("pk").values_list("pk", flat=True))
    groups, marked = _groups(ids, now), sorted(_marked(ids, now))
    counts = dict.fromkeys(STANDINGS, 0) | {standing: number for standing, number, _, _ in groups}
    return Tally(
        counts | dict.fromkeys(MARKS, 0) | Counter(mark for mark, _ in marked),
        total=sum(counts.values()),
        order=version_of(marked, [(standing, order) for standing, _, order, _ in groups]),
        content=version_of(marked, groups),
    )


def counts_by_project(
    caller: Caller, projects: Collection[Project], *, now: datetime
) -> dict[int, list[tuple[str, str, int]]]:
    """Return the standings in each project by its key, the most urgent first, in one query.

    Each is a key of STANDINGS, its label and the number of monitors.
    """
    monitors = list_monitors(caller).filter(project__in=projects).order_by().annotate(standing=_standing(now))
    counts = {
        (project, standing): number
        for project, standing, number in monitors.values_list("project", "standing").annotate(number=Count("pk"))
    }
    return {
        project.pk: [
            (standing, word, counts[project.pk, standing])
            for standing, word in STANDINGS.items()
            if (project.pk, standing) in counts
        ]
        for project in projects
    }


def _standing(now: datetime) -> Case:
    return Case(
        When(enabled=False, then=Value("paused")),
        When(stale(now) & ~Q(state__status=Verdict.DOWN), then=Value("stale")),
        When(Q(state__status=None) | held_back(now), then=Value("pending")),
        default=F("state__status"),
        output_field=CharField(),
    )


def _narrowed(caller: Caller, listing: Listing) -> QuerySet[Any]:
    types = (listing.type,) if listing.type else ()
    filters = Filters(
        tags=listing.tag,
        text=listing.search,
        types=types,
        project=listing.project,
        depends_on=listing.depends_on,
    )
    return filters.narrow(list_monitors(caller))


def _marks(now: datetime) -> dict[str, Q | Exists]:
    return {
        "failing": failing(now),
        "partial": Q(is_partial()),
        "muted": Q(muted_until__gt=now),
        "maintenance": windows.covering(now),
    }


def _order(listing: Listing) -> Sequence[str | OrderBy | Lower]:
    by_project: list[OrderBy] = []
    if listing.grouped:
        by_project = [Lower("project__name").asc(nulls_last=True), F("project_id").asc()]
    ranks = Func(Value(list(STANDINGS)), F("standing"), function="array_position", output_field=IntegerField())
    first = {"state": [ranks.asc()], "latency": [F("state__last_latency_ms").desc(nulls_last=True)]}
    return [*by_project, *first.get(listing.sort, []), Lower("name").asc(), F("pk").asc()]


def version_of(*shown: object) -> str:
    """Return a short digest that changes with what is shown."""
    return hashlib.blake2b(repr(shown).encode(), digest_size=6).hexdigest()


def _digest(*names: str) -> MD5:
    text, texts = TextField(), []
    for name in names:
        texts += [Coalesce(Cast(F(name), text), Value("", text), output_field=text), Value("|", text)]
    return MD5(StringAgg(Concat(*texts, output_field=text), delimiter=",", order_by="pk"))


def _group(keys: Func, now: datetime) -> QuerySet[Any, Any]:
    monitors = Monitor.objects.filter(pk__in=keys).annotate(standing=_standing(now), is_stale=stale(now))
    groups = monitors.order_by("standing").values_list("standing")
    return groups.annotate(number=Count("pk"), order=_digest(*_PLACED), content=_digest(*_SHOWN))


_groups = compiled_once(_group)


def _mark(keys: Func, now: datetime) -> QuerySet[Any, Any]:
    found = [
        Monitor.objects.filter(condition, pk__in=keys).order_by().values_list(Value(mark), "pk")
        for mark, condition in _marks(now).items()
    ]
    return found[0].union(*found[1:], all=True)


_marked = compiled_once(_mark)


def _valid_tags(given: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that a monitor may have, each once."""
    found = (normalized(text) for text in given[:MAX_TAGS])
    return tuple({tag_key(tag): tag for tag, problem in found if not problem}.values())


def _one_of(known: Mapping[str, object], given: str | None) -> str:
    return given if given is not None and given in known else ""
