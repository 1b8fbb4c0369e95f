"""Which monitors depend on which: `depends_on`, the parents of a monitor.

A caller sees, and replaces, those parents that it can access; the others are kept. All monitors of a chain have the
same owner, whose row is locked while dependencies change: two changes at once could make a cycle. They also lock the
states of the child and of its new parents, so that none of them can move or be deleted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Value

from core.errors import ValidationFailed
from monitors import changes
from monitors.locking import write_columns
from monitors.models import Dependency, Monitor
from monitors.selectors import shown_id
from projects.access import Caller, accessible

MAX_PARENTS = 8
LONGEST_CHAIN = 16
"""How many monitors depend on each other in a row."""
FIELD = "depends_on"
Edge = tuple[int, int]
"""The keys of a child and a parent."""
_CYCLE = "depends on this monitor itself, directly or through others."
_SHOWN = ("id", "public_id", "owner_id", "project_id", "type", "name")
"""Columns of parents, in the order of the model's fields, as `from_db` needs them."""


class DependencyRefused(ValidationFailed):
    """A parent that the monitor `child` cannot have. `index` is its place in the list, if it is one parent."""

    def __init__(self, reason: str, *, child: Monitor | None, index: int | None = None) -> None:
        self.bare_reason, self.child, self.index = reason, child, index
        super().__init__(reason, field=FIELD if index is None else f"{FIELD}[{index}]")


class Choice(NamedTuple):
    """The keys of the `parents` to store of a monitor, which will have the owner with the key `owner_id`."""

    child: Monitor
    owner_id: int
    parents: Sequence[int]


def load(monitors: Sequence[Monitor], *, caller: Caller | None) -> None:
    """Set `shown_parents` and `parent_keys` of these monitors, in one query. Without a caller, all parents are visible.

    The parents have the columns that lists show. There may be thousands of rows, so each parent is made once.
    """
    visible: Any = Value(True)  # noqa: FBT003
    if caller is not None:
        visible = Exists(accessible(caller, Monitor.objects.filter(pk=OuterRef("parent"))))
    found: dict[int, tuple[list[Monitor], list[int]]] = {}
    for monitor in monitors:
        shown, keys = found[monitor.pk] = [], []
        monitor.shown_parents, monitor.parent_keys = shown, keys
    children = [monitor.pk for monitor in monitors if monitor.has_parents]
    rows = Dependency.objects.filter(child__in=children).annotate(visible=visible).order_by("position", "pk")
    parents: dict[int, Monitor] = {}
    for child_id, is_visible, *values in rows.values_list("child", "visible", *(f"parent__{name}" for name in _SHOWN)):
        shown, keys = found[child_id]
        key = values[0]
        keys.append(key)
        if is_visible:
            if key not in parents:
                parents[key] = Monitor.from_db(None, _SHOWN, values)
            shown.append(parents[key])


def shown_ids(monitor: Monitor, caller: Caller | None) -> list[str]:
    """Return the ids, as `shown_id`, of the parents that `load` found."""
    return [shown_id(parent, caller) for parent in monitor.shown_parents]


def children_of(monitors: QuerySet[Monitor], parents: QuerySet[Monitor]) -> QuerySet[Monitor]:
    """Return those of the monitors that depend on one of the parents."""
    return monitors.filter(pk__in=Dependency.objects.filter(parent__in=parents.order_by().values("pk")).values("child"))


def summary(caller: Caller) -> dict[str, Subquery]:
    """Return annotations of a monitor.

    `child_count`: how many monitors that the caller can access depend on it, or null. `has_parents`: one without any
    needs no query for them.
    """
    children = accessible(caller, Monitor.objects.all()).values("pk")
    rows = Dependency.objects.filter(parent=OuterRef("pk"), child__in=children).order_by().values("parent")
    return {
        "child_count": Subquery(rows.annotate(count=Count("pk")).values("count")),
        "has_parents": Exists(Dependency.objects.filter(child=OuterRef("pk"))),
    }


def named(public_ids: Sequence[str], found: Mapping[str, Monitor], *, child: Monitor | None = None) -> list[Monitor]:
    """Return the parents with these ids. Raises DependencyRefused.

    `found` are those that the caller can access, by each of their ids.
    """
    parents: list[Monitor] = []
    for index, public_id in enumerate(public_ids):
        parent = found.get(public_id)
        if parent is None:
            raise DependencyRefused("monitor not found.", child=child, index=index)
        if parent in parents:
            raise DependencyRefused("is named more than once.", child=child, index=index)
        parents.append(parent)
    return parents


