"""Walk all pages as a viewer: no control answers 403, and none shows a ping address or where alerts go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.db import transaction
from django.test import Client

from core import replies
from core.clock import utc_now
from dashboard.monitors.listing import PAGE
from monitors.models import BulkEdit, Dependency, Monitor
from projects.access import Caller
from projects.members import change_role
from tests.factories import ChannelFactory, MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.viewing import HINT, Viewing, make_viewing

pytestmark = pytest.mark.django_db

OUTSIDE = ("/account/", "/status/", "/badge/", "/docs", "/static/", "/changes", "/connectors/")
"""Other parts, and what asks other servers."""


@dataclass
class Form:
    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class Controls(HTMLParser):
    """The addresses that a page requests by GET, and its forms."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page, self.links, self.forms = page, set[str](), list[Form]()
        self.requests: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name in ("hx-get", "data-poll", "data-latency", "data-live"):
            if given.get(name):
                self.links.add(self._absolute(given[name]))
        for method in ("post", "put", "patch", "delete"):
            if f"hx-{method}" in given:
                self.requests.add((method, self._absolute(given[f"hx-{method}"])))
        if tag == "a" and "href" in given:
            self.links.add(self._absolute(given["href"]))
        elif tag == "form":
            self.forms.append(Form(given.get("method", "get"), self._absolute(given.get("action", ""))))
        elif self.forms and tag in ("input", "textarea", "button") and given.get("name"):
            if tag == "button":
                self.forms[-1].buttons.append((given["name"], given.get("value", "")))
            elif given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self.forms[-1].fields[given["name"]] = given.get("value", "")

    def _absolute(self, address: str) -> str:
        parts = urlsplit(urljoin(self.page, address))
        return parts._replace(fragment="").geturl()


def walk(web: Client, scene: Viewing) -> Iterator[tuple[str, str, list[Form], set[tuple[str, str]]]]:
    """Yield address, text, forms and other requests of each page that can be reached."""
    starts = ["/monitors?grouped=1", "/incidents", "/status-pages", "/alert-channels", "/maintenance", "/on-call"]
    waiting, seen = (
        [*starts, "/monitors", "/projects", "/locations", "/tokens", "/connectors", "/monitors/tags"],
        set[str](),
    )
    while waiting:
        address = waiting.pop()
        parts = urlsplit(address)
        if parts.path.startswith("/on-call/schedules/") and re.search("(at|from|view)=", parts.query):
            continue  # calendars lead on without an end
        if address in seen or parts.netloc or not parts.path.startswith("/") or parts.path.startswith(OUTSIDE):
            continue
        seen.add(address)
        answer = web.get(address)
        is_deleted = parts.path in (f"/monitors/{scene.deleted}", f"/monitors/{scene.deleted_reading_id}")
        assert is_deleted or answer.status_code in (200, 204, 302), (address, answer.status_code)
        text = answer.getvalue().decode()
        controls = Controls(address)
        controls.feed(text)
        waiting += controls.links
        yield address, text, controls.forms, controls.requests


@pytest.fixture
def scene(db: None) -> Viewing:
    return make_viewing()


def test_no_control_of_a_viewer_is_refused(client: Client, scene: Viewing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "ask", lambda *_, **__: None)  # no worker runs, and the test does not wait for one
    client.force_login(scene.viewer)
    pressed, visited = set(), set()
    for address, _, forms, requests in walk(client, scene):
        visited.add(re.sub(r"[a-z]{3}_[a-z2-7]+", "*", urlsplit(address).path))
        for form in forms:
            if form.method != "post" or urlsplit(form.action).path.startswith(OUTSIDE):
                continue
            for name, value in form.buttons or [("", "")]:
                data = form.fields | ({name: value} if name else {})
                with transaction.atomic():
                    answer = client.post(form.action, data)
                    transaction.set_rollback(True)
                assert answer.status_code != 403, (address, form.action, name, value)
                pressed.add(re.sub(r"[a-z]{3}_[a-z2-7]+", "*", urlsplit(form.action).path))
        for method, target in requests:
            with transaction.atomic():
                assert client.generic(method, target).status_code != 403, (address, method, target)
                transaction.set_rollback(True)
    assert visited >= {"/monitors/*", "/monitors/*/changes", "/monitors/*/signals", "/monitors/*/badges"}
    assert visited >= {"/incidents/*", "/alert-channels/*", "/status-pages/*", "/projects/*", "/locations/*"}
    assert visited >= {"/on-call/schedules/*", "/on-call/policies/*", "/on-call/shifts"}
    assert {
        "/monitors/actions",
        "/monitors/*/delete",
        "/projects/*/members/*",
    } <= pressed  # of the own monitor; leaving


