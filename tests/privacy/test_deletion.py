"""After an account is deleted nothing of its person is in any table, but for what docs/operate/privacy.md names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

import accounts.services
import alerts.services
import incidents.services
import monitors.services
from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from checks.results.retention import erase_deleted
from core.clock import utc_now
from core.errors import NotFound, ProjectsShared
from incidents.models import Incident, IncidentEvent
from incidents.services import acknowledge, declare
from monitors.models import Monitor
from projects.access import Caller
from projects.members import accept_invitations, add_member
from projects.services import delete_project
from tests.accounts.browser import Browser
from tests.api.client import Api
from tests.audit.reading import actions
from tests.encrypted import stored_secrets
from tests.factories import DeliveryFactory, IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently
from tests.ownership import all_models, rows_in, rows_of, untested
from tests.privacy.living import EMAIL, NEEDLE, OLD, live


def everything() -> dict[str, list[str]]:
    """Each row of each table as text, encrypted columns decrypted, and sessions of browsers read."""
    found: dict[str, list[str]] = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT to_jsonb(row)::text FROM "{table}" row')
            found[table] = [text for (text,) in cursor.fetchall()]
    for stored in stored_secrets():
        found.setdefault(stored.table, []).append(stored.plaintext)
    found[Session._meta.db_table] += [str(session.get_decoded()) for session in Session.objects.all()]
    return found


def mentions(*words: str) -> dict[str, list[str]]:
    def tells(text: str) -> bool:
        return any(word in text.lower() or word.encode().hex() in text for word in words)

    hits = {table: [text for text in rows if tells(text)] for table, rows in everything().items()}
    return {table: texts for table, texts in hits.items() if texts}


def left_of(rows: dict[str, QuerySet[Any]], keys: dict[str, list[Any]]) -> list[str]:
    return [label for label, found in rows.items() if found.model._default_manager.filter(pk__in=keys[label]).exists()]


@pytest.fixture
def _own_content_types() -> Iterator[None]:
    """They go with the test, and Django would remember them."""
    ContentType.objects.clear_cache()
    yield
    ContentType.objects.clear_cache()


@pytest.mark.usefixtures("_own_content_types")
@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_of_an_account(settings: Any) -> None:
    settings.THROTTLE_SCALE = 0
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    staff, friend = UserFactory(email="staff@example.com"), UserFactory(email="friend@example.com")
    ada = UserFactory(email=OLD)
    Browser().sign_in(OLD)
    Entry.objects.create(
        at=utc_now(), action=Action.EMAIL_CHANGED, actor_id=ada.pk, details={"before": OLD, "after": EMAIL}
    )
    User.objects.filter(pk=ada.pk).update(email=EMAIL)
    EmailAddress.objects.filter(user=ada).update(email=EMAIL)
    ada.refresh_from_db()
    Browser().sign_in(EMAIL)
    api = Api(Api().post("/v1/sessions", {"email": EMAIL, "password": PASSWORD}).json["token"])
    made = api.send("post", "/v1/projects", {"name": f"{NEEDLE} two"}, key="once")
    assert made.status == 201
    Api().post("/v1/sessions", {"email": EMAIL, "password": "wrong"})
    own, shared, theirs = live(ada, friend)
    LogEntry.objects.create(
        user=staff,
        content_type=ContentType.objects.get_for_model(User),
        object_id=str(ada.pk),
        object_repr=EMAIL,
        action_flag=CHANGE,
        change_message=f'[{{"changed": {{"name": "e-mail address", "object": "{OLD}"}}}}]',
    )
    audit_of_staff = Entry.objects.create(
        at=utc_now(),
        action=Action.PLAN_CHANGED,
        actor_type=Entry.ActorType.STAFF,
        actor_id=staff.pk,
        subject_id=ada.pk,
        target_name=EMAIL,
    )
    rows = rows_of(ada, all_models())
    assert untested(rows) == []
    keys = {label: list(found.values_list("pk", flat=True)) for label, found in rows.items()}

    accounts.services.delete_account(ada)
    erase_deleted()

    assert left_of(rows, keys) == []
    assert mentions(NEEDLE, ada.email) == {}
    # What was done to others' projects is still known, by a person of whom nothing else is.
    left = Entry.objects.filter(actor_id=ada.pk)
    assert actions(actor_id=ada.pk, project_id=shared.pk) == ["token.created", "monitor.created", "member.invited"]
    assert set(left.values_list("actor_public_id", "actor_email", "address", "user_agent")) == {
        (ada.public_id, "", None, "")
    }
    assert left.exclude(project_id=shared.pk).get().action == "account.deleted"
    assert not Entry.objects.filter(project_id=own.pk).exists()
    audit_of_staff.refresh_from_db()
    assert (audit_of_staff.target_name, audit_of_staff.subject_id) == ("", ada.pk)
    events = IncidentEvent.objects.filter(incident=theirs).order_by("pk").values_list("text", flat=True)
    assert list(events) == [
        "Late.",
        "Acknowledged by a deleted account.",
        "It is the cable.",
        "Resolved by a deleted account.",
    ]
    # Turns of others do not move when a person leaves, so the id stays. It leads to no one.
    assert mentions(ada.public_id).keys() == {"audit_entry", "oncall_oncallschedule", "oncall_escalationpolicy"}
    (policy,) = Api.signed_in(friend).get("/v1/escalation-policies").json
    assert (policy["steps"], policy["reaches_no_one"]) == ([{"after_min": 0, "targets": []}], True)
    rows = Api.signed_in(friend).get(f"/v1/projects/{shared.public_id}/audit-log").json
    assert {row["actor_email"] for row in rows if row["actor_id"] == ada.public_id} == {None}


@pytest.mark.django_db
def test_a_deleted_project_leaves_its_monitors_alone() -> None:
    ada = UserFactory(email=EMAIL)
    own, *_ = live(ada, UserFactory())
    rows = rows_in(own, all_models())
    assert untested(rows) == []
    keys = {label: list(found.values_list("pk", flat=True)) for label, found in rows.items()}
    monitors = set(ada.monitors.values_list("pk"))

    delete_project(Caller(ada), own.public_id)

    assert left_of(rows, keys) == []
    assert set(ada.monitors.values_list("pk")) == monitors


@pytest.mark.usefixtures("_own_content_types")
@pytest.mark.django_db
def test_the_admin_s_history_of_somebody_else_stays() -> None:
    user = UserFactory(email="ada+1@example.com")
    user_type = ContentType.objects.get_for_model(User)
    notes = {
        "ada+1@example.com": accounts.services.GONE,
        "x.ada+1@example.com": "x.ada+1@example.com",
        "ada+1@example.com.au": "ada+1@example.com.au",
        "adaa1@example.com": "adaa1@example.com",
    }
    for name in notes:
        LogEntry.objects.create(
            user=UserFactory(), content_type=user_type, object_repr=name, action_flag=CHANGE, change_message=f'"{name}"'
        )
    accounts.services.delete_account(user)
    assert list(LogEntry.objects.order_by("pk").values_list("object_repr", flat=True)) == list(notes.values())
    assert list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))[:2] == [
        "",
        '"x.ada+1@example.com"',
    ]


@pytest.mark.django_db
def test_a_deletion_that_is_refused_forgets_nothing() -> None:
    owner, friend = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, member=friend)
    incident = declare(
        Caller(owner), {"title": "Late", "text": "Late.", "project_id": project.public_id}, now=utc_now()
    )
    acknowledge(Caller(owner), incident.public_id, now=utc_now())
    before = everything()
    with pytest.raises(ProjectsShared):
        accounts.services.delete_account(owner)
    assert everything() == before
    assert Incident.objects.get().acknowledged_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_large_account_is_deleted_in_small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, friend = UserFactory(email=EMAIL), UserFactory()
    live(owner, friend)
    for _ in range(5):
        IncidentFactory(monitor__owner=owner)
        DeliveryFactory(channel__owner=owner)
    for module in (monitors.services, incidents.services, alerts.services):
        monkeypatch.setattr(module, "DELETED_AT_ONCE", 2)
    tables = ("monitors_monitor", "incidents_incident", "alerts_deliveryitem", "alerts_delivery")
    with CaptureQueriesContext(connection) as queries:
        accounts.services.delete_account(owner)
    deletions = {table: [0] for table in tables}
    for query in queries.captured_queries:
        if found := re.match(r'DELETE FROM "(\w+)" WHERE "\1"."id" IN \((.*)\)', query["sql"]):
            deletions.setdefault(found[1], []).append(found[2].count(",") + 1)
    assert {table: max(deletions[table]) for table in tables} == dict.fromkeys(tables, 2)
    assert not User.objects.filter(pk=owner.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_a_deletion_whose_process_has_died_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    monitor, guest = MonitorFactory(owner=owner, project=project), UserFactory()
    EmailAddress.objects.filter(user=guest).update(verified=False)
    add_member(Caller(owner), project.public_id, email=guest.email, role="member", now=utc_now())
    EmailAddress.objects.filter(user=guest).update(verified=True)

    def die(user: User) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(accounts.services, "before_account_deleted", [die])
        with pytest.raises(KeyboardInterrupt):
            accounts.services.delete_account(owner)
    assert not Monitor.objects.filter(pk=monitor.pk).exists()
    assert Api().post("/v1/sessions", {"email": owner.email, "password": PASSWORD}).status == 401
    assert accept_invitations(guest, now=utc_now()) == 0, "no one joins its projects"
    with pytest.raises(NotFound):  # by a request that began earlier
        add_member(Caller(owner), project.public_id, email=UserFactory().email, role="member", now=utc_now())

    now = utc_now()
    assert accounts.services.finish_deletions(now) == 0, "it may still be running"
    assert accounts.services.finish_deletions(now + 2 * accounts.services.DELETION_PATIENCE) == 1
    assert not User.objects.filter(pk=owner.pk).exists()
    assert accounts.services.finish_deletions(now + 3 * accounts.services.DELETION_PATIENCE) == 0


@pytest.mark.django_db(transaction=True)
def test_a_deletion_that_fails_does_not_stop_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = UserFactory(), UserFactory()
    long_ago = utc_now() - 2 * accounts.services.DELETION_PATIENCE
    User.objects.update(is_active=False, deletion_began_at=long_ago)

    def fail(user: User) -> None:
        if user.pk == bad.pk:
            raise RuntimeError("a row that cannot be deleted")

    monkeypatch.setattr(accounts.services, "before_account_deleted", [fail])
    assert accounts.services.finish_deletions(utc_now()) == 1
    assert list(User.objects.filter(pk__in=[bad.pk, good.pk])) == [bad]
    assert f"The deletion of the account {bad.public_id} failed." in caplog.text


@pytest.mark.django_db(transaction=True)
def test_two_requests_delete_an_account_once() -> None:
    owner = UserFactory()
    for _ in range(5):
        MonitorFactory(owner=owner)
    user = User.objects.get(pk=owner.pk)
    run_concurrently(*[partial(accounts.services._delete_rows, user)] * 3)
    assert not User.objects.filter(pk=owner.pk).exists()
