"""Applying a file: objects are created, changed and deleted, all or nothing, and errors have line numbers."""

from __future__ import annotations

from datetime import timedelta
from textwrap import dedent

import pytest
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

import alerts.services
from alerts.models import AlertChannel
from core.clock import utc_now
from incidents.models import MaintenanceWindow
from monitors.models import Monitor, MonitorState
from monitors.scheduling import claim_due
from projects.models import Membership, Project
from statuspages.models import StatusPage
from tests.factories import ChannelFactory, MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.manifests.helpers import apply_text, refusal, told

pytestmark = pytest.mark.django_db

FILE = """\
version: 1
projects:
  - name: Shop
monitors:
  - name: Checkout
    project: Shop
    url: https://shop.example.com/
    request_headers:
      - {name: X-Key, value: "${PK_KEY}"}
  - name: Backup
    type: heartbeat
    interval_sec: 86400
channels:
  - name: On call
    kind: webhook
    url: https://hooks.example.com/${PK_KEY}
    monitors: [{project: Shop, name: Checkout}, Backup]
maintenance_windows:
  - name: Weekly
    project: Shop
    starts_at: 2099-01-04T02:00:00+01:00
    ends_at: 2099-01-04T03:00:00+01:00
    monitors: [Checkout]
status_pages:
  - slug: shop
    name: Shop
    project: Shop
    groups:
      - monitors:
          - {monitor: Checkout, name: Buying}
"""
WINDOW = FILE.replace("2099-01-04", (utc_now() + timedelta(days=30)).date().isoformat())
KEY = {"PK_KEY": "k-123"}


def test_everything_is_made_and_refers_to_each_other() -> None:
    user = UserFactory()
    report = apply_text(user, WINDOW, environment=KEY)
    assert [change.action for change in report.changes] == ["create"] * 6
    checkout = Monitor.objects.get(name="Checkout")
    shop = Project.objects.get()
    assert (checkout.project, checkout.owner) == (shop, user)
    assert checkout.full_config["request_headers"][0].value == "k-123"
    channel = AlertChannel.objects.get(name="On call")
    assert channel.config["url"] == "https://hooks.example.com/k-123"
    assert {one.name for one in channel.monitors.all()} == {"Checkout", "Backup"}
    assert [one.name for one in MaintenanceWindow.objects.get().monitors.all()] == ["Checkout"]
    assert [one.monitor for one in StatusPage.objects.get().groups.get().monitors.all()] == [checkout]
    assert apply_text(user, WINDOW, environment=KEY).changes == []


def test_first_checks_are_due_at_once() -> None:
    user, now = UserFactory(), utc_now()
    report = apply_text(user, WINDOW + "", environment=KEY, now=now)
    assert report.first_checks == 1
    claims = claim_due(now, limit=10)
    assert [(claim.monitor_id, claim.number) for claim in claims] == [(Monitor.objects.get(name="Checkout").pk, 1)]


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    user = UserFactory()
    before = MonitorState.objects.count(), AlertChannel.objects.count()
    dry = apply_text(user, WINDOW, environment=KEY, dry_run=True)
    assert (MonitorState.objects.count(), AlertChannel.objects.count()) == before
    assert Project.objects.count() == 0
    assert told(dry) == told(apply_text(user, WINDOW, environment=KEY))


def test_changes_are_listed_by_field_and_secrets_masked() -> None:
    user = UserFactory()
    apply_text(user, WINDOW, environment=KEY)
    text = WINDOW.replace("url: https://shop.example.com/", "url: https://shop.example.com/v2\n    slow_ms: 300")
    text = text.replace("[{project: Shop, name: Checkout}, Backup]", "[Backup]")
    text = text.replace("name: Buying", "name: Buy")
    report = apply_text(user, text, environment={"PK_KEY": "k-456"})
    assert told(report) == [
        "~ monitor 'Checkout' in Shop",
        "    url: https://shop.example.com/ → https://shop.example.com/v2",
        "    slow_ms: 1500 → 300",
        "    request_headers[X-Key]: (secret), changed",
        "~ alert channel 'On call'",
        "    monitors[Checkout]: chosen → none",
        "    url: (secret), changed",
        "~ status page 'shop' in Shop",
        "    groups[Checkout]: Buying → Buy",
    ]
    assert Monitor.objects.get(name="Checkout").full_config["request_headers"][0].value == "k-456"
    assert AlertChannel.objects.get(name="On call").monitors.get().name == "Backup"
    assert apply_text(user, text, environment={"PK_KEY": "k-456"}).changes == []
    report = apply_text(user, text.replace("[Backup]", "all"), environment={"PK_KEY": "k-456"})
    assert told(report) == ["~ alert channel 'On call'", "    monitors: Backup → all"]


