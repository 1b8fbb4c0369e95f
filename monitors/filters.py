"""Filters of lists of monitors, and the tags that the monitors of a list have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BooleanField, Case, CharField, Exists, F, Func, Q, QuerySet, Value, When

from checks.spec import Verdict
from monitors.dependencies import children_of
from monitors.models import Monitor
from monitors.partial import is_partial
from monitors.selectors import failing, held_back, named
from monitors.stale import stale
from monitors.types.tags import tag_key

NO_PROJECT = "none"
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
conditions: dict[str, Callable[[datetime], Q | Exists]] = {
    "failing": failing,
    "partial": lambda _: Q(is_partial()),
    "muted": lambda now: Q(muted_until__gt=now),
}
"""The conditions of MARKS at a time. The app of maintenance windows adds its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What monitors of a list have in common. An empty filter matches all.

    Monitors match if they have all `tags`, compared without case, the `text` in their name or address, and one of the
    `statuses`, `types`, and `states`: keys of STATES. `project` is its public id, or NO_PROJECT, and `depends_on` an
    id of a parent.
    """

    tags: Sequence[str] = ()
    text: str = ""
    statuses: Collection[str] = ()
    types: Collection[str] = ()
    states: Collection[str] = ()
    project: str = ""
    depends_on: str = ""
    enabled: bool | None = None

    def narrow(self, monitors: QuerySet[Any], *, now: datetime) -> QuerySet[Any]:
        """Return the monitors that match all filters."""
        if self.depends_on:  # first: the caller must be able to access the parent, which need not match
            monitors = children_of(monitors, monitors.filter(named([self.depends_on])))
        if self.tags:
            monitors = monitors.filter(tag_keys__contains=[tag_key(tag) for tag in self.tags])
        if self.text:
            monitors = monitors.filter(Q(name__icontains=self.text) | Q(url__icontains=self.text))
        if self.statuses:
            monitors = monitors.filter(state__status__in=self.statuses)
        if self.types:
            monitors = monitors.filter(type__in=self.types)
        if self.states:
            standings = [state for state in self.states if state in STANDINGS]
            found = Q(standing__in=standings) if standings else Q()
            for mark in MARKS.keys() & set(self.states):
                found |= Q(conditions[mark](now))
            monitors = monitors.alias(standing=standing(now)).filter(found)
        if self.project == NO_PROJECT:
            monitors = monitors.filter(project=None)
        elif self.project:
            monitors = monitors.filter(project__public_id=self.project)
        return monitors if self.enabled is None else monitors.filter(enabled=self.enabled)


def standing(now: datetime) -> Case:
    """Return the expression of a monitor's standing, a key of STANDINGS."""
    return Case(
        When(enabled=False, then=Value("paused")),
        When(stale(now) & ~Q(state__status=Verdict.DOWN), then=Value("stale")),
        When(Q(state__status=None) | held_back(now), then=Value("pending")),
        default=F("state__status"),
        output_field=CharField(),
    )


def shares_tag(keys: Any, others: Any) -> Func:
    """Return whether two columns with keys of tags have one in common. A column without any shares none."""
    return Func(
        keys,
        others,
        template="(%(expressions)s)))",
        arg_joiner=" ?| ARRAY(SELECT jsonb_array_elements_text(",
        output_field=BooleanField(),
    )


def with_any_tag(keys: Iterable[str], *, column: str = "tag_keys") -> Q:
    """Match monitors with any of the tags, by their keys. It can use the index of tags."""
    found = Q(pk__in=[])
    for key in keys:
        found |= Q(**{f"{column}__contains": [key]})
    return found


class Tag(NamedTuple):
    """A tag as its newest monitor spells it, and the number of its monitors."""

    name: str
    monitors: int


def tags_of(monitors: QuerySet[Monitor], *, most: int | None = None) -> list[Tag]:
    """Return the tags of these monitors, by name without case, in one query. `most`: those of most monitors."""
    tagged = monitors.filter(tag_keys__isnull=False).order_by().values("pk", "tags", "tag_keys")
    select, parameters = tagged.query.sql_with_params()
    statement = f"""
        SELECT name, monitors
          FROM (
                SELECT (array_agg(name ORDER BY tagged.pk DESC))[1] AS name, key, count(*) AS monitors
                  FROM ({select}) AS tagged (pk, tags, keys)
                 CROSS JOIN LATERAL ROWS FROM (jsonb_array_elements_text(tags), jsonb_array_elements_text(keys))
                       AS tag (name, key)
                 GROUP BY key
                 ORDER BY monitors DESC, key COLLATE "C"
                 LIMIT %s
               ) AS found
         ORDER BY key COLLATE "C"
    """  # noqa: S608 - SQL by Django
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, most])
        return [Tag(*row) for row in cursor.fetchall()]
