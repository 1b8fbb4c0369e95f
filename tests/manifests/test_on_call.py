"""On-call schedules, escalation policies, and who has which, in files."""

from __future__ import annotations

import pytest

from accounts.models import User
from alerts.models import AlertChannel
from monitors.models import Monitor
from oncall.models import EscalationPolicy, OnCallSchedule
from oncall.services import create_policy, delete_policy
from projects.access import Caller
from projects.models import Membership, Project
from projects.services import update_project
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import NOON
from tests.manifests.helpers import apply_text, exported, refusal, told

pytestmark = pytest.mark.django_db

FILE = """
    version: 1
    projects:
      - {name: Shop, escalation_policy: Backend}
    monitors:
      - {name: Web, project: Shop, type: heartbeat, escalation_policy: Backend}
      - {name: Router, type: heartbeat, escalation_policy: Mine}
      - {name: Backup, project: Shop, type: heartbeat, escalation_policy: Mine}
    channels:
      - {name: Team, project: Shop, kind: webhook, url: "http://127.0.0.1:9/"}
    on_call_schedules:
      - name: Backend
        project: Shop
        timezone: Europe/Berlin
        layers:
          - people: [ANNA@example.com, bob@example.com]
            every: {unit: week, count: 1}
            starts_at: 2026-03-02T09:00:00+01:00
            hours: [{days: [5, 1], from: "09:00", to: "17:00"}]
        overrides:
          - person: bob@example.com
            starts_at: 2026-03-03T09:00:00+01:00
            ends_at: 2026-03-03T10:00:00+01:00
    escalation_policies:
      - name: Backend
        project: Shop
        steps:
          - after_min: 0
            targets: [{schedule: Backend}, {channel: Team}]
          - {after_min: 10, targets: [{user: bob@example.com}]}
        repeat: 1
      - {name: Mine, steps: [{after_min: 5, targets: [{user: anna@example.com}]}]}
"""


@pytest.fixture
def anna() -> User:
    return UserFactory(email="anna@example.com")


@pytest.fixture
def bob() -> User:
    return UserFactory(email="bob@example.com")


@pytest.fixture
def shop(anna: User, bob: User) -> Project:
    return ProjectFactory(owner=anna, member=bob, name="Shop")


def policies() -> dict[str, str | None]:
    return dict(Monitor.objects.values_list("name", "escalation_policy__name"))


def test_a_file_makes_all_of_it_and_an_export_is_the_same(anna: User, bob: User, shop: Project) -> None:
    dry = apply_text(anna, FILE, dry_run=True)
    assert not EscalationPolicy.objects.exists()
    assert told(dry)[:2] == ["~ project 'Shop'", "    escalation_policy: none → Backend"]
    report = apply_text(anna, FILE)
    assert report.changes == dry.changes
    assert policies() == {"Web": "Backend", "Router": "Mine", "Backup": "Mine"}
    shop.refresh_from_db()
    assert str(shop.escalation_policy) == "Backend"
    schedule, channel = OnCallSchedule.objects.get(), AlertChannel.objects.get(name="Team")
    assert schedule.layers == [
        {
            "user_ids": [anna.public_id, bob.public_id],
            "every": {"unit": "week", "count": 1},
            "starts_at": 1_772_438_400_000,
            "hours": [{"days": [1, 5], "from": "09:00", "to": "17:00"}],
        }
    ]
    assert [override["user_id"] for override in schedule.overrides] == [bob.public_id]
    targets = EscalationPolicy.objects.get(name="Backend").steps[0]["targets"]
    assert [target["id"] for target in targets] == [schedule.public_id, channel.public_id]
    assert apply_text(anna, FILE).changes == []
    text = exported(anna).replace("${keep:PK_CHANNEL_TEAM_URL}", "http://127.0.0.1:9/")
    assert text.count("escalation_policy: Backend") == 2
    assert "anna@example.com" in text
    for again in (text, exported(anna, with_ids=True), exported(anna, project_id=shop.public_id)):
        assert apply_text(anna, again).changes == []


def test_changes_are_told_field_by_field(anna: User, shop: Project) -> None:
    apply_text(anna, FILE)
    changed = FILE.replace("count: 1", "count: 2").replace("after_min: 10", "after_min: 15")
    changed = changed.replace("type: heartbeat, escalation_policy: Backend", "type: heartbeat")
    start = "from 2026-03-02T08:00:00+00:00, 1,5 09:00-17:00"
    people, steps = "anna@example.com, bob@example.com", "after 0 min schedule Backend, channel Team; after"
    turns = [f"{people} every {count} week {start}" for count in (1, 2)]
    waits = [f"{steps} {minutes} min user bob@example.com" for minutes in (10, 15)]
    assert told(apply_text(anna, changed)) == [
        "~ monitor 'Web' in Shop",
        "    escalation_policy: Backend → none",
        "~ on-call schedule 'Backend' in Shop",
        f"    layers: {' → '.join(one if len(one) <= 100 else one[:99] + '…' for one in turns)}",
        "~ escalation policy 'Backend' in Shop",
        f"    steps: {' → '.join(waits)}",
    ]
    assert policies()["Web"] is None
    # A project keeps its policy in a file that does not say.
    silent = changed.replace("{name: Shop, escalation_policy: Backend}", "{name: Shop}")
    assert apply_text(anna, silent).changes == []
    assert told(
        apply_text(anna, changed.replace("Shop, escalation_policy: Backend", "Shop, escalation_policy: null"))
    ) == [
        "~ project 'Shop'",
        "    escalation_policy: Backend → none",
    ]