def test_what_a_file_leaves_out_is_the_default() -> None:
    user = UserFactory()
    monitor = MonitorFactory(owner=user, name="M", slow_ms=300, check_ssl=True, fail_threshold=7)
    apply_text(user, "version: 1\nmonitors: [{name: M, url: 'http://127.0.0.1:9/'}]\n")
    monitor.refresh_from_db()
    assert (monitor.slow_ms, monitor.check_ssl, monitor.fail_threshold) == (1500, False, 3)


def test_an_edit_of_what_is_probed_is_checked_at_once_and_no_other() -> None:
    user = UserFactory()
    for name in ("A", "B"):
        MonitorFactory(owner=user, name=name)
    later = utc_now() + timedelta(hours=1)
    MonitorState.objects.update(next_due_at=later, claimed_at=None)
    now = utc_now()
    apply_text(
        user,
        """
        version: 1
        monitors:
          - {name: A, url: http://127.0.0.1:9/, timeout_ms: 5000}
          - {name: B, url: http://127.0.0.1:9/, fail_threshold: 5}
        """,
        now=now,
    )
    due = dict(MonitorState.objects.values_list("monitor__name", "next_due_at"))
    assert due == {"A": now, "B": later}
    assert dict(Monitor.objects.values_list("name", "config_version")) == {"A": 2, "B": 1}


def test_pausing_and_resuming() -> None:
    user = UserFactory()
    text = "version: 1\nmonitors: [{name: M, url: 'https://example.com/', enabled: %s}]\n"
    report = apply_text(user, text % "false")
    assert report.first_checks == 0
    assert MonitorState.objects.get().next_due_at is None
    assert [change.kind for change in Monitor.objects.get().changes.order_by("pk")] == ["paused"]
    apply_text(user, text % "true")
    assert MonitorState.objects.get().next_due_at is not None
    assert [change.kind for change in Monitor.objects.get().changes.order_by("pk")] == ["paused", "resumed"]


def test_the_url_of_an_ntfy_topic_changes_nothing_twice() -> None:
    user = UserFactory()
    text = """
        version: 1
        channels: [{name: Phone, kind: ntfy, topic: ntfy.example.com/shop}]
    """
    assert told(apply_text(user, text))
    assert told(apply_text(user, text)) == []


def test_renaming_and_moving_by_id() -> None:
    user = UserFactory()
    project, monitor = ProjectFactory(owner=user, name="Old"), MonitorFactory(owner=user, name="Old")
    channel = ChannelFactory(owner=user, name="Old", monitors="chosen", monitor_ids=[monitor.public_id])
    report = apply_text(
        user,
        f"""
        version: 1
        projects: [{{id: {project.public_id}, name: New}}]
        monitors: [{{id: {monitor.public_id}, name: New, project: New, url: "http://127.0.0.1:9/"}}]
        channels:
          - {{id: {channel.public_id}, name: New, kind: webhook, url: "${{keep:PK_U}}",
              monitors: [{{project: New, name: New}}]}}
        """,
    )
    assert told(report) == [
        "~ project 'New'",
        "    name: Old → New",
        "~ monitor 'New' in New",
        "    name: Old → New",
        "    project: none → New",
        "~ alert channel 'New'",
        "    name: Old → New",
    ]
    monitor.refresh_from_db()
    assert (monitor.name, monitor.project) == ("New", project)


