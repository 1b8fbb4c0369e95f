"""Which monitors depend on which, in files."""

from __future__ import annotations

import pytest

from accounts.models import User
from core.clock import utc_now
from manifests.exporting import export
from monitors.models import Dependency, Monitor
from projects.access import Caller
from projects.models import Project
from pulsekeeper.manifest.problems import InvalidManifest
from pulsekeeper.manifest.yaml_writer import write
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.manifests.helpers import apply_text, exported, refusal, told

pytestmark = pytest.mark.django_db

FILE = """
    version: 1
    projects: [{name: Shop}]
    monitors:
      - {name: Web, project: Shop, type: heartbeat, depends_on: [Server, {project: null, name: Router}]}
      - {name: Server, project: Shop, type: heartbeat, depends_on: [{project: null, name: Router}]}
      - {name: Router, type: heartbeat}
"""


@pytest.fixture
def user() -> User:
    return UserFactory()


def names() -> list[tuple[str, str]]:
    rows = Dependency.objects.order_by("child__name", "position")
    return list(rows.values_list("child__name", "parent__name"))


def file(**parents: str) -> str:
    rows = [f"  - {{name: {name}, type: heartbeat, depends_on: [{given}]}}" for name, given in parents.items()]
    return "\n".join(["version: 1", "ungrouped: true", "monitors:", *rows])


def test_a_file_creates_them_in_any_order_and_exports_them(user: User) -> None:
    report = apply_text(user, FILE, dry_run=True)
    assert not names()
    assert told(report)[1:] == [
        "+ monitor 'Web' in Shop",
        "+ monitor 'Server' in Shop",
        "+ monitor 'Router'",
    ]
    apply_text(user, FILE)
    assert names() == [("Server", "Router"), ("Web", "Server"), ("Web", "Router")]
    text = exported(user)
    assert text.count("depends_on") == 2
    assert apply_text(user, FILE).changes == apply_text(user, text).changes == []
    assert apply_text(user, exported(user, with_ids=True)).changes == []
    shop = Project.objects.get()
    part = exported(user, project_id=shop.public_id)
    assert "name: Router" in part
    assert apply_text(user, part).changes == []


def test_a_file_changes_orders_reverses_and_removes_them(user: User) -> None:
    apply_text(user, file(a="", b="a", c="b, a"))
    assert told(apply_text(user, file(a="", b="a", c="a, b"))) == ["~ monitor 'c'", "    depends_on: b, a → a, b"]
    assert names() == [("b", "a"), ("c", "a"), ("c", "b")]
    report = apply_text(user, file(c="", b="c", a="b, c"), dry_run=True)
    assert sorted(told(report))[:2] == ["    depends_on[a]: parent → none", "    depends_on[a]: parent → none"]
    apply_text(user, file(c="", b="c", a="b, c"))
    assert names() == [("a", "b"), ("a", "c"), ("b", "c")]
    apply_text(user, "version: 1\nmonitors: [{name: a, type: heartbeat}, {name: b, type: heartbeat}]")
    assert names() == []


def test_a_stored_monitor_can_depend_on_a_new_one_and_on_one_outside_the_file(user: User) -> None:
    MonitorFactory(owner=user, heartbeat=True, name="old")
    MonitorFactory(owner=user, heartbeat=True, name="outside")
    apply_text(user, file(old="new, outside", new=""))
    assert names() == [("old", "new"), ("old", "outside")]


