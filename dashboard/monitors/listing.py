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
    Count,
    F,
    Func,
    IntegerField,
    OrderBy,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.functions import MD5, Cast, Coalesce, Concat, Lower
from django.http import QueryDict

from core.api.converters import is_public_id
from core.db import compiled_once
from monitors import types
from monitors.filters import MARKS, STANDINGS, STATES, Filters, conditions, standing
from monitors.models import Monitor
from monitors.selectors import list_monitors
from monitors.stale import stale
from monitors.types.tags import MAX_TAGS, normalized, tag_key
from projects.access import Caller
from projects.models import Project

PAGE = 50
MAX_SEARCH = 200
SORTS = {"state": "State", "name": "Name", "latency": "Latency", "uptime": "Uptime"}
_PLACED = ("pk", "name", "project", "project__name")
# `is_stale`, because a stale monitor that is down keeps that standing.
_SHOWN = (
    *_PLACED, "url", "muted_until", "state__last_checked_at", "state__last_latency_ms", "is_stale", "state__fault",
    "tags",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """The filters in the query string, named as in the API. Invalid values are ignored."""

    state: str = ""
    type: str = ""
    project_id: str = ""
    tag: tuple[str, ...] = ()
    depends_on: str = ""
    q: str = ""
    sort: str = "state"
    grouped: bool = False
    page: int = 1

    @classmethod
    def read(cls, given: QueryDict) -> Listing:
        page, project = given.get("page", ""), given.get("project_id", given.get("project", ""))
        text = given.get("q", given.get("search", ""))  # bookmarks may have the older names
        parent = given.get("depends_on", "")
        return cls(
            state=_one_of(STATES, given.get("state")),
            type=_one_of(types.REGISTRY, given.get("type")),
            project_id=project if is_public_id(project) else "",
            tag=_valid_tags(given.getlist("tag")),
            depends_on=parent if is_public_id(parent) else "",
            q=text.replace("\0", "").strip()[:MAX_SEARCH],
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
        return bool(self.state or self.type or self.project_id or self.tag or self.depends_on or self.q)

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
    monitors: QuerySet[Any] = _narrowed(caller, listing, now=now).alias(standing=standing(now))
    if listing.state in MARKS:
        monitors = monitors.filter(conditions[listing.state](now))
    elif listing.state:
        monitors = monitors.filter(standing=listing.state)
    return monitors.order_by(*_order(listing))


def tally(caller: Caller, listing: Listing, *, now: datetime) -> Tally:
    """Count the states in one query and the marks in another: conditions of marks would slow down the row digests.

    The SQL of these queries is compiled once.

    `order` changes with the monitors in the list and their positions, except in a list by latency or uptime, and
    `content` with everything that a row shows.
    """
    ids = list(_narrowed(caller, listing, now=now).order_by("pk").values_list("pk", flat=True))
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
    monitors = list_monitors(caller).filter(project__in=projects).order_by().annotate(standing=standing(now))
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


def _narrowed(caller: Caller, listing: Listing, *, now: datetime) -> QuerySet[Any]:
    types = (listing.type,) if listing.type else ()
    filters = Filters(
        tags=listing.tag,
        text=listing.q,
        types=types,
        project=listing.project_id,
        depends_on=listing.depends_on,
    )
    return filters.narrow(list_monitors(caller), now=now)


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
    monitors = Monitor.objects.filter(pk__in=keys).annotate(standing=standing(now), is_stale=stale(now))
    groups = monitors.order_by("standing").values_list("standing")
    return groups.annotate(number=Count("pk"), order=_digest(*_PLACED), content=_digest(*_SHOWN))


_groups = compiled_once(_group)


def _mark(keys: Func, now: datetime) -> QuerySet[Any, Any]:
    found = [
        Monitor.objects.filter(condition(now), pk__in=keys).order_by().values_list(Value(mark), "pk")
        for mark, condition in conditions.items()
    ]
    return found[0].union(*found[1:], all=True)


_marked = compiled_once(_mark)


def _valid_tags(given: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that a monitor may have, each once."""
    found = (normalized(text) for text in given[:MAX_TAGS])
    return tuple({tag_key(tag): tag for tag, problem in found if not problem}.values())


def _one_of(known: Mapping[str, object], given: str | None) -> str:
    return given if given is not None and given in known else ""