def test_a_name_that_is_given_up_can_be_taken_at_once() -> None:
    user = UserFactory()
    project, monitor = ProjectFactory(owner=user, name="A"), MonitorFactory(owner=user, name="A")
    text = f"""
        version: 1
        projects: [{{name: A}}, {{id: {project.public_id}, name: B}}]
        monitors:
          - {{name: A, url: "https://example.com/"}}
          - {{id: {monitor.public_id}, name: B, project: B, url: "http://127.0.0.1:9/"}}
        """
    assert [line for line in told(apply_text(user, text)) if not line.startswith(" ")] == [
        "+ project 'A'",
        "~ project 'B'",
        "+ monitor 'A'",
        "~ monitor 'B' in B",
    ]
    assert apply_text(user, text).changes == []


def test_pruning_ends_where_the_file_is_not_in_charge() -> None:
    user = UserFactory()
    ours, theirs = ProjectFactory(owner=user, name="Ours"), ProjectFactory(owner=user, name="Theirs")
    for name, project in (("Kept", ours), ("Gone", ours), ("Other", theirs)):
        MonitorFactory(owner=user, name=name, project=project)
    MonitorFactory(owner=user, name="Ungrouped")
    ChannelFactory(owner=user, name="No section", project=ours)
    text = """
        version: 1
        projects: [{name: Ours}]
        monitors: [{name: Kept, project: Ours, url: "http://127.0.0.1:9/"}]
        """
    without = apply_text(user, text)
    assert (without.changes, without.unmentioned) == ([], 1)
    dry = apply_text(user, text, prune=True, dry_run=True)
    assert told(dry) == ["- monitor 'Gone' in Ours"]
    assert Monitor.objects.count() == 4
    apply_text(user, text, prune=True)
    assert set(Monitor.objects.values_list("name", flat=True)) == {"Kept", "Other", "Ungrouped"}
    assert AlertChannel.objects.filter(name="No section").exists()
    report = apply_text(user, dedent(text) + "ungrouped: true\n", prune=True)
    assert told(report) == ["- monitor 'Ungrouped'"]
    assert Project.objects.count() == 2


def test_pruning_makes_room() -> None:
    user = UserFactory()
    user.plan = PlanFactory(monitor_limit=1)
    user.save()
    MonitorFactory(owner=user, name="Old")
    text = "version: 1\nungrouped: true\nmonitors: [{name: New, url: 'https://example.com/'}]\n"
    channel = "channels: [{name: C, kind: webhook, url: 'https://example.com/', monitors: [New]}]\n"
    assert refusal(user, text + channel) == [
        "3:11: monitors: exceed the plan's limit of 1 together with other monitors."
    ]
    apply_text(user, text, prune=True)
    assert Monitor.objects.get().name == "New"


def test_the_plans_shortest_interval_holds_and_is_said() -> None:
    user = UserFactory(plan__name="free")
    text = "version: 1\nmonitors: [{name: M, url: 'https://example.com/', interval_sec: 60}]\n"
    report = apply_text(user, text)
    assert [note.format("f") for note in report.notes] == [
        "f:2:65: monitors[0].interval_sec: 60 is raised to 300, the shortest interval of the plan."
    ]
    assert Monitor.objects.get().interval_sec == 300
    assert apply_text(user, text).changes == []


def test_one_bad_monitor_changes_nothing_and_is_named_by_its_line() -> None:
    user = UserFactory()
    good = "".join(f"  - {{name: M {n}, url: 'https://example.com/{n}'}}\n" for n in range(30))
    text = f"version: 1\nmonitors:\n{good}  - name: Bad\n    url: https://example.com/\n    slow_ms: fast\n"
    assert refusal(user, text) == ["35:14: monitors[30].slow_ms: must be an integer."]
    assert Monitor.objects.count() == 0