def test_problems_have_their_line(anna: User, shop: Project) -> None:
    wrong = FILE.replace("[{user: bob@example.com}]", "[{user: eve@example.com}]")
    wrong = wrong.replace("people: [ANNA@example.com, bob@example.com]", "people: [carl@example.com]")
    wrong = wrong.replace(
        "escalation_policy: Backend}\n      - {name: Router", "escalation_policy: Back}\n      - {name: Router"
    )
    assert [reason.partition(": ")[2] for reason in refusal(anna, wrong)] == [
        (
            "monitors[0].escalation_policy: 'Back' not found in escalation_policies of this project or without one. "
            "Did you mean 'Backend'?"
        ),
        "on_call_schedules[0].layers[0].people[0]: 'carl@example.com' not found: names only members of the project.",
    ]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("{schedule: Backend}", "{team: Backend}", "must be {user: address}, {schedule: name} or {channel: name}."),
        ("{schedule: Backend}", "{schedule: 5}", "must be a name, or {id}."),
        ("{schedule: Backend}", "{schedule: {id: ocs_x}}", "'ocs_x' not found in on_call_schedules"),
        ("Europe/Berlin", "Europe/Atlantis", "is not a time zone"),
        ("count: 1", "count: 60", "at most 52 with the unit week."),
        ('to: "17:00"', 'to: "24:00"', "[0].to must be a time"),
        ("ends_at: 2026-03-03T10", "ends_at: 2026-03-03T08", "must be after starts_at."),
        ("2026-03-02T09:00:00+01:00", "tomorrow", "must be a date and time"),
        ("after_min: 10", "after_min: 1441", "less than or equal to 1440"),
        ("repeat: 1", "repeats: 1", "unknown field. Did you mean 'repeat'?"),
        ("unit: week", "unit: month", "must be one of hour, day, week."),
    ],
)
def test_other_values_are_refused(anna: User, shop: Project, before: str, after: str, reason: str) -> None:
    (told_,) = refusal(anna, FILE.replace(before, after))
    assert reason in told_


def test_a_policy_belongs_to_its_place(anna: User, shop: Project) -> None:
    ProjectFactory(owner=anna, name="Blog")
    elsewhere = FILE.replace("{name: Web, project: Shop", "{name: Web, project: Blog")
    elsewhere = elsewhere.replace("projects:\n", "projects:\n      - {name: Blog}\n")
    (reason,) = refusal(anna, elsewhere)
    assert "'Backend' not found in escalation_policies" in reason


def test_leavers_and_what_others_own_stay(anna: User, bob: User, shop: Project) -> None:
    apply_text(anna, FILE)
    Membership.objects.filter(user=bob).delete()
    text = exported(anna).replace("${keep:PK_CHANNEL_TEAM_URL}", "http://127.0.0.1:9/")
    assert bob.public_id in text
    assert "bob@example.com" not in text
    assert "targets: []" in text
    assert apply_text(anna, text).changes == []
    assert apply_text(anna, text.replace("targets: []", "targets: [{user: anna@example.com}]")).changed == 1
    # A member who does not own the project keeps policies of the owner alone.
    carl = UserFactory(email="carl@example.com")
    Membership.objects.create(project=shop, user=carl, role="admin", created_at=NOON)
    mine = EscalationPolicy.objects.get(name="Mine")
    update_project(Caller(anna), shop.public_id, {"escalation_policy_id": mine.public_id})
    text = exported(carl, project_id=shop.public_id)
    assert text.count(f"escalation_policy: {{id: {mine.public_id}}}") + text.count(f"id: {mine.public_id}") >= 2
    assert apply_text(carl, text).changes == []
    assert policies()["Backup"] == "Mine"


def test_pruned_policies_are_nobody_s(anna: User, shop: Project) -> None:
    apply_text(anna, FILE)
    given = {"name": "Old", "project_id": shop.public_id, "steps": EscalationPolicy.objects.get(name="Mine").steps}
    old = create_policy(Caller(anna), given, now=NOON)
    Monitor.objects.filter(name="Web").update(escalation_policy=old)
    assert apply_text(anna, FILE, prune=True).deleted == 1
    assert policies()["Web"] == "Backend"
    delete_policy(Caller(anna), EscalationPolicy.objects.get(name="Backend").public_id)
    assert policies()["Web"] is None
    assert apply_text(anna, FILE).created == 1
    assert policies()["Web"] == "Backend"
