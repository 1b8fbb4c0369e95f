"""`GET` and `PUT /v1/manifest`, and `POST /v1/imports`: all or nothing, and for the caller's objects only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.mail import EmailMessage
from pytest_django.fixtures import Settings

from accounts.models import Plan, User
from audit.models import Entry
from core import waiting
from incidents.windows import MAX_WINDOWS
from manifests.applying import MAX_FAILURES
from monitors.models import Monitor
from projects.access import Caller
from projects.models import Project
from pulsekeeper.manifest.problems import MAX_PROBLEMS
from tests.api.client import Answer, Api
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def api(user: User) -> Api:
    return Api.signed_in(user)


def manifest(*monitors: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"version": 1, "monitors": list(monitors), **sections}


def monitor(name: str = "Shop", **fields: Any) -> dict[str, Any]:
    return {"name": name, "url": "https://shop.example.com/", "interval_sec": 300, **fields}


def put(api: Api, body: dict[str, Any], **options: Any) -> Answer:
    return api.send("PUT", "/v1/manifest", {"manifest": body, **options})


def test_a_dry_run_changes_nothing_and_an_apply_is_idempotent(api: Api) -> None:
    wanted = manifest(monitor(project="Web"), projects=[{"name": "Web"}])
    dry = put(api, wanted, dry_run=True).json
    assert (dry["applied"], dry["created"], Monitor.objects.count()) == (False, 2, 0)
    done = put(api, wanted).json
    assert (done["applied"], done["created"], done["first_checks"]) == (True, 2, 1)
    assert [(change["kind"], change["path"]) for change in done["changes"]] == [
        ("project", "projects[0]"),
        ("monitor", "monitors[0]"),
    ]
    again = put(api, wanted).json
    assert (again["created"], again["changed"], again["deleted"], again["changes"]) == (0, 0, 0, [])
    changed = put(api, manifest(monitor(project="Web", interval_sec=600), projects=[{"name": "Web"}])).json
    assert changed["changes"][0]["fields"] == [{"field": "interval_sec", "before": "300", "after": "600"}]
    assert Entry.objects.filter(action="project.created").count() == 1


def test_an_export_changes_nothing_and_prune_deletes(api: Api) -> None:
    put(api, manifest(monitor("A"), monitor("B")))
    exported = api.send("GET", "/v1/manifest").json
    assert put(api, exported, prune=True).json["changes"] == []
    exported["monitors"].pop()
    assert put(api, exported).json["unmentioned"] == 1
    assert put(api, exported, prune=True).json["deleted"] == 1
    assert Monitor.objects.get().name == "A"


def test_one_problem_changes_nothing_and_all_are_reported(api: Api) -> None:
    answer = put(api, manifest(monitor("A"), monitor("B", slow_ms="x"), monitor("C", sloow_ms=1), monitor("A")))
    assert (answer.status, Monitor.objects.count()) == (422, 0)
    problems = {problem["path"]: problem for problem in answer.json["problems"]}
    assert problems["monitors[1].slow_ms"]["message"] == "must be an integer."
    assert problems["monitors[2].sloow_ms"]["at_key"] is True
    assert "Did you mean 'slow_ms'?" in problems["monitors[2].sloow_ms"]["message"]
    assert "is already there as monitors[0]" in problems["monitors[3].name"]["message"]
    assert answer.error == f"validation_error {answer.json['problems'][0]['path']}: must be an integer."


def test_secrets_are_variables_and_come_back_as_placeholders(api: Api) -> None:
    channel = {"name": "Hook", "kind": "webhook", "url": "https://h.example.com/${PK_PATH}"}
    assert "PK_PATH is not in the environment" in put(api, manifest(channels=[channel])).error
    assert put(api, manifest(channels=[channel]), variables={"PK_PATH": "hunter2"}).json["created"] == 1
    exported = api.send("GET", "/v1/manifest")
    assert "hunter2" not in exported.text
    hook = next(one for one in exported.json["channels"] if one["name"] == "Hook")
    assert hook["url"] == "${keep:PK_CHANNEL_HOOK_URL}"
    assert put(api, exported.json).json["changes"] == []


def test_a_plan_limit_is_a_problem_and_creates_nothing(user: User, api: Api) -> None:
    Plan.objects.filter(pk=user.plan.pk).update(monitor_limit=1)
    answer = put(api, manifest(monitor("A"), monitor("B")))
    assert (answer.status, Monitor.objects.count()) == (422, 0)
    assert "limit of 1" in answer.json["problems"][0]["message"]


def test_a_project_token_works_in_its_project_only(user: User) -> None:
    project = ProjectFactory(owner=user, name="Shop")
    other = ProjectFactory(owner=user, name="Other")
    MonitorFactory(owner=user, name="Own", project=project)
    MonitorFactory(owner=user, name="Elsewhere", project=other)
    MonitorFactory(owner=user, name="Ungrouped")
    token = Api.with_token(user, project)
    exported = token.send("GET", "/v1/manifest").json
    assert ([one["name"] for one in exported["monitors"]], "ungrouped" in exported) == (["Own"], False)
    assert put(token, exported, prune=True).json["changes"] == []
    shop = [{"name": "Shop"}]
    assert put(token, manifest(monitor("New", project="Shop"), projects=shop)).json["created"] == 1
    assert Monitor.objects.get(name="New").project == project
    for refused, path in (
        (manifest(monitor("A")), "monitors[0]"),
        (manifest(projects=[{"name": "Fresh"}]), "projects[0].name"),
        (manifest(projects=[{"name": "Other"}]), "projects[0].name"),
        (manifest(projects=[{"id": other.public_id, "name": "Other"}]), "projects[0].id"),
        (manifest(projects=[{"id": project.public_id, "name": "Renamed"}]), "projects[0]"),
    ):
        answer = put(token, refused | {"ungrouped": True}, prune=True)
        assert (answer.status, answer.json["problems"][0]["path"]) == (422, path)
    assert (Monitor.objects.count(), set(Project.objects.values_list("name", flat=True))) == (4, {"Shop", "Other"})
    assert token.send("GET", f"/v1/manifest?project_id={other.public_id}").status == 422


def test_a_member_may_not_rename_the_project(user: User) -> None:
    project = ProjectFactory(owner=user, member=(member := UserFactory()), name="Shop")
    answer = put(Api.signed_in(member), manifest(projects=[{"id": project.public_id, "name": "Mine"}]))
    assert (answer.status, answer.json["problems"][0]["path"]) == (422, "projects[0]")
    assert Project.objects.get().name == "Shop"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "manifest"),
        ({"manifest": []}, 422, "manifest"),
        ({"manifest": {}}, 422, "version"),
        ({"manifest": {"version": 1}, "force": True}, 422, "force"),
        ({"manifest": {"version": 1, "projects": [{"name": "a"}] * 2001}}, 422, "at most 2000"),
        ({"manifest": {"version": 1}, "variables": {"PK_A": 1}}, 422, "variables"),
        ({"manifest": {"version": 1, "x": "y" * 1_050_000}}, 413, "larger"),
    ],
    ids=["empty", "list", "no version", "unknown", "entries", "variables", "size"],
)
def test_what_is_refused(api: Api, body: dict[str, Any], status: int, words: str) -> None:
    answer = api.send("PUT", "/v1/manifest", body)
    assert answer.status == status
    assert words in answer.error


def test_many_misspelled_words_are_answered(api: Api) -> None:
    """Comparing words is slow, so only the first ones get a suggestion."""
    answer = put(api, {"version": 1} | {f"monitor{number}": [] for number in range(3000)})
    messages = [problem["message"] for problem in answer.json["problems"]]
    assert (len(messages), sum("Did you mean" in message for message in messages)) == (MAX_PROBLEMS, 100)
    assert messages[-1] == "there are more problems than these."


@pytest.mark.django_db(transaction=True)
def test_two_applies_at_once_create_once() -> None:
    """The second one plans after the first one committed."""
    token = Api.signed_in(UserFactory()).token
    wanted = manifest(monitor("A"), monitor("B"))
    answers = run_concurrently(*[lambda: put(Api(token), wanted).json["created"]] * 4)
    assert sorted(map(str, answers)) == ["0", "0", "0", "2"]
    assert Monitor.objects.count() == 2


class TestImports:
    def post(self, api: Api, *bodies: dict[str, Any], **options: Any) -> Answer:
        items = [{"name": body.get("name", "?"), "body": body} for body in bodies]
        return api.send("POST", "/v1/imports", {"monitors": items, **options})

    def test_what_exists_is_not_created_again(self, api: Api) -> None:
        bodies = (monitor("A"), {"name": "Job", "type": "heartbeat", "interval_sec": 600}, monitor("B", slow_ms=-1))
        dry = self.post(api, *bodies, dry_run=True)
        assert [one["outcome"] for one in dry.json] == ["created", "created", "skipped"]
        assert (dry.json[0]["monitor"]["id"], Monitor.objects.count()) == (None, 0)
        done = self.post(api, *bodies)
        assert done.json[1]["monitor"]["ping_url"].endswith(f"/v1/heartbeats/{done.json[1]['monitor']['id']}/ping")
        assert done.json[2]["notes"][0]["text"].startswith("slow_ms: ")
        again = self.post(api, *bodies)
        assert [one["outcome"] for one in again.json] == ["existing", "existing", "skipped"]
        assert Monitor.objects.count() == 2

    def test_where_they_are_created(self, user: User, api: Api) -> None:
        project = ProjectFactory(owner=user)
        self.post(Api.with_token(user, project), monitor("A"))
        self.post(api, monitor("B"), project_id=project.public_id)
        assert set(Monitor.objects.values_list("name", "project")) == {("A", project.pk), ("B", project.pk)}
        assert self.post(api, monitor("C"), project_id="prj_none").error.startswith("validation_error project_id")

    def test_more_than_the_plan_allows_creates_nothing(self, user: User, api: Api) -> None:
        user.plan = PlanFactory(monitor_limit=1)
        user.save(update_fields=["plan"])
        answer = self.post(api, monitor("A"), monitor("B"))
        assert (answer.status, answer.json["error"], answer.json["limit"]) == (403, "monitor_limit", 1)
        assert Monitor.objects.count() == 0

    def test_secrets_are_not_returned(self, api: Api) -> None:
        header = {"name": "Authorization", "value": "Bearer hunter2"}
        assert "hunter2" not in json.dumps(self.post(api, monitor(request_headers=[header])).json)


def test_consent_of_strangers_is_requested_as_often_as_people_are_invited(
    api: Api, settings: Settings, mailoutbox: list[EmailMessage], django_capture_on_commit_callbacks: Any
) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"invite": (2, 60)}
    addresses = [{"name": f"C{n}", "kind": "email", "address": f"{n}@stranger.example"} for n in range(3)]
    with django_capture_on_commit_callbacks(execute=True):
        assert put(api, manifest(channels=addresses), dry_run=True).status == 200  # sends nothing, counts nothing
        done = put(api, manifest(channels=addresses[:2]))
        refused = put(api, manifest(channels=addresses))
    assert (done.status, refused.status, refused.json["error"]) == (200, 429, "rate_limited")
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert len(mailoutbox) == 2
    assert put(api, manifest(channels=addresses[:2])).status == 200  # no new address


def test_entries_beyond_a_limit_are_not_all_tried(api: Api) -> None:
    """Each window and password takes time while rows are locked."""
    window = {"starts_at": "2099-01-04T02:00:00Z", "ends_at": "2099-01-04T03:00:00Z", "monitors": "all"}
    windows = [{"name": f"W{number}", **window} for number in range(MAX_WINDOWS + 100)]
    problems = put(api, manifest(maintenance_windows=windows)).json["problems"]
    assert len(problems) == MAX_FAILURES + 1
    assert "not every entry was tried" in problems[0]["message"]


@pytest.mark.usefixtures("impatient")
def test_an_account_applies_and_imports_once_at_a_time(api: Api, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for its lock, each with a connection to the database."""
    monkeypatch.setattr(waiting, "release_connection", lambda: None)  # this test is one transaction
    with waiting.limit_waiting(Caller(user).account, most=1, kind="manifest"):
        assert put(api, manifest()).status == 429
        assert api.send("POST", "/v1/imports", {"monitors": []}).status == 429
        assert put(Api.signed_in(UserFactory()), manifest()).status == 200