def test_pages_of_a_viewer_show_no_secret(client: Client, scene: Viewing) -> None:
    client.force_login(scene.viewer)
    pages = {address: text for address, text, *_ in walk(client, scene)}
    assert {address for address, text in pages.items() if any(secret in text for secret in scene.secrets)} == set()
    assert {address for address, text in pages.items() if HINT in text} == set()
    shown = {address for address, text in pages.items() if scene.heartbeat.reading_id in text}
    assert {
        "/monitors",
        f"/incidents/{scene.incident.public_id}",
        f"/alert-channels/{scene.channel.public_id}",
    } <= shown
    assert "Hidden from viewers" in pages[f"/monitors/{scene.heartbeat.reading_id}"]


def test_the_same_walk_shows_the_secrets_to_the_owner(client: Client, scene: Viewing) -> None:
    client.force_login(scene.owner)
    pages = {address: text for address, text, *_ in walk(client, scene)}
    for secret in (scene.heartbeat.public_id, HINT):
        assert any(secret in text for text in pages.values()), secret
    assert not any(scene.heartbeat.reading_id in text for text in pages.values())


def test_pages_that_change_something_are_refused(client: Client, scene: Viewing) -> None:
    client.force_login(scene.viewer)
    shown = scene.heartbeat.reading_id
    for path in (
        f"/monitors/{shown}/edit",
        f"/alert-channels/{scene.channel.public_id}/edit",
        f"/status-pages/{scene.page.public_id}/edit",
        f"/maintenance/{scene.project.maintenance_windows.get().public_id}",
        f"/monitors/new?from={shown}",
        f"/alert-channels/new?from={scene.channel.public_id}",
        f"/status-pages/new?from={scene.page.public_id}",
        f"/maintenance/new?from={scene.project.maintenance_windows.get().public_id}",
    ):
        assert client.get(path).status_code == 403, path
    for path in (
        f"/monitors/{scene.site.public_id}/check",
        f"/monitors/{shown}/delete",
        f"/monitors/{shown}/badges/give",
        f"/monitors/{shown}/badges/take",
        f"/incidents/{scene.incident.public_id}/acknowledge",
        f"/incidents/{scene.incident.public_id}/comments",
        f"/alert-channels/{scene.channel.public_id}/test",
        f"/alert-channels/{scene.channel.public_id}/delete",
        f"/status-pages/{scene.page.public_id}/delete",
        f"/projects/{scene.project.public_id}/rename",
        f"/projects/{scene.project.public_id}/members",
    ):
        assert client.post(path, {"text": "Me too."}).status_code == 403, path


def test_a_bulk_action_leaves_what_a_viewer_only_reads(client: Client, scene: Viewing) -> None:
    client.force_login(scene.viewer)
    chosen = ",".join([scene.heartbeat.reading_id, scene.site.public_id])
    answer = client.post("/monitors/actions", {"action": "pause", "monitor": chosen}, follow=True)
    assert "2 monitors unchanged: your role allows only reading." in answer.getvalue().decode()
    everything = client.post("/monitors/actions", {"action": "pause", "all": "1"}, follow=True)
    assert "Paused 1 monitor." in everything.getvalue().decode()
    scene.site.refresh_from_db()
    assert scene.site.enabled


def test_a_manager_makes_a_member_a_viewer(client: Client, scene: Viewing) -> None:
    client.force_login(scene.owner)
    page = f"/projects/{scene.project.public_id}"
    client.post(f"{page}/members", {"email": UserFactory().email, "role": "viewer"})
    text = client.get(page).getvalue().decode()
    assert text.count("Viewer since") == 2
    assert "Make member" in text


