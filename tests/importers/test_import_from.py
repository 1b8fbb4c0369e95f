"""`manage.py import_from`: all or nothing, no duplicates, and secrets neither printed nor stored in plain text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.models import AlertChannel
from core.clock import utc_now
from manifests.importing import import_monitors
from manifests.management.commands.import_from import Command
from monitors.models import Monitor
from monitors.scheduling import claim_due
from projects.access import Caller
from projects.models import Project
from pulsekeeper.importers.mapped import MappedFile, MappedMonitor, Outcome
from tests.api.client import Api
from tests.dashboard.test_monitor_pages import worker
from tests.factories import PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently, state_of
from tests.importers.test_mappers import READERS, SAMPLES
from tests.manifests.helpers import apply_text, exported, told
from tests.site import Site

__all__ = ["worker"]  # a fixture

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.splitlines()[-1]


@pytest.fixture
def import_from(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        code: object = 0
        try:
            Command().run_from_argv(["manage.py", "import_from", *arguments])
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return Ran(int(str(code)), printed.out, printed.err)

    return run


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


def source_of(sample: str) -> str:
    return next(name for name in ("uptime-kuma", "healthchecks", "uptimerobot", "gatus") if sample.startswith(name))


KUMA = ("uptime-kuma", str(SAMPLES / "uptime-kuma-v1.json"))


@pytest.mark.parametrize("sample", READERS)
def test_what_mappers_make_is_taken(import_from: Callable[..., Ran], user: User, sample: str) -> None:
    """No mapper creates objects that the API would reject; a second import creates nothing."""
    wanted = [each for each in READERS[sample]((SAMPLES / sample).read_text()).monitors if each.body is not None]
    arguments = (source_of(sample), str(SAMPLES / sample), "--account", user.email)
    first = import_from(*arguments, "--json")
    printed = json.loads(first.out)
    assert printed["counts"]["created"] == len(wanted) == Monitor.objects.count(), first.out
    assert (first.code, printed["counts"]["existing"]) == (1, 0), "each sample has something that cannot be taken over"
    assert "hunter2" not in first.out + first.err
    assert all(monitor["notes"] for monitor in printed["monitors"] if monitor["outcome"] == "skipped")
    again = import_from(*arguments)
    assert again.last == f"0 created, {len(wanted)} existing, {printed['counts']['skipped']} skipped"
    assert Monitor.objects.count() == len(wanted)
    assert told(apply_text(user, exported(user), dry_run=True)) == [], (
        "an export of it is accepted, and changes nothing"
    )


def test_a_file_of_which_nothing_is_lost_is_0(import_from: Callable[..., Ran], user: User, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    file.write_text(json.dumps({"checks": [{"name": "Backup", "timeout": 3600, "grace": 60}]}))
    ran = import_from("healthchecks", str(file), "--account", user.email)
    assert (ran.code, ran.last) == (0, "1 created, 0 existing, 0 skipped")


def test_a_cron_schedule_is_created(import_from: Callable[..., Ran], user: User, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    check = {"name": "Backup", "schedule": "15 5 * * 1-5", "tz": "Europe/Riga", "grace": 1200}
    file.write_text(json.dumps({"checks": [check, {"name": "Often", "schedule": "* * * * *"}]}))
    user.plan = PlanFactory(min_interval_sec=300)
    user.save(update_fields=["plan"])
    ran = import_from("healthchecks", str(file), "--account", user.email)
    assert ran.last == "1 created, 0 existing, 1 skipped"
    assert "CREATED Backup (heartbeat, at 15 5 * * 1-5 in Europe/Riga)" in ran.out
    assert "SKIPPED Often\n  here: schedule: two runs are 60 s apart, and the plan's minimum is 300 s." in ran.out
    config = Monitor.objects.get(name="Backup").full_config
    assert (config["schedule"], config["timezone"], config["grace_sec"]) == ("15 5 * * 1-5", "Europe/Riga", 1200)


def test_what_is_created(import_from: Callable[..., Ran], user: User) -> None:
    project = ProjectFactory(owner=user)
    ran = import_from(*KUMA, "--account", user.email.upper(), "--project", project.public_id)
    assert (ran.code, ran.last) == (1, "6 created, 0 existing, 1 skipped")
    shop, backup = Monitor.objects.get(name="Shop"), Monitor.objects.get(name="Backup")
    assert (shop.project, shop.owner, shop.full_config["request_headers"][0].value) == (project, user, "hunter2-key")
    (token,) = Monitor.objects.filter(pk=shop.pk).values_list("header_values", flat=True)
    assert b"hunter2" not in bytes(token or b"")
    assert "hunter2" not in str(shop.options)
    assert {claim.monitor_id for claim in claim_due(utc_now(), limit=10)} == set(
        Monitor.objects.filter(enabled=True).values_list("pk", flat=True)
    ), "first checks are due at once"
    assert (backup.enabled, state_of(backup).next_due_at) == (False, None)
    assert f"  ping: http://localhost:8000/v1/heartbeats/{backup.public_id}/ping\n" in ran.out
    assert "SKIPPED Closed port\n  upsideDown: inverted monitors are not supported\n" in ran.out
    assert "CREATED Router (ping, icmp://9.9.9.9, every 60 s)" in ran.out
    assert "CREATED Mail (port, tcp://mail.example:25, every 120 s)" in ran.out
    assert "CREATED Zone (dns, dns://1.1.1.1/example.com?type=MX, every 300 s)" in ran.out
    assert {name: Monitor.objects.get(name=name).full_config["packets"] for name in ("Router", "Mail")} == {
        "Router": 1,
        "Mail": 3,
    }
    assert "  timeout: 90000 ms becomes 60000 ms" in ran.out


def test_a_dry_run_says_the_same_and_creates_nothing(import_from: Callable[..., Ran], user: User) -> None:
    ran = import_from(*KUMA, "--account", user.email, "--dry-run")
    assert (ran.code, ran.last) == (1, "6 would be created, 0 existing, 1 skipped")
    assert "/ping" not in ran.out
    assert not Monitor.objects.exists()


def test_without_room_for_all_nothing_is_created(import_from: Callable[..., Ran], user: User) -> None:
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    ran = import_from(*KUMA, "--account", user.email)
    assert (ran.code, ran.out) == (3, "")
    assert "limit of 2 monitors" in ran.err
    assert not Monitor.objects.exists()


def test_the_plans_minimum_interval_is_shown(import_from: Callable[..., Ran]) -> None:
    free = UserFactory(plan__name="free")
    ran = import_from(*KUMA, "--account", free.email)
    assert "  interval: 60 s becomes 300 s, the minimum of the plan\n" in ran.out


def test_what_the_api_would_refuse_is_left_out(
    import_from: Callable[..., Ran], user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = [
        {"name": "lan\x1b[2J", "type": "http", "url": "http://10.0.0.1/"},
        {"name": "long", "type": "http", "url": "http://x.example/" + "a" * 3000},
        {"name": "half", "type": "keyword", "url": "http://x.example/", "keyword": ""},
        {"name": "header", "type": "http", "url": "http://x.example/", "headers": '{"A\\nB": "hunter2"}'},
        {"name": "twice", "type": "http", "url": "http://x.example/"},
        {"name": "twice", "type": "http", "url": "http://x.example/"},
        {"name": "far", "type": "push", "interval": 1e11},
    ]
    file = tmp_path / "kuma.json"
    file.write_text(json.dumps({"monitorList": hostile}))
    ran = import_from("uptime-kuma", str(file), "--account", user.email)
    assert (ran.code, ran.last) == (1, "3 created, 0 existing, 4 skipped")
    assert "\x1b" not in ran.out
    assert "hunter2" not in ran.out + ran.err
    assert import_from("uptime-kuma", str(file), "--account", user.email).last.startswith("0 created, 3 existing")


@pytest.mark.parametrize(
    ("source", "item", "reason"),
    [
        ("uptime-kuma", {"type": "port", "hostname": "10.0.0.1", "port": 22}, "is a private or reserved address"),
        ("uptime-kuma", {"type": "ping", "hostname": "::ffff:10.0.0.1"}, "is a private or reserved address"),
        ("uptime-kuma", {"type": "port", "hostname": "x.example", "port": 70_000}, "1 to 65535"),
        ("uptime-kuma", {"type": "port", "hostname": "x.example/?", "port": 22}, "must name a port"),
        ("uptime-kuma", {"type": "port", "hostname": "me:hunter2@x.example", "port": 22}, "a user name or password"),
        ("uptime-kuma", {"type": "ping", "hostname": "https://x.example"}, "cannot contain"),
        ("uptime-kuma", {"type": "ping", "hostname": "x.example", "ping_count": -1}, "packets"),
        (
            "uptime-kuma",
            {"type": "dns", "hostname": "x.example", "dns_resolve_server": "192.168.0.1"},
            "names a private or reserved address as its resolver",
        ),
        (
            "uptime-kuma",
            {"type": "dns", "hostname": "x.example", "dns_resolve_server": "9.9.9.9", "dns_resolve_type": "A&type=MX"},
            "must ask for one of these types",
        ),
        (
            "uptimerobot",
            {"type": "DNS", "url": "x.example", "config": {"dnsRecords": {"MX": ["mail.example"]}}},
            "is not a valid MX record",
        ),
        (
            "uptimerobot",
            {"type": "UDP", "url": "x.example", "port": 9, "config": {"udp": {"payload": "a" * 513}}},
            "must be at most 512 bytes",
        ),
        ("gatus", {"url": "tcp://169.254.169.254:80", "conditions": []}, "is a private or reserved address"),
        ("gatus", {"url": "tls://x.example", "conditions": []}, "must name a port"),
        ("gatus", {"url": "starttls://x.example", "conditions": []}, "must name a port"),
        ("gatus", {"url": "icmp://x.example:80", "conditions": []}, "cannot contain a port"),
        (
            "gatus",
            {"url": "8.8.8.8", "dns": {"query-name": "x", "query-type": "A"}, "conditions": ["[BODY] == ${ADDRESS}"]},
            "is not a valid A record",
        ),
    ],
)
def test_hosts_that_the_api_refuses(
    import_from: Callable[..., Ran], user: User, tmp_path: Path, source: str, item: dict[str, object], reason: str
) -> None:
    file = tmp_path / "file"
    key = {"uptime-kuma": "monitorList", "uptimerobot": "monitors", "gatus": "endpoints"}[source]
    file.write_text(json.dumps({key: [{"name": "x", "friendlyName": "x", **item}]}))
    ran = import_from(source, str(file), "--account", user.email)
    assert (ran.code, ran.last) == (1, "0 created, 0 existing, 1 skipped")
    assert ran.out.startswith("SKIPPED x\n  here: ")
    assert reason in ran.out
    assert "hunter2" not in ran.out + ran.err


def _kuma_file(folder: Path, *items: Mapping[str, object]) -> str:
    file = folder / "kuma.json"
    file.write_text(json.dumps([{"name": f"m{index}", **item} for index, item in enumerate(items)]))
    return str(file)


@pytest.mark.usefixtures("worker")
def test_addresses_without_a_scheme_are_completed(
    import_from: Callable[..., Ran], user: User, tmp_path: Path, site: Site
) -> None:
    host = site.url("/ok").removeprefix("http://")
    file = _kuma_file(
        tmp_path,
        {"type": "http", "url": f' "{host}" '},
        {"type": "http", "url": host},
        {"type": "http", "url": "https://shop.example/"},
        {"type": "port", "hostname": "'mail.example:22'"},
        {"type": "ping", "hostname": " router.example "},
    )
    arguments = ("uptime-kuma", file, "--account", user.email)
    ran = import_from(*arguments)
    assert (ran.code, ran.last) == (0, "5 created, 0 existing, 0 skipped")
    urls = [
        f"http://{host}",
        f"http://{host}",
        "https://shop.example/",
        "tcp://mail.example:22",
        "icmp://router.example",
    ]
    assert list(Monitor.objects.order_by("name").values_list("url", flat=True)) == urls
    assert ran.out.count(f"  url: is completed to http://{host}, as https did not respond\n") == 2
    assert import_from(*arguments).last == "0 created, 5 existing, 0 skipped"


@pytest.mark.usefixtures("no_worker")
def test_without_a_worker_monitors_without_a_scheme_are_skipped(
    import_from: Callable[..., Ran], user: User, tmp_path: Path
) -> None:
    items = [{"type": "http", "url": url} for url in ("shop.example", "other.example", "https://shop.example/")]
    ran = import_from("uptime-kuma", _kuma_file(tmp_path, *items), "--account", user.email)
    assert ran.last == "1 created, 0 existing, 2 skipped"
    assert ran.out.count("  url: has no scheme and could not be tested for https; add https:// or http://") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("uptime-kuma", "/nowhere.json", "--account", "OWN"), "/nowhere.json: cannot be read"),
        (("gatus", KUMA[1], "--account", "OWN"), "no endpoints"),
        (("healthchecks", KUMA[1], "--account", "OWN"), "no checks"),
        ((*KUMA, "--account", "unknown@example.com"), "account unknown@example.com not found"),
        ((*KUMA, "--account", "OWN", "--project", "prj_none"), "no project prj_none"),
        ((*KUMA, "--account", "OWN", "--project", "STRANGER"), "no project"),
        (KUMA, "--account"),
        (("pingdom", KUMA[1], "--account", "OWN"), "invalid choice"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_wrong_use_is_2(import_from: Callable[..., Ran], user: User, arguments: tuple[str, ...], words: str) -> None:
    names = {"OWN": user.email, "STRANGER": ProjectFactory().public_id}
    ran = import_from(*(names.get(word, word) for word in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert not Monitor.objects.exists()


def test_a_database_that_is_not_there_is_4(import_from: Callable[..., Ran]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_user RENAME TO away")
    try:
        ran = import_from(*KUMA, "--account", "me@example.com")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO accounts_user")
    assert (ran.code, ran.out) == (4, "")
    assert "the database is not migrated" in ran.err


GROUPED = {
    "monitorList": [
        {"id": 1, "type": "group", "name": "Shop"},
        {"name": "Home", "type": "http", "url": "https://x.example/", "parent": 1},
        {"name": "Router", "type": "http", "url": "http://192.168.1.1/", "parent": 1},
        {"name": "Job", "type": "push", "interval": 60},
    ]
}


def test_groups_become_projects_and_private_networks_are_counted_once(
    import_from: Callable[..., Ran], user: User, tmp_path: Path
) -> None:
    file = tmp_path / "kuma.json"
    file.write_text(json.dumps(GROUPED))
    ran = import_from("uptime-kuma", str(file), "--account", user.email)
    assert "CREATED Home (http, https://x.example/, every 60 s) in Shop mon_" in ran.out
    assert ran.out.splitlines()[-2] == "1 in private networks: ALLOWED_PRIVATE_NETWORKS allows them."
    project = Project.objects.get()
    assert (project.name, Monitor.objects.get(name="Home").project) == ("Shop", project)
    assert Monitor.objects.get(name="Job").project is None
    assert import_from("uptime-kuma", str(file), "--account", user.email).last.startswith("0 created, 2 existing")
    other = ProjectFactory(owner=user, name="Other")
    ran = import_from("uptime-kuma", str(file), "--account", user.email, "--project", other.public_id)
    assert "  group: Shop is not imported: all monitors get the same project" in ran.out
    assert Monitor.objects.filter(project=other).count() == 2


def test_groups_of_the_api(user: User) -> None:
    monitor = {"name": "Home", "body": {"type": "heartbeat", "name": "Home"}, "group": "Shop"}
    made = Api.signed_in(user).post("/v1/imports", {"monitors": [monitor]}).json
    assert (made[0]["project"], Monitor.objects.get().project) == ("Shop", Project.objects.get())
    outside = Api.signed_in(user).post("/v1/imports", {"monitors": [monitor], "project_id": None}).json
    assert (outside[0]["outcome"], outside[0]["project"]) == ("created", None)
    own = ProjectFactory(owner=user, name="Own")
    by_token = Api.with_token(user, own).post("/v1/imports", {"monitors": [monitor]}).json
    assert by_token[0]["project"] == "Own"
    assert by_token[0]["notes"][-1]["field"] == "group"
    assert set(Project.objects.values_list("name", flat=True)) == {"Shop", "Own"}


def test_groups_beyond_the_number_of_projects_are_skipped(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.services.MAX_PROJECTS", 1)
    mapped = [MappedMonitor(f"m{n}", {"name": f"m{n}", "type": "heartbeat"}, group=f"G{n // 2}") for n in range(4)]
    found = import_monitors(Caller(user), MappedFile(mapped), place={}, now=utc_now()).outcomes
    assert [each.outcome for each in found] == [Outcome.CREATED] * 2 + [Outcome.SKIPPED] * 2
    assert "its project G1 cannot be created" in found[2].notes[0].text
    assert [project.name for project in Project.objects.all()] == ["G0"]


def test_two_imports_at_once_create_everything_once(user: User) -> None:
    mapped = [MappedMonitor(f"m{n}", {"name": f"m{n}", "type": "heartbeat"}) for n in range(5)]

    def run() -> list[Outcome]:
        return [
            each.outcome for each in import_monitors(Caller(user), MappedFile(mapped), place={}, now=utc_now()).outcomes
        ]

    fates = run_concurrently(run, run)
    assert sorted(map(str, fates)) == sorted(map(str, [[Outcome.CREATED] * 5, [Outcome.EXISTING] * 5]))
    assert Monitor.objects.count() == 5


def test_channels_by_the_command_and_by_the_api(
    import_from: Callable[..., Ran], user: User, tmp_path: Path, settings: Settings
) -> None:
    config = json.dumps({"type": "webhook", "webhookURL": "https://hook.example/hunter2"})
    monitor = {"type": "push", "name": "m", "interval": 3600, "notificationIDList": {"1": True, "2": True}}
    notifications = [{"id": 1, "name": "Hook", "config": config}, {"id": 2, "name": "No", "config": "{}"}]
    file = tmp_path / "kuma.json"
    file.write_text(json.dumps({"notificationList": notifications, "monitorList": [monitor]}))
    arguments = ("uptime-kuma", str(file), "--account", user.email)
    ran = import_from(*arguments, "--dry-run")
    assert "WOULD BE CREATED channel Hook (webhook, 1 new monitor)\n" in ran.out
    assert "SKIPPED channel No\n  type: nothing is not supported" in ran.out
    assert not AlertChannel.objects.filter(kind="webhook").exists()
    ran = import_from(*arguments)
    channel = AlertChannel.objects.get(kind="webhook")
    assert f"CREATED channel Hook (webhook, 1 new monitor) {channel.public_id}\n" in ran.out
    assert "alert channels: 1 created, 0 existing, 1 skipped\n1 created, 0 existing, 0 skipped" in ran.out
    assert "hunter2" not in ran.out
    assert [one.name for one in channel.monitors.all()] == ["m"]
    again = json.loads(import_from(*arguments, "--json").out)
    assert [(each["outcome"], each["id"]) for each in again["channels"]] == [
        ("existing", channel.public_id),
        ("skipped", None),
    ]
    stranger = UserFactory()
    body = {"kind": "webhook", "url": "https://hook.example/hunter2"}
    channels = [{"key": "1", "name": "Hook", "body": body}, {"key": "2", "name": "Bad", "body": body | {"x": 1}}]
    monitors = [{"name": "n", "body": {"name": "n", "type": "heartbeat"}, "channels": ["1", "2", "none"]}]
    made = Api.signed_in(stranger).post("/v1/imports", {"monitors": monitors, "channels": channels}).json
    assert [(each["name"], each["outcome"]) for each in made] == [
        ("n", "created"),
        ("Hook", "created"),
        ("Bad", "skipped"),
    ]
    assert made[1]["channel"]["hint"] == "https://hook.example"
    assert AlertChannel.objects.get(public_id=made[1]["channel"]["id"]).owner == stranger
    settings.THROTTLES = settings.THROTTLES | {"invite": (1, 3600)}
    settings.THROTTLE_SCALE = 1
    mails = [{"key": "1", "name": "M", "body": {"kind": "email", "address": f"{n}@x.example"}} for n in range(2)]
    answer = Api.signed_in(stranger).post("/v1/imports", {"monitors": monitors, "channels": mails})
    assert (answer.status, answer.json["error"]) == (429, "rate_limited")