def replace(caller: Caller | None, choices: Sequence[Choice]) -> dict[int, list[dict[str, Any]]]:
    """Store the parents of monitors, and return the changes for the audit log of each, by its key.

    All are locked, also the new parents and the owners; see the module. Parents that the caller cannot access are kept,
    after the others. Raises DependencyRefused.
    """
    if not choices:
        return {}
    before = _lock(Q(child__in=[choice.child.pk for choice in choices]))
    stored: dict[int, list[Dependency]] = defaultdict(list)
    for row in sorted(before, key=lambda row: (row.position, row.pk)):
        stored[row.child_id].append(row)
    visible = _visible(caller, {row.parent_id for row in before})
    known = Monitor.objects.only("name", "owner", "project").in_bulk(
        {key for choice in choices for key in choice.parents} | {row.parent_id for row in before}
    )
    gone, moved, new, made = [], [], [], {}
    for choice in choices:
        child, rows = choice.child, {row.parent_id: row for row in stored[choice.child.pk]}
        keys = [*choice.parents]
        keys += [key for key in rows if key not in visible and key not in keys]
        _check_each(choice, known, count=len(keys))
        gone += [row.pk for key, row in rows.items() if key not in keys]
        for position, key in enumerate(keys):
            if key not in rows:
                new.append(Dependency(child=child, parent_id=key, position=position))
            elif rows[key].position != position:
                rows[key].position = position
                moved.append(rows[key])
        made[child.pk] = _change(child, [known.get(key) for key in rows], [known.get(key) for key in keys])
    Dependency.objects.filter(pk__in=gone).delete()
    write_columns(moved, ["position"])
    Dependency.objects.bulk_create(new)
    if new:
        _check_chains(choices)
    return made


class Preview:
    """What `replace` would do to monitors of the caller, without locks and writes: to each by itself."""

    def __init__(self, caller: Caller, children: Collection[int], parents: Collection[int]) -> None:
        owned = Dependency.objects.filter(child__owner__in=Monitor.objects.filter(pk__in=children).values("owner"))
        self._edges = list(owned.order_by("position", "pk").values_list("child", "parent"))
        self._above = _heights(self._edges)
        self._below = _heights([(parent, child) for child, parent in self._edges])
        self._present: dict[int, list[int]] = {key: [] for key in children}
        for child, parent in self._edges:
            if child in self._present:
                self._present[child].append(parent)
        keys = {key for present in self._present.values() for key in present}
        self._visible = _visible(caller, keys)
        self._known = Monitor.objects.only("name", "owner", "project").in_bulk(keys.union(parents))

    def changes(self, choice: Choice, *, adds: bool) -> list[dict[str, Any]]:
        """Return the changes for the audit log. `adds`: the parents are added. Raises DependencyRefused."""
        child, present = choice.child, self._present[choice.child.pk]
        parents = [*dict.fromkeys([*(key for key in present if adds and key in self._visible), *choice.parents])]
        keys = [*dict.fromkeys([*parents, *(key for key in present if key not in self._visible)])]
        _check_each(choice._replace(parents=parents), self._known, count=len(keys))
        descendants = _below([child.pk], self._edges) if self._below.get(child.pk, 1) > 1 else set()
        for index, key in enumerate(parents):
            if key in descendants:
                raise DependencyRefused(_CYCLE, child=child, index=index)
        if set(keys) - set(present):
            _check_length(child, max(self._above.get(key, 1) for key in keys) + self._below.get(child.pk, 1))
        return _change(child, *([self._known.get(key) for key in side] for side in (present, keys)))


def forget(keys: Collection[int]) -> None:
    """Delete the dependencies of monitors that move to another owner, in both directions."""
    rows = _lock(Q(child__in=keys) | Q(parent__in=keys))
    Dependency.objects.filter(pk__in=[row.pk for row in rows]).delete()


def lock_rows(keys: Collection[int]) -> None:
    """Lock the dependencies of monitors that are about to be deleted, in key order."""
    _lock(Q(child__in=keys) | Q(parent__in=keys))


def possible_parents(
    monitors: QuerySet[Monitor], *, owners: Collection[int], children: Collection[int] = ()
) -> QuerySet[Monitor]:
    """Return those of the monitors that each of the owners' monitors `children`, or a new one, can depend on."""
    found = monitors.filter(owner__in=owners)
    edges = list(Dependency.objects.filter(child__owner__in=owners).values_list("child", "parent"))
    above, below = _heights(edges), 1
    impossible: set[int] = set()
    if children:
        heights = _heights([(parent, each) for each, parent in edges])
        below = max(heights.get(key, 1) for key in children)
        impossible = {*children, *_below(children, edges)}
    impossible |= {key for key, height in above.items() if height + below > LONGEST_CHAIN}
    return found.exclude(pk__in=impossible) if impossible else found


