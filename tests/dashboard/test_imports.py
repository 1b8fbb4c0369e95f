"""Importing on the web: preview, choice, import and undo."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.models import AlertChannel
from audit.models import Entry
from core import metrics
from core.clock import utc_now
from core.waiting import WAITING_REQUESTS
from manifests import uploads
from manifests.importing import import_monitors
from manifests.models import LIFETIME, Upload
from manifests.tasks import sweep
from manifests.uploads import IMPORTS_KEPT
from monitors.models import Monitor
from projects.access import Caller
from projects.models import Project
from pulsekeeper.importers.sources import SOURCES
from tests.dashboard.test_monitor_pages import worker
from tests.factories import ChannelFactory, MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.processes.waiting import until
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, Listen, TargetServer, Unasked, answer

__all__ = ["worker"]  # a fixture

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/monitors/import"
HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"


def kuma(*monitors: dict[str, Any]) -> str:
    return json.dumps({"monitorList": [{"type": "http", "url": "https://x.example/", **each} for each in monitors]})


THREE = kuma(
    {"id": 1, "type": "group", "name": "Shop"},
    {"name": "Home", "parent": 1, "notificationIDList": {"1": True}},
    {"name": "Cart", "parent": 1, "notificationIDList": {"1": True}, "url": "https://me:hunter2@cart.example/"},
    {"name": "Job", "type": "push", "interval": 60, "headers": '{"X-Key": "hunter2"}'},
)


def send(
    web: Client, text: str = THREE, *, source: str = "uptime-kuma", project_id: str = "groups", **more: Any
) -> Any:
    return web.post(PAGE, {"source": source, "text": text, "project_id": project_id, **more})


def previewed(web: Client, text: str = THREE, **more: Any) -> tuple[str, str]:
    """Return the address of the preview, and its text."""
    answer = send(web, text, **more)
    assert answer.status_code == 302, errors(answer)
    page = web.get(answer.headers["Location"])
    assert page.status_code == 200
    return answer.headers["Location"], page.content.decode()


def errors(answer: Any) -> str:
    return " ".join(re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', answer.content.decode(), re.DOTALL))


def chosen(text: str) -> list[str]:
    return re.findall(r'name="monitors" value="(\d+)" checked', text)


def imported(web: Client, text: str = THREE, **more: Any) -> str:
    address, page = previewed(web, text, **more)
    answer = web.post(address, {"monitors": chosen(page)})
    assert answer.status_code == 302, errors(answer)
    return address


def names() -> set[str]:
    return set(Monitor.objects.values_list("name", flat=True))


def test_a_preview_creates_nothing_and_shows_no_secret(web: Client, user: User) -> None:
    _, text = previewed(web)
    assert chosen(text) == ["0", "1", "2"]
    assert "3 to create, 0 existing, 0 to skip." in text
    assert "Projects: Shop." in text
    assert "the file does not contain its settings: create the channel, then select its monitors" in text
    assert "https://cart.example/" in text
    assert "hunter2" not in text
    assert [model.objects.count() for model in (Monitor, Project)] == [0, 0]
    assert not Entry.objects.filter(action="monitors.imported").exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT content FROM manifests_upload")
        assert b"hunter2" not in bytes(cursor.fetchone()[0])


@pytest.mark.usefixtures("worker")
def test_addresses_without_a_scheme_are_completed(
    web: Client, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TargetServer() as targets:
        plain = targets.serve(Unasked([Listen(), answer(400)]))
        encrypted = targets.serve([answer()], tls=Certificates(tmp_path).self_signed())
        urls = [f"http://127.0.0.1:{plain.port}", f"https://127.0.0.1:{encrypted.port}/x"]
        text = kuma(*({"name": str(n), "url": url.partition("//")[2]} for n, url in enumerate(urls)))
        imported(web, text)
        assert list(Monitor.objects.order_by("name").values_list("url", flat=True)) == urls
        monkeypatch.setattr(uploads, "ASK_SEC", -1.0)
        _, page = previewed(web, text)
    assert chosen(page) == []
    assert page.count("could not be tested for https; add https:// or http://") == 2


@pytest.mark.usefixtures("worker")
def test_servers_are_asked_no_faster_than_by_test_runs(web: Client, settings: Settings) -> None:
    settings.THROTTLE_SCALE, settings.THROTTLES = 1, settings.THROTTLES | {"create-and-test": (1, 60)}
    with TargetServer() as targets:
        ports = [targets.serve(Unasked([Listen(), answer(400)])).port for _ in range(2)]
        _, page = previewed(web, kuma(*({"name": str(port), "url": f"127.0.0.1:{port}"} for port in ports)))
    assert chosen(page) == ["0"]
    assert page.count("could not be tested for https; add https:// or http://") == 1


@pytest.mark.usefixtures("worker")
def test_an_upload_that_asks_a_server_has_the_place_of_one_request(web: Client, user: User) -> None:
    with TargetServer() as targets, ThreadPoolExecutor(1) as thread:
        hanging = targets.serve([Hang()])
        sent = thread.submit(send, web, kuma({"name": "m", "url": f"127.0.0.1:{hanging.port}"}))
        until(lambda: hanging.connections, 30, "the server is asked")
        metrics.report()
        assert WAITING_REQUESTS.read(metrics.read_levels())[()] == 1
        assert sent.result(timeout=60).status_code == 302


def test_what_is_chosen_is_imported_and_groups_are_projects(web: Client, user: User) -> None:
    address, _ = previewed(web)
    assert web.post(address, {"monitors": ["1", "2"]}).headers["Location"] == address
    text = web.get(address).content.decode()
    assert "2 created, 0 existing, 0 skipped." in text
    assert names() == {"Cart", "Job"}
    project = Project.objects.get()
    assert (project.name, Monitor.objects.get(name="Cart").project) == ("Shop", project)
    job = Monitor.objects.get(name="Job")
    assert (job.project, job.owner) == (None, user)
    assert job.ping_url in text
    assert "hunter2" not in text
    logged = Entry.objects.filter(action="monitors.imported").order_by("-project_id")
    assert {(entry.project_public_id, entry.details["monitors"], entry.actor_id) for entry in logged} == {
        ("", 1, user.pk),
        (project.public_id, 1, user.pk),
    }
    assert "hunter2" not in str(list(Entry.objects.values()))


def test_a_file_is_as_good_as_text(web: Client) -> None:
    file = SimpleUploadedFile("kuma.json", b"\xef\xbb\xbf" + THREE.encode())
    _, text = previewed(web, "", file=file)
    assert chosen(text) == ["0", "1", "2"]


def test_every_source_can_be_uploaded(web: Client) -> None:
    gatus = "endpoints:\n- {name: A, group: core, url: 'https://a.example/', conditions: ['[STATUS] == 200']}"
    assert "in core" in previewed(web, gatus, source="gatus")[1]
    checks = json.dumps({"checks": [{"name": "Backup", "timeout": 3600, "grace": 60}]})
    assert "Backup" in previewed(web, checks, source="healthchecks")[1]
    robot = json.dumps({"data": [{"friendlyName": "Site", "type": "HTTP", "url": "https://s.example/"}]})
    assert "Site" in previewed(web, robot, source="uptimerobot")[1]


BOMB = "x0: &x0 [lol]\n" + "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
WIDE = (
    "b: &b "
    + "a" * 100_000
    + "\nendpoints:\n"
    + "- {name: A, url: 'https://a.example/', method: POST, body: *b}\n" * 30
)


@pytest.mark.parametrize(
    ("source", "content", "reason"),
    [
        ("uptime-kuma", b"SQLite format 3\0rest", "The file is a SQLite database, not an export."),
        ("uptime-kuma", b"PK\x03\x04rest", "The file is a zip archive, not an export."),
        ("uptime-kuma", b"\xff\xfe", "The file is not UTF-8 text."),
        ("uptime-kuma", b"", "The file is not JSON."),
        ("uptime-kuma", b"{}", None),
        ("uptime-kuma", b"[" * 100_000, "The file is not JSON."),
        ("uptime-kuma", b'[{"type": "http", "name": "m", "url": "a\\u0000b"}]', None),
        ("healthchecks", b"{}", "The file has no checks."),
        ("gatus", BOMB.encode() + b"\nendpoints: *x11", "Endpoints is not a list of objects."),
        ("gatus", WIDE.encode(), "The file is too large"),
        ("uptime-kuma", b"[" + b",".join([b"{}"] * 1001) + b"]", "The file has more than 1,000 monitors"),
        ("uptime-kuma", b" " * (1024 * 1024 + 1), "The file is larger than 1 MiB"),
    ],
    ids=lambda given: str(given)[:20],
)
def test_files_that_cannot_be_read(web: Client, source: str, content: bytes, reason: str | None) -> None:
    answer = send(web, "", source=source, file=SimpleUploadedFile("export", content))
    if reason is None:
        assert answer.status_code == 302
        return
    assert answer.status_code == 200
    assert reason in unescape(answer.content.decode())
    assert not Upload.objects.exists()


@pytest.mark.parametrize("charset", ["hex", "idna", "utf-7", "punycode"])
def test_the_charset_of_a_form_is_ignored(web: Client, charset: str) -> None:
    fields = {"source": "uptime-kuma", "project_id": "groups", "text": "+2AA-"}
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    content_type = f"multipart/form-data; boundary=b; charset={charset}"
    answer = web.generic("POST", PAGE, "".join([*parts, "--b--\r\n"]), content_type)
    assert answer.status_code == 200
    assert "The file is not JSON." in answer.content.decode()


def test_a_file_that_takes_long_is_given_up(web: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "CPU_SEC", 1)
    slow = "endpoints:\n" + "- {name: A, url: 'https://a.example/', conditions: ['[STATUS] == 200']}\n" * 3_000
    answer = send(web, "", source="gatus", file=SimpleUploadedFile("export", slow.encode()))
    assert "The file takes too long to read" in answer.content.decode()


def test_neither_or_both(web: Client) -> None:
    for more in ({"text": ""}, {"file": SimpleUploadedFile("a", b"[]")}):
        answer = web.post(PAGE, {"source": "uptime-kuma", "text": THREE, "project_id": "groups", **more})
        assert "Choose a file or paste its text" in answer.content.decode()
    assert THREE[:20] in unescape(answer.content.decode())


def test_lines_say_why_and_private_networks_are_counted_once(web: Client, user: User) -> None:
    MonitorFactory(owner=user, name="Old", url="https://old.example/")
    text = kuma(
        {"name": "Old", "url": "https://old.example/"},
        {"name": "Router", "url": "http://192.168.1.1/"},
        {"name": "Printer", "url": "http://192.168.1.2/"},
        {"name": HOSTILE, "upsideDown": True},
        {"name": "New"},
    )
    _, page = previewed(web, text)
    assert "1 to create, 1 existing, 3 to skip." in page
    assert "2 in private networks.</strong> The operator of this Pulsekeeper can allow private networks." in page
    assert "inverted monitors are not supported" in page
    assert (ESCAPED in page, HOSTILE in page) == (True, False)
    assert chosen(page) == ["4"]
    assert page.count(" disabled>") == 4
    user.is_staff = True
    user.save(update_fields=["is_staff"])
    assert "ALLOWED_PRIVATE_NETWORKS" in previewed(web, text)[1]


def test_the_plan_limits_each_entry(web: Client, user: User) -> None:
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    address, text = previewed(web)
    assert chosen(text) == ["0", "1"]
    assert text.count("exceeds the plan&#x27;s limit of 2 monitors") == 1
    answer = web.post(address, {"monitors": ["0", "1", "2"]})
    assert "The plan allows 2 monitors: select fewer. Nothing was imported." in answer.content.decode()
    assert chosen(answer.content.decode()) == ["0", "1", "2"]
    assert not Monitor.objects.exists()
    web.post(address, {"monitors": ["1", "2"]})
    assert names() == {"Cart", "Job"}


def test_nothing_chosen(web: Client) -> None:
    address, _ = previewed(web)
    for data in ({}, {"monitors": ["x"]}, {"monitors": ["1000"]}):
        assert web.post(address, data).status_code == 200
    assert "Select at least one monitor." in web.post(address, {"csrfmiddlewaretoken": "x"}).content.decode()
    assert not Monitor.objects.exists()


def test_groups_are_only_ones_own_projects(web: Client, user: User) -> None:
    """A user can be added to a project by others; the project must not receive secrets of that user's export."""
    ProjectFactory(owner=UserFactory(), member=user, name="Shop")
    imported(web)
    own = Project.objects.get(name="Shop", memberships__user=user, memberships__role="owner")
    assert set(own.monitors.values_list("name", flat=True)) == {"Home", "Cart"}
    again, text = previewed(web)
    assert "0 to create, 3 existing, 0 to skip." in text
    web.post(again, {"monitors": ["0", "1", "2"]})
    assert "0 created, 3 existing, 0 skipped." in web.get(again).content.decode()
    assert (Project.objects.filter(name="Shop").count(), Monitor.objects.count()) == (2, 3)