def test_all_that_is_wrong_is_said_in_one_run() -> None:
    user = UserFactory()
    MonitorFactory(owner=user, name="Twin")
    MonitorFactory(owner=user, name="Twin")
    text = """\
version: 1
monitor: []
projects:
  - name: Shop
  - name: Shop
monitors:
  - name: A
    project: Shpo
    url: https://example.com/
  - name: B
    intervall_sec: 60
    url: https://example.com/
  - name: C
    url: https://example.com/
    type: snmp
  - name: D
    url: ftp://example.com/
  - name: E
    url: https://10.0.0.1/
    content_rules: [{type: json_field}]
  - name: F
    url: https://example.com/
    request_headers: [{name: X, value: "${SECRET_KEY}"}]
  - name: F
    url: https://example.com/
  - url: https://example.com/
  - name: Twin
    url: https://example.com/
  - id: mon_nowhere
    name: G
    url: https://example.com/
  - 7
channels:
  - name: Refers to a broken one
    kind: webhook
    url: https://hooks.example.com/
    monitors: [B]
  - name: Refers to none
    kind: webhook
    url: https://hooks.example.com/
    monitors: [Bb]
  - name: Private
    kind: webhook
    url: https://10.0.0.1/
  - name: Kinds
    kind: email
    address: me@example.com
    secret: 0123456789abcdef
maintenance_windows:
  - {name: W, starts_at: 2026-12-01T00:00:00, ends_at: tomorrow, monitors: some}
status_pages:
  - {slug: "Bad Slug", name: P, password: short}
  - {slug: Bad_Slug, name: P}
"""
    assert [line[:70] for line in refusal(user, text)] == [
        "2:1: monitor: unknown section. Did you mean 'monitors'?",
        "5:5: projects[1]: is already in line 4.",
        "8:14: monitors[0].project: the file has no project 'Shpo'; list it und",
        "11:5: monitors[1].intervall_sec: unknown field. Did you mean 'interval",
        "15:11: monitors[2].type: must be one of http, keyword, api, port, udp,",
        "17:10: monitors[3].url: must begin with http:// or https://.",
        "19:10: monitors[4].url: is a private or reserved address, which Pulsek",
        "23:40: monitors[5].request_headers[0].value: ${SECRET_KEY} is not a pl",
        "26:5: monitors[7].name: This field is required.",
        "27:11: monitors[8].name: you have 2 with this name here; set id.",
        "29:9: monitors[9].id: monitor not found; without an id it is found by ",
        "32:5: monitors[10]: must be a map.",
        "41:16: channels[1].monitors[0]: no monitor 'Bb' outside of projects.",
        "44:10: channels[2].url: is a private or reserved address, which Pulsek",
        "48:13: channels[3].secret: is not a field of channels of kind email.",
        "50:26: maintenance_windows[0].starts_at: must be a date and time with ",
        "50:56: maintenance_windows[0].ends_at: must be a date and time with it",
        "50:76: maintenance_windows[0].monitors: must be all, or a list of moni",
        "52:43: status_pages[0].password: Ensure this field has at least 8 char",
        "53:12: status_pages[1].slug: must be 1 to 64 characters of a-z, 0-9 an",
    ]
    assert Monitor.objects.count() == 2


def test_what_a_monitor_cannot_become() -> None:
    user = UserFactory()
    MonitorFactory(owner=user, name="M", heartbeat=True)
    text = "version: 1\nmonitors:\n  - name: M\n    type: scheduler\n    url: https://example.com/\n"
    assert refusal(user, text) == ["4:11: monitors[0].type: a heartbeat monitor cannot become scheduler."]


def test_no_output_moves_a_terminals_cursor() -> None:
    user = UserFactory()
    text = 'version: 1\nmonitors: [{name: "\\e[2J", url: "https://example.com/", "\\e[1A": 1}]\n'
    assert not any("\x1b" in line for line in refusal(user, text))
    text = text.replace(', "\\e[1A": 1', "")
    assert not any("\x1b" in line for line in told(apply_text(user, text)))


def test_limits_of_others_are_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts.services, "MAX_CHANNELS", 3)
    channels = "".join(f"  - {{name: C{n}, kind: webhook, url: 'https://example.com/{n}'}}\n" for n in range(3))
    told_ = refusal(UserFactory(), f"version: 1\nchannels:\n{channels}")  # its own address is one
    assert told_ == ["5:5: channels[2]: The limit of alert channels per account is reached."]


