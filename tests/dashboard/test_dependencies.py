"""Which monitors depend on which, on the dashboard: the form, the page of a monitor, and the filter of the overview."""

from __future__ import annotations

import re
from html import unescape

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import utc_now
from monitors.configuration import build
from monitors.models import Dependency, Monitor
from monitors.services import Draft, create_monitor, create_monitors, update_monitor
from projects.access import Caller
from tests.dashboard.test_monitor_pages import errors_in, typed
from tests.dashboard.test_tags import names_in
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import NOON


def monitor(user: User, name: str, *parents: Monitor, **given: object) -> Monitor:
    body = {"type": "heartbeat", "name": name, "depends_on": [parent.public_id for parent in parents], **given}
    return create_monitor(Caller(user), body, now=NOON)


def offered(html: str) -> dict[str, bool]:
    """Return the labels that the picker offers, and whether each is selected."""
    rows = re.findall(r'name="depends_on" value="[^"]*"( checked)?>\s*<span>([^<]*)</span>', html)
    return {unescape(label): bool(checked) for checked, label in rows}


def stored(child: Monitor) -> list[str]:
    return list(child.dependencies.order_by("position").values_list("parent__name", flat=True))


def form(*parents: Monitor, **fields: str) -> dict[str, object]:
    ids = [parent.public_id for parent in parents]
    return {**typed(type="heartbeat", **fields), "depends_on": ids, "parents_offered": "1"}


def test_the_form_creates_changes_and_removes_them(web: Client, user: User) -> None:
    router, switch = monitor(user, "Router"), monitor(user, "Switch <b>")
    html = web.get("/monitors/new").content.decode()
    assert offered(html) == {"Router": False, "Switch <b>": False}
    assert '<details class="card foldable" id="parents">' in html
    web.post("/monitors/new", form(switch, name="Web"))
    child = Monitor.objects.get(name="Web")
    assert stored(child) == ["Switch <b>"]
    path = f"/monitors/{child.public_id}/edit"
    html = web.get(path).content.decode()
    assert offered(html) == {"Router": False, "Switch <b>": True}
    assert '<details class="card foldable" open id="parents">' in html
    web.post(path, form(router, switch, name="Web"))
    assert stored(child) == ["Switch <b>", "Router"], "those that stay keep their order"
    web.post(path, typed(type="heartbeat", name="Shop"))
    child.refresh_from_db()
    assert (child.name, stored(child)) == ("Shop", ["Switch <b>", "Router"]), "a form without the list keeps them"
    web.post(path, form(name="Shop"))
    assert stored(child) == []


def test_the_form_offers_no_cycle_no_long_chain_and_none_of_other_accounts(web: Client, user: User) -> None:
    other = UserFactory()
    project = ProjectFactory(owner=other, member=user, name="Theirs")
    monitor(other, "foreign")
    monitor(other, "theirs", project_id=project.public_id)
    chain = [monitor(user, "m00")]
    for number in range(1, 15):
        chain.append(monitor(user, f"m{number:02}", chain[-1]))
    spare = monitor(user, "spare")
    assert [*offered(web.get(f"/monitors/{chain[2].public_id}/edit").content.decode())] == ["m01", "m00", "spare"]
    assert "m14" in offered(web.get("/monitors/new").content.decode())
    assert "m14" in offered(web.get(f"/monitors/{spare.public_id}/edit").content.decode())
    lower = monitor(user, "lower", spare)
    assert "m14" not in offered(web.get(f"/monitors/{spare.public_id}/edit").content.decode())
    monitor(user, "last", chain[-1])
    assert "last" not in offered(web.get("/monitors/new").content.decode())
    assert "lower" not in offered(web.get(f"/monitors/{lower.public_id}/edit").content.decode())
    # Another place has other ones.
    html = web.get("/monitors/parents", {"project_id": project.public_id}).content.decode()
    assert offered(html) == {"theirs · Theirs": False}
    given = {"project_id": "", "monitor": chain[1].public_id, "depends_on": chain[0].public_id}
    assert offered(web.get("/monitors/parents", given).content.decode()) == {"m00": True, "spare": False}


def test_a_refused_one_is_named(web: Client, user: User) -> None:
    router = monitor(user, "Router")
    child = monitor(user, "Web", router)
    html = web.post(f"/monitors/{router.public_id}/edit", form(child, name="Router")).content.decode()
    (error,) = errors_in(html)
    assert "depends on this monitor itself, directly or through others." in error
    assert 'href="#parents"' in html
    foreign = monitor(UserFactory(), "foreign")
    html = web.post(f"/monitors/{child.public_id}/edit", form(foreign, router, name="Web")).content.decode()
    assert ["monitor not found." in error for error in errors_in(html)] == [True]
    assert offered(html)["Router"]
    nine = [monitor(user, f"n{number}") for number in range(9)]
    html = web.post("/monitors/new", form(*nine, name="Many")).content.decode()
    assert len(errors_in(html)) == 1
    assert not Monitor.objects.filter(name="Many").exists()