def test_a_chosen_project_takes_all(web: Client, user: User) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner, member=user)
    address = imported(web, project_id=project.public_id)
    assert {monitor.project for monitor in Monitor.objects.all()} == {project}
    assert {monitor.owner for monitor in Monitor.objects.all()} == {owner}
    assert "Shop is not imported: all monitors get the same project" in web.get(address).content.decode()


@pytest.mark.parametrize("project_id", ["prj_none", "STRANGER"])
def test_a_project_of_others_is_no_choice(web: Client, project_id: str) -> None:
    stranger = ProjectFactory(owner=UserFactory()).public_id
    answer = send(web, project_id=stranger if project_id == "STRANGER" else project_id)
    assert "Select a valid choice" in answer.content.decode()


def test_a_role_that_ended_since_the_preview(web: Client, user: User) -> None:
    project = ProjectFactory(owner=UserFactory(), member=user)
    address, text = previewed(web, project_id=project.public_id)
    project.memberships.filter(user=user).delete()
    answer = web.post(address, {"monitors": chosen(text)})
    assert answer.status_code == 200
    assert "The project was deleted, or you no longer have access to it." in answer.content.decode()
    assert not Monitor.objects.exists()


def test_sent_twice_imports_once(web: Client, user: User) -> None:
    address, text = previewed(web)
    for _ in range(2):
        assert web.post(address, {"monitors": chosen(text)}).headers["Location"] == address
    assert Monitor.objects.count() == 3
    upload = uploads.upload(
        Caller(user), source="uptime-kuma", data=kuma({"name": "Once"}).encode(), place={}, now=utc_now()
    )

    def run() -> int:
        found = uploads.run(Caller(user), upload.public_id, {0}, set(), now=utc_now())
        return len(found.content["monitors"])

    assert run_concurrently(run, run) == [1, 1]
    assert Monitor.objects.filter(name="Once").count() == 1