@pytest.mark.parametrize(
    ("parents", "problem"),
    [
        ({"a": "a"}, "monitors[0].depends_on[0]: a monitor cannot depend on itself."),
        ({"a": "b, c, b", "b": "", "c": ""}, "monitors[0].depends_on[2]: b is listed twice."),
        ({"a": "bb", "b": ""}, "monitors[0].depends_on[0]: no monitor 'bb' outside of projects. Did you mean 'b'?"),
        ({"a": "{id: mon_x}"}, "monitors[0].depends_on[0]: monitor not found."),
        ({"a": "5"}, "monitors[0].depends_on[0]: must be the name of a monitor, or {project, name}, or {id}."),
        (
            {"a": "b", "b": "c", "c": "a"},
            "monitors[0].depends_on[0]: depends on this monitor itself, directly or through others.",
        ),
        (
            {"m0": "", **{f"m{number}": f"m{number - 1}" for number in range(1, 17)}},
            "monitors[1].depends_on: makes a chain of 17 monitors that depend on each other; at most 16.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(user: User, parents: dict[str, str], problem: str) -> None:
    (found,) = refusal(user, file(**parents))
    assert found.partition(": ")[2] == problem
    assert not names()


def test_a_list_of_more_than_8_is_refused(user: User) -> None:
    (problem,) = refusal(user, file(a=", ".join(f"m{number}" for number in range(9))))
    assert "monitors[0].depends_on" in problem


def test_an_invalid_parent_is_reported_once(user: User) -> None:
    text = file(a="b", b="") + "\n  - {name: c, type: nothing}\n  - {name: d, type: heartbeat, depends_on: [c]}"
    (problem,) = refusal(user, text)
    assert "monitors[2].type" in problem


def test_prune_removes_a_parent_unless_the_file_names_it(user: User) -> None:
    apply_text(user, file(router="", web="router"))
    (problem,) = pruned(user, file(web="router"))
    assert problem.endswith("monitors[0].depends_on[0]: monitor not found.")
    assert names() == [("web", "router")]
    apply_text(user, file(web=""), prune=True)
    assert names() == []


def pruned(user: User, text: str) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        apply_text(user, text, prune=True)
    return [problem.format("f.yaml") for problem in refused.value.problems]


def test_prune_of_a_parent_of_others_ends_the_dependency(user: User) -> None:
    project = ProjectFactory(owner=user, name="Shop")
    router = MonitorFactory(owner=user, project=project, heartbeat=True, name="router")
    MonitorFactory(owner=user, heartbeat=True, name="web", depends_on=[router.public_id])
    apply_text(user, "version: 1\nprojects: [{name: Shop}]\nmonitors: []", prune=True)
    assert names() == []


def test_those_that_the_caller_does_not_see_are_kept(user: User) -> None:
    member = UserFactory()
    project = ProjectFactory(owner=user, member=member, name="Shop")
    hidden = MonitorFactory(owner=user, heartbeat=True, name="hidden")
    MonitorFactory(owner=user, project=project, heartbeat=True, name="a", depends_on=[hidden.public_id])
    MonitorFactory(owner=user, project=project, heartbeat=True, name="b")
    text = exported(member)
    assert "hidden" not in text
    assert hidden.public_id not in text
    apply_text(member, text.replace("name: a\n", "name: a\n    depends_on: [b]\n"))
    assert names() == [("a", "b"), ("a", "hidden")]


def test_a_move_of_both_to_another_owner_keeps_what_the_file_says(user: User) -> None:
    receiver = UserFactory()
    ProjectFactory(owner=receiver, member=user, name="Theirs")
    apply_text(user, file(router="", switch="router", web="switch"))
    text = "version: 1\nprojects: [{name: Theirs}]\nmonitors:"
    by_name = dict(Monitor.objects.values_list("name", "public_id"))
    rows = [
        f"  - {{id: {by_name['router']}, name: router, type: heartbeat, project: Theirs}}",
        f"  - {{id: {by_name['switch']}, name: switch, type: heartbeat, project: Theirs, depends_on: [router]}}",
    ]
    apply_text(user, "\n".join([text, *rows]))
    assert names() == [("switch", "router")]
    moved = f"  - {{id: {by_name['web']}, name: web, type: heartbeat, depends_on: [{{project: Theirs, name: switch}}]}}"
    (problem,) = refusal(user, "\n".join([text, *rows, moved]))
    assert problem.endswith("monitors[2].depends_on[0]: belongs to another account.")


def test_a_project_token_sees_only_its_project(user: User) -> None:
    apply_text(user, FILE)
    project = Project.objects.get()
    text = write(export(Caller(user, project), project_id=None, with_ids=True, now=utc_now()))
    assert "Router" not in text
    assert text.count("depends_on") == 1
