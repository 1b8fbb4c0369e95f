"""Idempotency-Key: repeated, concurrent and interrupted requests create one object and get the same answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction

from accounts.models import User
from config.celery import app
from core import crypto
from core.clock import utc_now
from monitors.checking import interactive
from monitors.models import Monitor
from projects import idempotency
from projects.models import IdempotencyKey, Project
from projects.tasks import sweep
from tests.api.client import Answer, Api
from tests.factories import PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.processes.waiting import until
from tests.site import Site
from tokens.models import ProjectToken

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"


def test_a_project_is_created_once(api: Api) -> None:
    first = api.post("/v1/projects", {"name": "Shop"}, key=KEY)
    Project.objects.update(name="Renamed since")
    again = api.post("/v1/projects", {"name": "Shop"}, key=KEY)
    assert (again.status, again.text) == (first.status, first.text) == (201, first.text)
    assert Project.objects.count() == 1
    other = api.post("/v1/projects", {"name": "Shop"}, key=KEY + "2")
    assert (other.status, other.json["id"] != first.json["id"]) == (201, True)
    assert api.post("/v1/projects", {"name": "Shop"}).json["id"] != first.json["id"]


def test_a_token_is_created_once_and_its_plaintext_is_not_stored_in_clear(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    body = {"project_id": project.public_id, "name": "the CI pipeline", "ttl_seconds": 600}
    first = api.post("/v1/tokens", body, key=KEY)
    again = api.post("/v1/tokens", dict(reversed(body.items())), key=KEY)
    assert (again.status, again.text) == (201, first.text)
    assert Api(again.json["token"]).get("/v1/monitors").status == 200
    assert ProjectToken.objects.count() == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT k::text FROM projects_idempotencykey k")
        row = cursor.fetchone()[0]
    assert first.json["token"] not in row
    assert "the CI pipeline" not in row
    assert api.delete(f"/v1/tokens/{first.json['id']}").status == 200
    assert api.post("/v1/tokens", body, key=KEY).text == first.text, "what was answered, though it opens nothing"


def test_a_monitor_is_created_once_and_read_again(worker: None, site: Site) -> None:
    user = UserFactory(plan=PlanFactory(monitor_limit=1))
    api = Api.signed_in(user)
    body = {"url": site.url("/ok"), "name": "Shop", "request_headers": [{"name": "X", "value": "hunter2"}]}
    first = api.post("/v1/monitors", body, key=KEY)
    again = api.post("/v1/monitors", body, key=KEY)
    assert (first.status, first.json["status"]) == (201, "up")
    assert (again.status, again.json) == (201, first.json), "also with the plan's number of monitors reached"
    assert api.post("/v1/monitors", body, key="another").json["error"] == "monitor_limit"
    assert site.requests == 1
    assert api.delete(f"/v1/monitors/{first.json['id']}").status == 200
    gone = api.post("/v1/monitors", body, key=KEY)
    assert (gone.status, gone.json["error"]) == (409, "idempotency_key_spent")
    assert not Monitor.objects.exists()


def test_another_request_under_the_same_key(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    assert api.post("/v1/projects", {"name": "Shop"}, key=KEY).status == 201
    for path, body in (
        ("/v1/projects", {"name": "Shop "}),
        ("/v1/tokens", {"project_id": project.public_id, "name": "Shop"}),
        ("/v1/monitors", {"url": "http://127.0.0.1:9/"}),
    ):
        answer = api.post(path, body, key=KEY)
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert "Idempotency-Key: " in answer.error
    assert not ProjectToken.objects.exists()
    assert not Monitor.objects.exists()


def test_a_key_belongs_to_its_caller(api: Api, user: User) -> None:
    first = api.post("/v1/projects", {"name": "Shop"}, key=KEY)
    others = Api.signed_in(UserFactory()).post("/v1/projects", {"name": "Shop"}, key=KEY)
    again = Api.signed_in(user).post("/v1/projects", {"name": "Shop"}, key=KEY)
    assert others.json["id"] != first.json["id"] == again.json["id"]


@pytest.mark.parametrize("key", ["", "a" * 256, "\xe9", "tab\there"])
def test_what_is_no_key(api: Api, key: str) -> None:
    answer = api.post("/v1/projects", {"name": "Shop"}, key=key)
    assert (answer.status, "Idempotency-Key" in answer.error) == (422, True)
    assert not Project.objects.exists()


@pytest.mark.parametrize("key", ["x", "~" * 255, '"quoted"', "with blanks"])
def test_what_is_a_key(api: Api, key: str) -> None:
    assert api.post("/v1/projects", {"name": "Shop"}, key=key).status == 201
    assert api.post("/v1/projects", {"name": "Shop"}, key=key).status == 201
    assert Project.objects.count() == 1


def test_a_request_that_fails_keeps_no_key(api: Api, user: User) -> None:
    project, foreign = ProjectFactory(owner=user), ProjectFactory(owner=UserFactory())
    assert api.post("/v1/projects", {"name": ""}, key=KEY).status == 422
    assert api.post("/v1/tokens", {"name": "x"}, key=KEY).status == 400
    assert api.post("/v1/tokens", {"project_id": foreign.public_id, "name": "x"}, key=KEY).status == 400
    assert api.post("/v1/monitors", {"url": "nonsense"}, key=KEY).status == 422
    assert not IdempotencyKey.objects.exists()
    assert api.post("/v1/tokens", {"project_id": project.public_id, "name": "x"}, key=KEY).status == 201


def test_a_project_token_may_not_and_leaves_no_key(user: User) -> None:
    token = Api.with_token(user, ProjectFactory(owner=user))
    for path in ("/v1/projects", "/v1/tokens"):
        assert token.post(path, {"name": "x"}, key="\xe9").json["error"] == "session_required"


def test_a_crash_on_the_way_keeps_no_key(api: Api) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE projects_membership RENAME COLUMN role TO gone")
    assert api.post("/v1/projects", {"name": "Shop"}, key=KEY).status == 500
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE projects_membership RENAME COLUMN gone TO role")
    assert not IdempotencyKey.objects.exists()
    assert api.post("/v1/projects", {"name": "Shop"}, key=KEY).status == 201


def test_a_key_lasts_24_hours(user: User) -> None:
    start, body = utc_now(), {"name": "Shop"}
    first = Api.signed_in(user).post("/v1/projects", body, key=KEY)
    for hours, same in ((23.9, True), (24.1, False), (47.0, False)):
        with time_machine.travel(start + timedelta(hours=hours)):
            again = Api.signed_in(user).post("/v1/projects", body, key=KEY)
            assert (again.json["id"] == first.json["id"]) is same
    assert Project.objects.count() == 2, "the second lasts a day of its own"
    with time_machine.travel(start + timedelta(hours=25)):
        assert Api.signed_in(user).post("/v1/projects", {"name": "Other"}, key=KEY).status == 422


def test_old_keys_are_swept(api: Api) -> None:
    api.post("/v1/projects", {"name": "Shop"}, key=KEY)
    sweep()
    assert IdempotencyKey.objects.count() == 1
    with time_machine.travel(utc_now() + timedelta(hours=24, seconds=1)):
        sweep()
    assert not IdempotencyKey.objects.exists()


def sent(api: Api, path: str, body: Any) -> Callable[[], Answer]:
    return lambda: api.post(path, body, key=KEY)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["projects", "tokens"])
def test_many_at_once_create_one(what: str) -> None:
    user = UserFactory()
    body = {"name": "x"} | ({"project_id": ProjectFactory(owner=user).public_id} if what == "tokens" else {})
    before = Project.objects.count()
    answers: list[Any] = run_concurrently(*[sent(Api.signed_in(user), f"/v1/{what}", body) for _ in range(8)])
    assert {answer.status for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    made = ProjectToken.objects.count() if what == "tokens" else Project.objects.count() - before
    assert made == 1


def test_monitors_created_at_once_are_one_with_one_first_check(worker: None, site: Site) -> None:
    user = UserFactory()
    body = {"url": site.url("/ok")}
    answers: list[Any] = run_concurrently(*[sent(Api.signed_in(user), "/v1/monitors", body) for _ in range(4)])
    assert {answer.status for answer in answers} == {201}
    assert {answer.json["status"] for answer in answers} == {"up"}, "all waited for the one check"
    assert len({answer.json["id"] for answer in answers}) == 1
    assert (Monitor.objects.count(), site.requests) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_different_bodies_at_once_under_one_key() -> None:
    api = Api.signed_in(UserFactory())
    answers: list[Any] = run_concurrently(*[sent(api, "/v1/projects", {"name": f"n{n}"}) for n in range(4)])
    assert sorted(answer.status for answer in answers) == [201, 422, 422, 422]
    assert Project.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_for_the_first(commits: bool) -> None:
    """The second request waits until the first has committed or failed; after a failure it replaces the first."""
    api = Api.signed_in(UserFactory())
    holding, end = threading.Event(), threading.Event()
    real = crypto.encrypt

    def slow_encrypt(text: str) -> str:
        if threading.current_thread().name == "first":
            holding.set()
            assert end.wait(timeout=20)
            if not commits:
                raise RuntimeError("dies before its commit")
        return real(text)

    answers: dict[str, Answer] = {}

    def run() -> None:
        answers[threading.current_thread().name] = api.post("/v1/projects", {"name": "x"}, key=KEY)
        connection.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crypto, "encrypt", slow_encrypt)
        threads = {name: threading.Thread(target=run, name=name) for name in ("first", "second")}
        threads["first"].start()
        assert holding.wait(timeout=20)
        threads["second"].start()
        _until_somebody_waits_for_a_lock()
        end.set()
        for thread in threads.values():
            thread.join(timeout=20)
    assert answers["first"].status == (201 if commits else 500)
    assert answers["second"].status == 201
    assert Project.objects.count() == 1
    if commits:
        assert answers["first"].text == answers["second"].text


@pytest.mark.django_db(transaction=True)
def test_a_first_request_that_does_not_end_is_waited_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "LOCK_TIMEOUT_SEC", 0.1)
    user = UserFactory()
    api = Api.signed_in(user)
    with transaction.atomic():
        IdempotencyKey.objects.create(caller=f"user:{user.pk}", key=KEY, fingerprint=b"", created_at=utc_now())
        (answer,) = run_concurrently(sent(api, "/v1/projects", {"name": "x"}))
        transaction.set_rollback(True)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.json["error"]) == (409, "idempotency_key_in_use")
    assert api.post("/v1/projects", {"name": "x"}, key=KEY).status == 201


@pytest.mark.django_db(transaction=True)
def test_a_process_that_dies_after_the_commit_leaves_a_monitor_to_answer_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "PATIENCE_SEC", -0.5)  # and a second of timeout: the wait is bounded
    api = Api.signed_in(UserFactory())
    body = {"url": "http://127.0.0.1:9/", "timeout_ms": 1000}

    def die(*_: object, **__: object) -> bool:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(interactive, "check_claimed", die)
        with pytest.raises(SystemExit):
            api.post("/v1/monitors", body, key=KEY)
    again = api.post("/v1/monitors", body, key=KEY)
    assert (again.status, again.json["status"]) == (201, None)
    assert again.json["id"] == Monitor.objects.get().public_id


def _until_somebody_waits_for_a_lock() -> None:
    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return bool(cursor.fetchone()[0])

    until(waits, 20, "the second waits")


def test_everything_of_beats_table_is_a_task() -> None:
    app.loader.import_default_modules()
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(app.tasks)
    assert "projects.tasks.sweep" in app.tasks