def test_two_uploads_at_once_leave_one_preview(user: User) -> None:
    def upload() -> str:
        data = kuma({"name": "Once"}).encode()
        return uploads.upload(Caller(user), source="uptime-kuma", data=data, place={}, now=utc_now()).public_id

    made = run_concurrently(upload, upload)
    assert Upload.objects.get().public_id in made


def test_an_undo_and_a_second_one_at_once_remove_once(web: Client, user: User) -> None:
    public_id = imported(web).rpartition("/")[2]

    def undo() -> int:
        return int(uploads.undo(Caller(user), public_id, now=utc_now()).content["removed"])

    assert run_concurrently(undo, undo) == [3, 3]
    assert sum(entry.details["monitors"] for entry in Entry.objects.filter(action="import.undone")) == 3


def test_others_have_no_access(web: Client, client: Client) -> None:
    addresses = [previewed(web)[0], imported(web, kuma({"name": "Mine"}))]
    stranger = Client()
    assert stranger.get(PAGE).status_code == 302
    stranger.force_login(UserFactory())
    missing = stranger.get(f"{PAGE}/imp_none")
    assert missing.status_code == 404
    for address in addresses:
        for found in (
            stranger.get(address),
            stranger.post(address, {"monitors": ["0"]}),
            stranger.post(f"{address}/undo"),
        ):
            assert found.status_code == 404
    assert names() == {"Mine"}
    assert web.get(f"{addresses[1]}/undo").status_code == 405
    checked = Client(enforce_csrf_checks=True)
    checked.cookies = web.cookies
    for path in (PAGE, addresses[1], f"{addresses[1]}/undo"):
        assert checked.post(path).status_code == 403