def test_an_edit_of_many_monitors_leaves_what_a_viewer_only_reads(client: Client, scene: Viewing) -> None:
    client.force_login(scene.viewer)
    own, now = Monitor.objects.get(owner=scene.viewer), utc_now()
    mine = ChannelFactory(owner=scene.viewer, name="Selected", monitors="chosen", monitor_ids=[own.public_id])
    ids = ",".join([scene.heartbeat.reading_id, scene.heartbeat.public_id, scene.site.public_id, own.public_id])
    form = client.post("/monitors/actions", {"action": "edit", "all": "1"}).getvalue().decode()
    assert f'value="{own.public_id}"' in form
    assert mine.public_id in form
    assert scene.channel.public_id not in form
    assert scene.project.public_id not in form
    given = {"monitors": ids, "add_tags": "mine"}
    preview = client.post("/monitors/edits", given | {"step": "preview"}).getvalue().decode()
    assert "1 to change, 0 unchanged, 0 refused." in preview
    for name, value in (("add_channels", scene.channel.public_id), ("project_id", scene.project.public_id)):
        assert client.post("/monitors/edits", given | {"step": "apply", name: value}).status_code == 422
    client.post("/monitors/edits", given | {"step": "apply"})
    tagged = Monitor.objects.filter(tags__contains=["mine"])
    assert list(tagged) == [own]
    assert now < BulkEdit.objects.get().created_at


def test_an_undo_needs_write_access(client: Client, scene: Viewing) -> None:
    member = UserFactory()
    place = MembershipFactory(project=scene.project, user=member)
    client.force_login(member)
    client.post("/monitors/edits", {"monitors": scene.heartbeat.public_id, "add_tags": "mine", "step": "apply"})
    path = f"/monitors/edits/{BulkEdit.objects.get().public_id}"
    assert scene.heartbeat.public_id in client.get(path).getvalue().decode()
    change_role(Caller(scene.owner), scene.project.public_id, place.public_id, role="viewer", now=utc_now())
    text = client.post(f"{path}/undo", follow=True).getvalue().decode()
    assert "Backup unchanged: Your role, or the access of the token, allows only reading." in text
    assert scene.heartbeat.reading_id in text
    assert scene.heartbeat.public_id not in text
    scene.heartbeat.refresh_from_db()
    assert scene.heartbeat.tags == ["nightly", "mine"]


def test_a_parent_that_the_person_only_views_is_offered_by_the_other_id(client: Client, scene: Viewing) -> None:
    client.force_login(scene.viewer)
    project = scene.beside()
    monitor = MonitorFactory(owner=scene.owner, project=project, up=True)
    shown = scene.heartbeat.reading_id
    texts = [client.get(f"/monitors/new?project={project.public_id}").getvalue().decode()]
    texts.append(client.get(f"/monitors/{monitor.public_id}/edit").getvalue().decode())
    texts.append(client.get(f"/monitors/new?from={monitor.public_id}").getvalue().decode())
    for text in texts:
        assert f'value="{shown}"' in text
        assert scene.heartbeat.public_id not in text
    Dependency.objects.create(child=monitor, parent=scene.heartbeat, position=0)
    for page in (f"/monitors/{monitor.public_id}", f"/monitors?depends_on={shown}", f"/monitors/{shown}"):
        text = client.get(page).getvalue().decode()
        assert shown in text, page
        assert scene.heartbeat.public_id not in text, page
    assert "Backup" in client.get(f"/monitors?depends_on={shown}").getvalue().decode()


def test_a_long_list_that_is_only_read_has_nothing_to_select(client: Client) -> None:
    """Further pages are not loaded yet, and might have had a monitor to change."""
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    viewer = UserFactory()
    MembershipFactory(project=project, user=viewer, role="viewer")
    MonitorFactory.create_batch(PAGE + 1, owner=owner, project=project)
    controls = "data-pick-all", "data-bulk", 'value="delete"'
    client.force_login(viewer)
    assert not [one for one in controls if one in client.get("/monitors").getvalue().decode()]
    own = MonitorFactory(owner=viewer, name="zzz", tags=["own"])
    assert all(one in client.get("/monitors").getvalue().decode() for one in controls)
    text = client.get(f"/monitors?project_id={project.public_id}").getvalue().decode()
    assert not [one for one in controls if one in text]
    assert own.name not in text