def test_a_slug_of_another_account() -> None:
    apply_text(UserFactory(), WINDOW, environment=KEY)
    assert refusal(UserFactory(), WINDOW, environment=KEY) == [
        "25:11: status_pages[0].slug: is already used by another status page."
    ]


def test_objects_of_other_accounts_are_not_found() -> None:
    theirs = MonitorFactory(name="M")
    user = UserFactory()
    text = f"version: 1\nmonitors: [{{id: {theirs.public_id}, name: M, url: 'https://example.com/'}}]\n"
    assert "monitor not found" in refusal(user, text)[0]
    text = (
        "version: 1\nchannels: [{name: C, kind: webhook, url: 'https://example.com/', "
        f"monitors: [{{id: {theirs.public_id}}}]}}]\n"
    )
    assert "monitor not found" in refusal(user, text)[0]


def test_a_member_works_in_a_shared_project_under_its_owners_plan() -> None:
    owner, member = UserFactory(), UserFactory(plan__name="free")
    project = ProjectFactory(owner=owner, name="Shared", member=member)
    text = """
        version: 1
        projects: [{name: Shared}]
        monitors: [{name: M, project: Shared, url: "https://example.com/", interval_sec: 60}]
        """
    assert apply_text(member, text).created == 1
    monitor = Monitor.objects.get()
    assert (monitor.owner, monitor.project, monitor.interval_sec) == (owner, project, 60)
    # A member may not rename it.
    text = f"version: 1\nprojects: [{{id: {project.public_id}, name: Mine}}]\n"
    assert refusal(member, text) == ["2:12: projects[0]: Your role does not allow this."]
    Membership.objects.filter(user=member).delete()
    assert apply_text(member, "version: 1\nprojects: [{name: Shared}]\n").created == 1


def test_a_new_address_is_asked_once(django_capture_on_commit_callbacks: object) -> None:
    user = UserFactory()
    text = "version: 1\nchannels: [{name: Team, kind: email, address: Team@Example.org}]\n"
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        apply_text(user, text, dry_run=True)
        assert mail.outbox == []
        apply_text(user, text)
    assert [message.to for message in mail.outbox] == [["team@example.org"]]
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        assert apply_text(user, text).changes == []
    assert len(mail.outbox) == 1


def test_as_many_queries_for_many_monitors() -> None:
    def file(count: int, *, slow_ms: int) -> str:
        monitors = "".join(
            f"  - {{name: M {n}, url: 'https://m.of{count}n{n}.com/', check_domain: true, slow_ms: {slow_ms}}}\n"
            for n in range(count)
        )
        return f"version: 1\nungrouped: true\nmonitors:\n{monitors}"

    def asked(count: int) -> list[int]:
        """Return the number of queries to create monitors, change nothing, change all, and delete all but one."""
        user, found = UserFactory(), []
        steps = (file(count, slow_ms=100), file(count, slow_ms=100), file(count, slow_ms=200), file(1, slow_ms=200))
        for text in steps:
            with CaptureQueriesContext(connection) as queries:
                assert len(apply_text(user, text, prune=True).changes) in (0, count, count - 1)
            found.append(len(queries))
        return found

    many, few = asked(40), asked(4)
    assert all(one <= other + 2 for one, other in zip(many, few, strict=True)), (many, few)


def test_a_project_of_others_does_not_take_the_place_of_ones_own() -> None:
    """Anyone may add a person to a project, and give it the name of one that the person's files name."""
    user = UserFactory()
    own, foreign = ProjectFactory(owner=user), ProjectFactory(member=user)
    text = 'version: 1\nprojects: [{name: Shop}]\nmonitors: [{name: A, project: Shop, url: "http://127.0.0.1:9/"}]\n'
    apply_text(user, text)
    assert Monitor.objects.get().project == own
    apply_text(user, text.replace("name: Shop", f"id: {foreign.public_id}, name: Shop"))
    assert Monitor.objects.get(owner=foreign.memberships.get(role="owner").user).project == foreign