def test_rows_are_few_and_end(web: Client, user: User) -> None:
    first, _ = previewed(web)
    previewed(web)
    assert web.get(first).status_code == 404
    assert Upload.objects.count() == 1
    for number in range(IMPORTS_KEPT + 1):
        imported(web, kuma({"name": f"M{number}"}))
    assert Upload.objects.count() == IMPORTS_KEPT
    before = utc_now() - LIFETIME
    Upload.objects.update(imported_at=before)
    last = Upload.objects.latest("pk")
    assert web.get(f"{PAGE}/{last.public_id}").status_code == 404
    assert web.post(f"{PAGE}/{last.public_id}/undo").status_code == 404
    address, text = previewed(web)
    sweep()
    assert Upload.objects.count() == 1
    Upload.objects.update(created_at=before)
    answer = web.post(address, {"monitors": chosen(text)})
    assert answer.status_code == 404
    assert "its hour is over. Upload the file again." in answer.content.decode()
    sweep()
    assert not Upload.objects.exists()


SLACK = "https://hooks.slack.com/services/T00000000/B0000ABCD/hunter2hunter2hunter2"


def with_channels(*monitors: dict[str, Any], **configs: dict[str, Any]) -> str:
    """An export whose channels have the ids 1, 2 and so on."""
    document = json.loads(kuma(*monitors))
    document["notificationList"] = [
        {"id": n, "name": name, "active": True, "config": json.dumps(config)}
        for n, (name, config) in enumerate(configs.items(), 1)
    ]
    return json.dumps(document)