def _lock(condition: Q) -> list[Dependency]:
    return list(Dependency.objects.select_for_update().filter(condition).order_by("pk"))


def _visible(caller: Caller | None, keys: Collection[int]) -> Collection[int]:
    if caller is None or not keys:
        return keys
    return set(accessible(caller, Monitor.objects.filter(pk__in=keys)).values_list("pk", flat=True))


def _check_each(choice: Choice, known: Mapping[int, Monitor], *, count: int) -> None:
    child = choice.child
    for index, key in enumerate(choice.parents):
        if key == child.pk:
            raise DependencyRefused("a monitor cannot depend on itself.", child=child, index=index)
        if key not in known:
            raise DependencyRefused("monitor not found.", child=child, index=index)
        if known[key].owner_id != choice.owner_id:
            raise DependencyRefused("belongs to another account.", child=child, index=index)
    if count > MAX_PARENTS:
        others = "" if count == len(choice.parents) else ", with those that you cannot see"
        raise DependencyRefused(f"at most {MAX_PARENTS} monitors{others}.", child=child)


def _check_chains(choices: Sequence[Choice]) -> None:
    """Raise DependencyRefused if a stored chain with one of these monitors is a cycle or too long."""
    edges = _edges_around([choice.child.pk for choice in choices])
    above, below = _heights(edges), _heights([(parent, child) for child, parent in edges])
    nodes = {key for edge in edges for key in edge}
    for child, _, parents in choices if len(above) < len(nodes) else ():
        descendants = set() if child.pk in above else _below([child.pk], edges)
        for index, key in enumerate(parents):
            if key in descendants:
                raise DependencyRefused(_CYCLE, child=child, index=index)
    for child, *_ in choices:
        _check_length(child, above.get(child.pk, 1) + below.get(child.pk, 1) - 1)


def _check_length(child: Monitor, length: int) -> None:
    if length > LONGEST_CHAIN:
        reason = f"makes a chain of {length} monitors that depend on each other; at most {LONGEST_CHAIN}."
        raise DependencyRefused(reason, child=child)


def _edges_around(keys: Collection[int]) -> list[Edge]:
    """Return the dependencies of all chains with these monitors. UNION reads each once, also in cycles."""
    table = Dependency._meta.db_table
    statement = f"""
        WITH RECURSIVE up AS (
            SELECT child_id, parent_id FROM {table} WHERE child_id = ANY(%(keys)s)
            UNION
            SELECT edge.child_id, edge.parent_id FROM up JOIN {table} AS edge ON edge.child_id = up.parent_id
        ), down AS (
            SELECT child_id, parent_id FROM {table} WHERE parent_id = ANY(%(keys)s)
            UNION
            SELECT edge.child_id, edge.parent_id FROM down JOIN {table} AS edge ON edge.parent_id = down.child_id
        )
        SELECT * FROM up UNION SELECT * FROM down
    """  # noqa: S608 - the table's name
    with connection.cursor() as cursor:
        cursor.execute(statement, {"keys": list(keys)})
        return [(child, parent) for child, parent in cursor.fetchall()]


def _heights(edges: Iterable[Edge]) -> dict[int, int]:
    """Return how many monitors the longest chain up from each monitor has, itself included.

    Without those of a cycle, and those below one. Each edge is followed once.
    """
    children: dict[int, list[int]] = defaultdict(list)
    waiting: Counter[int] = Counter()
    for child, parent in edges:
        children[parent].append(child)
        waiting[child] += 1
    found: dict[int, int] = {}
    level, height = [key for key in children if key not in waiting], 1
    while level:
        found |= dict.fromkeys(level, height)
        freed = []
        for child in (child for key in level for child in children[key]):
            waiting[child] -= 1
            if not waiting[child]:  # its last parent, which is the highest one
                freed.append(child)
        level, height = freed, height + 1
    return found


def _below(keys: Collection[int], edges: Iterable[Edge]) -> set[int]:
    """Return the monitors that depend on one of these, directly or through others."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in edges:
        children[parent].append(child)
    found: set[int] = set()
    waiting = [*keys]
    while waiting:
        new = [child for child in children[waiting.pop()] if child not in found]
        found.update(new)
        waiting += new
    return found


def _change(child: Monitor, before: Sequence[Monitor | None], after: Sequence[Monitor | None]) -> list[dict[str, Any]]:
    """Return the change for the audit log, by names: ids of heartbeats are secrets.

    Readers of a project's log may have no access to parents elsewhere, so their names are left out.
    """
    if before == after:
        return []
    old, new = (
        tuple(each.name for each in side if each and child.project_id in (None, each.project_id))
        for side in (before, after)
    )
    return [{"field": FIELD}] if old == new else changes.changed(FIELD, old, new)