def test_an_outdated_form_shows_both(web: Client, user: User) -> None:
    router, switch, child = monitor(user, "Router"), monitor(user, "Switch"), monitor(user, "Web")
    path = f"/monitors/{child.public_id}/edit"
    html = web.get(path).content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(form_\w+)" value="([^"]*)"', html))
    update_monitor(Caller(user), child.public_id, {"depends_on": [router.public_id]}, now=utc_now())
    data = form(switch, name="Web") | {name: unescape(value) for name, value in hidden.items()}
    html = web.post(path, data).content.decode()
    assert "The settings were changed after you opened this form." in html
    assert stored(child) == ["Router"]


def test_a_copy_has_them(web: Client, user: User) -> None:
    child = monitor(user, "Web", monitor(user, "Router"))
    html = web.get(f"/monitors/new?from={child.public_id}").content.decode()
    assert offered(html) == {"Router": True, "Web": False}


def test_the_page_links_parents_and_children(web: Client, user: User) -> None:
    router = monitor(user, "Router & co")
    web_server = monitor(user, "Web", router)
    html = web.get(f"/monitors/{web_server.public_id}").content.decode()
    link = f'<dt>Depends on</dt><dd><a href="/monitors/{router.public_id}">Router &amp; co</a>'
    assert link in html
    assert "Dependents" not in html
    text = web.get(f"/monitors/{router.public_id}").content.decode()
    assert f'<a href="/monitors?depends_on={router.public_id}">1 monitor depends on it</a>' in text
    monitor(user, "Shop", router, web_server)
    text = web.get(f"/monitors/{router.public_id}").content.decode()
    assert ">2 monitors depend on it</a>" in text


def test_the_overview_filters_by_a_parent(web: Client, user: User) -> None:
    router = monitor(user, "Router <x>")
    monitor(user, "a", router)
    monitor(user, "b", router, tags=["web"])
    monitor(user, "c", tags=["web"])
    path = f"/monitors?depends_on={router.public_id}"
    html = web.get(path).content.decode()
    assert names_in(html) == ["a", "b"]
    assert 'aria-label="Remove the filter: depends on Router &lt;x&gt;"' in html
    assert html.count(f'<input type="hidden" name="depends_on" value="{router.public_id}">') == 2
    assert names_in(web.get(f"{path}&tag=web").content.decode()) == ["b"]
    assert names_in(web.get("/monitors?depends_on=%00").content.decode()) == ["a", "b", "c", "Router &lt;x&gt;"]
    foreign = monitor(UserFactory(), "secret name")
    html = web.get(f"/monitors?depends_on={foreign.public_id}").content.decode()
    assert names_in(html) == []
    assert "secret name" not in html
    web.post("/monitors/actions", {"action": "pause", "all": "1", "depends_on": router.public_id})
    assert set(Monitor.objects.filter(enabled=False).values_list("name", flat=True)) == {"a", "b"}


def test_a_member_sees_only_those_of_the_project(web: Client, user: User) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner, member=user)
    hidden = monitor(owner, "hidden router")
    router = monitor(owner, "Router", project_id=project.public_id)
    child = monitor(owner, "Web", hidden, router, project_id=project.public_id)
    monitor(owner, "hidden child", router)
    html = web.get(f"/monitors/{child.public_id}").content.decode()
    assert "Router" in html
    assert "hidden router" not in html
    assert "1 monitor depends on it" in web.get(f"/monitors/{router.public_id}").content.decode()
    html = web.get(f"/monitors/{child.public_id}/edit").content.decode()
    assert offered(html) == {f"Router · {project.name}": True}
    web.post(f"/monitors/{child.public_id}/edit", form(name="Web", project_id=project.public_id))
    assert stored(child) == ["hidden router"]


def test_a_thousand_monitors_cost_the_pages_no_more_queries(web: Client, user: User) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert web.get(path).status_code == 200
        return len(captured)

    router = monitor(user, "Router")
    child = monitor(user, "Web", router)
    paths = [f"/monitors/{router.public_id}", f"/monitors/{child.public_id}/edit", "/monitors/new"]
    paths.append(f"/monitors?depends_on={router.public_id}")
    before = [queries(path) for path in paths]
    before = [queries(path) for path in paths]
    config = build({"type": "heartbeat", "interval_sec": 3600, "name": "n"})
    many = create_monitors(Caller(user), [Draft(user, None, config)] * 990, now=NOON)
    Dependency.objects.bulk_create(Dependency(child=each, parent=router, position=0) for each in many)
    assert [queries(path) for path in paths] == before
    assert before[0] <= 20