def used(*keys: int) -> dict[str, Any]:
    return {"notificationIDList": {str(key): True for key in keys}}


CHANNELS = with_channels(
    {"name": "A", **used(1, 2)},
    {"name": "B", **used(1, 3), "tags": [{"name": "prod"}, {"name": HOSTILE}]},
    Chat={"type": "slack", "slackwebhookURL": SLACK},
    Router={"type": "webhook", "webhookURL": "http://192.168.1.1/hunter2"},
    Old={"type": "signal", "signalNumber": "hunter2"},
    Unused={"type": "webhook", "webhookURL": "https://hook.example/hunter2"},
)


def slack() -> QuerySet[AlertChannel]:
    """Not counting the channel to its own address, which each new account has."""
    return AlertChannel.objects.filter(kind="slack")


class TestChannels:
    def import_all(self, web: Client, text: str = CHANNELS, **more: Any) -> str:
        address, page = previewed(web, text, **more)
        channels = re.findall(r'name="channels" value="(\d+)" checked', page)
        assert web.post(address, {"monitors": chosen(page), "channels": channels}).status_code == 302
        return address

    def test_the_preview_says_which_and_why_and_the_import_notifies_as_before(self, web: Client, user: User) -> None:
        _, page = previewed(web, CHANNELS)
        assert not slack().exists()
        assert re.findall(r'name="channels" value="(\d)" (\w+)', page) == [
            ("0", "checked"),
            ("1", "disabled"),
            ("2", "disabled"),
            ("3", "disabled"),
        ]
        assert "Slack · …ABCD · 2 new monitors" in page
        assert "is a private or reserved address" in page
        assert "signal is not supported" in page
        assert "no created monitor uses it" in page
        assert ("hunter2" in page, HOSTILE in page) == (False, False)
        address = self.import_all(web)
        channel = slack().get()
        assert (channel.name, channel.kind, channel.config["url"]) == ("Chat", "slack", SLACK)
        assert (channel.owner, channel.project, channel.scope) == (user, None, "chosen")
        tags = {monitor.name: monitor.tags[:1] for monitor in channel.monitors.all()}
        assert tags == {"A": [], "B": ["prod"]}
        text = web.get(address).content.decode()
        assert f"/alert-channels/{channel.public_id}" in text
        assert "hunter2" not in text + str(list(Entry.objects.values()))

    def test_what_is_not_chosen_is_not_created(self, web: Client, user: User) -> None:
        address, page = previewed(web, CHANNELS)
        web.post(address, {"monitors": chosen(page)})
        assert (names(), slack().count()) == ({"A", "B"}, 0)

    def test_is_never_created_twice_and_gets_new_monitors(self, web: Client, user: User) -> None:
        self.import_all(web)
        more = json.loads(CHANNELS)
        more["monitorList"].append({"type": "http", "url": "https://c.example/", "name": "C", **used(1)})
        _, page = previewed(web, json.dumps(more))
        assert "Slack · …ABCD · 1 new monitor<" in page
        address = self.import_all(web, json.dumps(more))
        channel = slack().get()
        assert {monitor.name for monitor in channel.monitors.all()} == {"A", "B", "C"}
        web.post(f"{address}/undo")
        assert "1 monitor removed." in web.get(address).content.decode()
        assert names() == {"A", "B"}
        assert {monitor.name for monitor in slack().get().monitors.all()} == {"A", "B"}

    def test_one_that_covers_all_monitors_stays_as_it_is(self, web: Client, user: User) -> None:
        ChannelFactory(owner=user, kind="slack", url=SLACK)
        self.import_all(web)
        channel = slack().get()
        assert (channel.scope, channel.monitors.count(), names()) == ("all", 0, {"A", "B"})

    def test_the_limit_of_channels_holds(self, web: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("alerts.services.MAX_CHANNELS", 1)
        _, page = previewed(web, CHANNELS)
        assert "The limit of alert channels per account is reached." in page
        self.import_all(web)
        assert (names(), slack().count()) == ({"A", "B"}, 0)

    def test_other_peoples_addresses_have_to_agree(self, web: Client, user: User, mailoutbox: list[Any]) -> None:
        config = {"type": "smtp", "smtpTo": f"{user.email},other@x.example", "smtpPassword": "hunter2"}
        text = with_channels({"name": "A", **used(1)}, Mail=config)
        previewed(web, text)
        assert mailoutbox == []
        # The sign-in address has a channel already.
        self.import_all(web, text)
        found = {channel.config["address"]: channel.confirmed_at for channel in AlertChannel.objects.all()}
        assert (found[user.email] is None, found["other@x.example"]) == (False, None)
        assert [mail.to for mail in mailoutbox] == [["other@x.example"]]

    def test_a_chosen_project_has_the_channels(self, web: Client, user: User) -> None:
        owner = UserFactory()
        project = ProjectFactory(owner=owner, member=user)
        self.import_all(web, project_id=project.public_id)
        channel = slack().get()
        assert (channel.project, channel.owner, channel.monitors.count()) == (project, owner, 2)

    def test_an_undo_removes_it_unless_it_was_changed_or_is_used(self, web: Client, user: User) -> None:
        address = self.import_all(web)
        web.post(f"{address}/undo")
        assert (names(), slack().count()) == (set(), 0)
        self.import_all(web)
        slack().update(name="Renamed")
        assert self.kept(web) == "Channel Renamed"
        self.import_all(web)
        Monitor.objects.filter(name="A").update(interval_sec=3600)
        assert self.kept(web) == "Channel Chat"

    def kept(self, web: Client) -> str:
        """Undo the last import, and return the kept channel, which is deleted then."""
        address = f"{PAGE}/{Upload.objects.latest('pk').public_id}"
        web.post(f"{address}/undo")
        slack().delete()
        (found,) = re.findall(r"Channel \w+", web.get(address).content.decode())
        return str(found)

    def test_two_imports_at_once_create_it_once(self, user: User) -> None:
        def run() -> int:
            mapped = SOURCES["uptime-kuma"](CHANNELS).supported()
            return len(import_monitors(Caller(user), mapped, place={}, now=utc_now()).channels)

        assert sorted(run_concurrently(run, run), key=str) == [0, 1]


class TestUndo:
    def test_removes_all_of_it(self, web: Client, user: User) -> None:
        MonitorFactory(owner=user, name="Before")
        address = imported(web)
        assert web.post(f"{address}/undo").headers["Location"] == address
        assert "3 monitors removed." in web.get(address).content.decode()
        assert (names(), Project.objects.count()) == ({"Before"}, 0)
        logged = Entry.objects.filter(action="import.undone")
        assert sum(entry.details["monitors"] for entry in logged) == 3
        assert web.post(f"{address}/undo").headers["Location"] == address
        assert logged.count() == 2

    def test_keeps_what_was_changed_or_used_since(self, web: Client, user: User) -> None:
        address = imported(web)
        home, cart, job = (Monitor.objects.get(name=name) for name in ("Home", "Cart", "Job"))
        Monitor.objects.filter(pk=home.pk).update(interval_sec=3600)
        ChannelFactory(owner=user).monitors.add(job)
        web.post(f"{address}/undo")
        text = web.get(address).content.decode()
        assert "1 monitor removed, 3 kept." in text
        assert "was changed after the import" in text
        assert "is used by an alert channel" in text
        assert "Project Shop" in text
        assert names() == {"Home", "Job"}
        assert not Monitor.objects.filter(pk=cart.pk).exists()

    def test_keeps_a_parent_of_other_monitors(self, web: Client, user: User) -> None:
        address = imported(web)
        home = Monitor.objects.get(name="Home")
        MonitorFactory(owner=user, name="Mine", depends_on=[home.public_id])
        web.post(f"{address}/undo")
        assert "is used by an alert channel" in web.get(address).content.decode()
        assert names() == {"Home", "Mine"}

    def test_keeps_a_project_with_other_contents(self, web: Client, user: User) -> None:
        address = imported(web)
        project = Project.objects.get()
        MonitorFactory(owner=user, project=project, name="Mine")
        web.post(f"{address}/undo")
        assert "has other contents or members" in web.get(address).content.decode()
        assert names() == {"Mine"}
        assert Project.objects.filter(pk=project.pk).exists()

    def test_a_renamed_project_stays(self, web: Client) -> None:
        address = imported(web)
        Project.objects.update(name="Renamed")
        web.post(f"{address}/undo")
        assert "was renamed after the import" in web.get(address).content.decode()

    def test_what_is_gone_already_is_no_error(self, web: Client) -> None:
        address = imported(web)
        Monitor.objects.filter(name="Home").delete()
        Project.objects.all().delete()
        web.post(f"{address}/undo")
        assert web.get(address).status_code == 200

    def test_a_preview_cannot_be_undone(self, web: Client) -> None:
        address, _ = previewed(web)
        assert web.post(f"{address}/undo").status_code == 404


def test_the_queries_do_not_grow_with_the_file(web: Client, django_assert_max_num_queries: Any) -> None:
    address, text = previewed(web, kuma(*({"name": f"M{n}"} for n in range(60))))
    with django_assert_max_num_queries(60):
        web.post(address, {"monitors": chosen(text)})
    assert Monitor.objects.count() == 60
