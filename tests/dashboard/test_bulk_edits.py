"""Editing the selected monitors on the dashboard: form, preview, change and undo."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from alerts.models import AlertChannel
from audit.models import Entry
from core.clock import utc_now
from monitors import bulk_edits, services
from monitors.models import BulkEdit, BulkEditItem, Monitor
from monitors.services import create_monitor, update_monitor
from monitors.tasks import forget_bulk_edits
from projects.access import Caller
from tests.factories import ChannelFactory, ProjectFactory, UserFactory

NEEDLE = "needle-in-a-header"


def tagged(user: User, *tags: str, **given: Any) -> Monitor:
    given = {"url": "http://shop.example/", "tags": list(tags)} | given
    return create_monitor(Caller(user), given, now=utc_now())


def send(web: Client, monitors: list[Monitor], step: str = "apply", **fields: Any) -> Any:
    ids = ",".join(monitor.public_id for monitor in monitors)
    return web.post("/monitors/edits", {"monitors": ids, "next": "/monitors?tag=web", "step": step, **fields})


def undo(web: Client, *, times: int = 1) -> str:
    path = f"/monitors/edits/{BulkEdit.objects.latest('pk').public_id}"
    for _ in range(times):
        assert web.post(f"{path}/undo").status_code == 302
    html: str = web.get(path).content.decode()
    return html


def fresh(monitor: Monitor) -> Monitor:
    return Monitor.objects.select_related("project", "owner").get(pk=monitor.pk)


def test_the_selection_leads_to_the_form(web: Client, user: User) -> None:
    first, second = tagged(user, "web"), tagged(user, "web")
    some = web.post("/monitors/actions", {"action": "edit", "monitor": first.public_id, "next": "/monitors?tag=web"})
    html = some.content.decode()
    assert "Edit 1 monitor" in html
    assert f'value="{first.public_id}"' in html
    assert 'href="/monitors?tag=web"' in html
    everything = web.post("/monitors/actions", {"action": "edit", "all": "1", "tag": "web"})
    assert f'value="{first.public_id},{second.public_id}"' in everything.content.decode()
    assert "Select at least one" in web.post("/monitors/actions", {"action": "edit"}, follow=True).content.decode()


def test_the_preview_changes_nothing_and_has_reasons(web: Client, user: User) -> None:
    here, project = ProjectFactory(owner=user), ProjectFactory(owner=UserFactory(), member=user)
    theirs = tagged(user, project_id=project.public_id, name="Theirs")
    own = tagged(user, "web", name="Own <b>")
    same = tagged(user, "web", "new", name="Same", timeout_ms=5000, project_id=here.public_id)
    fields = {"add_tags": "New", "timeout_ms": "5s", "project_id": here.public_id}
    answer = send(web, [own, same, theirs], "preview", **fields)
    html = answer.content.decode()
    assert answer.status_code == 200
    assert "1 to change, 1 unchanged, 1 refused." in html
    assert "Own &lt;b&gt;" in html
    assert "10s → 5s" in html
    assert "web → web; New" in html
    assert "Only owners and admins" in html
    assert Monitor.objects.filter(timeout_ms=5000).count() == 1
    assert not BulkEdit.objects.exists()
    back = send(web, [own], "form", add_tags="New").content.decode()
    assert re.search(r'name="add_tags"[^>]*value="New"', back)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "Fill in at least one field"),
        ({"add_tags": "a, A"}, "more than once"),
        ({"interval_sec": "soon"}, "Enter a duration"),
        ({"timeout_ms": "1h"}, "At most"),
        ({"project_id": "prj_odd"}, "Select a valid choice"),
    ],
)
def test_invalid_input_is_refused(web: Client, user: User, fields: dict[str, Any], error: str) -> None:
    answer = send(web, [tagged(user, "web")], **fields)
    assert answer.status_code == 422
    assert error in answer.content.decode()
    assert not BulkEdit.objects.exists()


def test_tags_are_added_removed_and_replaced(web: Client, user: User) -> None:
    one, two = tagged(user, "Web", "db"), tagged(user, "x")
    send(web, [one, two], add_tags="new, WEB", remove_tags="DB, none")
    assert (fresh(one).tags, fresh(two).tags) == (["Web", "new"], ["x", "new", "WEB"])
    send(web, [one, two], add_tags="only", replace_tags="on")
    assert (fresh(one).tags, fresh(two).tags) == (["only"], ["only"])
    send(web, [one], replace_tags="on")
    assert fresh(one).tags == []
    undo(web)
    assert fresh(one).tags == ["only"]


def test_a_change_can_be_undone(web: Client, user: User) -> None:
    """Also its secrets, which are stored encrypted."""
    project = ProjectFactory(owner=user)
    headers = [{"name": "X-Key", "value": NEEDLE, "type": "custom"}]
    one = tagged(user, "web", url="https://shop.example/", request_headers=headers, check_ssl=True)
    two = tagged(user, "db", type="heartbeat", url="")
    before = [(fresh(each).full_config, fresh(each).project) for each in (one, two)]
    fields = {"interval_sec": "10m", "check_ssl": "off", "project_id": project.public_id, "confirmation_sec": "30s"}
    answer = send(web, [one, two], **fields)
    assert answer.status_code == 302
    html = web.get(answer["Location"]).content.decode()
    assert "Changed 2 monitors." in html
    assert "Undo" in html
    assert html.count('href="/monitors?tag=web"') == 2, "back to the list with its filters"
    assert '<input type="hidden" name="next" value="/monitors?tag=web">' in html
    elsewhere = web.get(answer["Location"].partition("?")[0], {"next": "https://evil.example/"}).content.decode()
    assert "evil.example" not in elsewhere
    assert (fresh(one).interval_sec, fresh(one).check_ssl, fresh(one).project) == (600, False, project)
    assert NEEDLE not in str(list(BulkEditItem.objects.values()))
    assert "Restored 2 monitors." in undo(web)
    assert [(fresh(each).full_config, fresh(each).project) for each in (one, two)] == before
    assert "This change was undone." in undo(web)
    assert list(Entry.objects.filter(action="edit.undone").values_list("details__monitors", flat=True)) == [2]


def test_an_undo_leaves_what_was_changed_since(web: Client, user: User) -> None:
    changed, gone, kept = (tagged(user, "web", name=name) for name in ("Changed", "Gone", "Kept"))
    send(web, [changed, gone, kept], slow_ms="3s")
    update_monitor(Caller(user), changed.public_id, {"slow_ms": 4000}, now=utc_now())
    gone.delete()
    html = undo(web)
    assert "Restored 1 monitor." in html
    assert "Changed unchanged: Changed since." in html
    assert (fresh(changed).slow_ms, fresh(kept).slow_ms) == (4000, 1500)
    # It can be tried again: back to what the edit left, nothing stands in its way.
    update_monitor(Caller(user), changed.public_id, {"slow_ms": 3000}, now=utc_now())
    undo(web)
    assert fresh(changed).slow_ms == 1500


def test_an_interrupted_edit_can_be_undone(user: User, monkeypatch: pytest.MonkeyPatch, web: Client) -> None:
    """What an undo needs is stored with each change."""
    monitors = [tagged(user, "web") for _ in range(3)]
    store, calls = services.update_locked, list[str]()

    def stop(caller: Caller, monitor: Monitor, *args: Any, **kwargs: Any) -> None:
        calls.append(monitor.public_id)
        if len(calls) == 3:
            raise KeyboardInterrupt
        store(caller, monitor, *args, **kwargs)

    monkeypatch.setattr(services, "update_locked", stop)
    with pytest.raises(KeyboardInterrupt):
        send(web, monitors, slow_ms="3s")
    assert Monitor.objects.filter(slow_ms=3000).count() == 2
    undo(web)
    assert not Monitor.objects.filter(slow_ms=3000).exists()


def test_a_move_to_another_owner_is_not_undone(web: Client, user: User) -> None:
    other = UserFactory()
    project = ProjectFactory(owner=other, admin=user)
    monitor = tagged(user, "web", request_headers=[{"name": "X-Key", "value": NEEDLE}])
    send(web, [monitor], project_id=project.public_id)
    assert fresh(monitor).owner == other
    assert BulkEditItem.objects.get().before is None
    assert "another owner" in undo(web)
    assert fresh(monitor).owner == other


def test_the_time_to_undo_ends(web: Client, user: User) -> None:
    monitor = tagged(user, "web")
    send(web, [monitor], slow_ms="3s")
    edit = BulkEdit.objects.get()
    BulkEdit.objects.update(created_at=utc_now() - timedelta(minutes=10))
    assert web.post(f"/monitors/edits/{edit.public_id}/undo").status_code == 404
    assert fresh(monitor).slow_ms == 3000
    forget_bulk_edits()
    assert not BulkEditItem.objects.exists()


def test_nobody_else_sees_or_undoes_it(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    stranger, member = UserFactory(), UserFactory()
    shared, own = tagged(user, "web", project_id=project.public_id), tagged(user, "web")
    send(web, [shared, own], slow_ms="3s")
    path = f"/monitors/edits/{BulkEdit.objects.get().public_id}"
    for person in (stranger, member):
        theirs = Client()
        theirs.force_login(person)
        assert theirs.get(path).status_code == theirs.post(f"{path}/undo").status_code == 404
        send(theirs, [shared, own], slow_ms="4s")
    assert Monitor.objects.filter(slow_ms=3000).count() == 2


def test_only_the_last_edits_are_kept(web: Client, user: User) -> None:
    monitor = tagged(user, "web")
    for number in range(bulk_edits.EDITS_KEPT + 2):
        send(web, [monitor], slow_ms=f"{number + 2}s")
    assert BulkEdit.objects.count() == BulkEditItem.objects.count() == bulk_edits.EDITS_KEPT


def parents_of(monitor: Monitor) -> list[str]:
    return list(monitor.dependencies.order_by("position").values_list("parent__name", flat=True))


def test_parents_are_added_and_replaced(web: Client, user: User) -> None:
    router, switch, disk = (tagged(user, name=name) for name in ("Router", "Switch", "Disk"))
    one = tagged(user, "web", name="One", depends_on=[disk.public_id])
    two = tagged(user, "web", name="Two", depends_on=[router.public_id])
    html = web.post("/monitors/actions", {"action": "edit", "monitor": [one.public_id, two.public_id]}).content.decode()
    assert re.findall(r'name="add_parents" value="[^"]*">\s*<span>([^<]*)</span>', html) == ["Disk", "Router", "Switch"]
    chosen: dict[str, Any] = {"add_parents": [router.public_id, switch.public_id]}
    html = send(web, [one, two], "preview", **chosen).content.decode()
    assert "2 to change" in html
    assert "Disk → Disk; Router; Switch" in html
    assert "Depends on:" in html
    assert parents_of(one) == ["Disk"]
    send(web, [one, two], **chosen)
    assert (parents_of(one), parents_of(two)) == (["Disk", "Router", "Switch"], ["Router", "Switch"])
    send(web, [one, two], replace_parents="on", add_parents=switch.public_id)
    assert (parents_of(one), parents_of(two)) == (["Switch"], ["Switch"])
    send(web, [one], replace_parents="on")
    assert parents_of(one) == []


def test_an_undo_restores_the_parents_that_are_left(web: Client, user: User) -> None:
    router, disk, gone = (tagged(user, name=name) for name in ("Router", "Disk", "Gone"))
    one = tagged(user, "web", depends_on=[gone.public_id, disk.public_id])
    two = tagged(user, "web", slow_ms=2000)
    send(web, [one, two], add_parents=router.public_id, replace_parents="on", slow_ms="3s")
    services.delete_monitor(Caller(user), gone.public_id)
    assert "Restored 2 monitors." in undo(web)
    assert (parents_of(one), parents_of(two)) == (["Disk"], [])
    assert (fresh(one).slow_ms, fresh(two).slow_ms) == (1500, 2000)


def test_parents_that_make_a_cycle_are_refused(web: Client, user: User) -> None:
    router = tagged(user, name="Router")
    below = tagged(user, name="Below", depends_on=[router.public_id])
    html = send(web, [router, tagged(user)], "preview", add_parents=below.public_id).content.decode()
    assert "1 to change, 0 unchanged, 1 refused." in html
    assert "Dependencies: depends on this monitor itself" in html
    foreign = tagged(UserFactory())
    answer = send(web, [router], add_parents=foreign.public_id)
    assert answer.status_code == 422
    assert "Monitor not found." in answer.content.decode()
    # Nor does the form offer them.
    html = web.post("/monitors/actions", {"action": "edit", "monitor": router.public_id}).content.decode()
    assert 'name="add_parents" value=' in html
    assert "<span>Below</span>" not in html


def test_channels_choose_the_monitors(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    first, second, inside = tagged(user), tagged(user), tagged(user, project_id=project.public_id)
    personal = ChannelFactory(owner=user, name="Ops", monitors="chosen", monitor_ids=[first.public_id])
    shared = ChannelFactory(project=project, name="Shop", monitors="chosen", monitor_ids=[inside.public_id])

    def chosen(channel: AlertChannel) -> set[int]:
        return set(channel.monitors.values_list("pk", flat=True))

    html = send(web, [first, second], "preview", add_channels=personal.public_id).content.decode()
    assert "Ops is going to notify of" in html
    answer = send(web, [first, second, inside], add_channels=[personal.public_id, shared.public_id])
    html = web.get(answer["Location"]).content.decode()
    assert "Ops now notifies of 2 monitors." in html
    assert "Shop cannot choose 2 monitors outside of its project." in html
    assert (chosen(personal), chosen(shared)) == ({first.pk, second.pk, inside.pk}, {inside.pk})
    undo(web)
    assert chosen(personal) == {first.pk}
    answer = send(web, [first], remove_channels=personal.public_id)
    assert "Ops has no other monitor" in web.get(answer["Location"]).content.decode()
    assert chosen(personal) == {first.pk}
