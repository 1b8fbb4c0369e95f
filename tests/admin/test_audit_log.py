"""The audit log for staff, and its entries about actions of staff on accounts."""

from __future__ import annotations

import pytest
from allauth.mfa.models import Authenticator
from django.db import connection
from django.test import Client
from django.urls import reverse

import audit.services
from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from tests.audit.reading import actions, forget_all, last
from tests.factories import ProjectFactory, UserFactory
from tests.second_factor import App

LIST = "/admin/audit/entry/"


def text(staff: Client, query: str = "") -> str:
    answer = staff.get(f"{LIST}{query}")
    assert answer.status_code == 200, query
    return answer.content.decode()


def test_searching_and_filtering(staff: Client) -> None:
    ada, bob = UserFactory(email="ada@example.com"), UserFactory(email="bob@example.com")
    project = ProjectFactory(owner=ada)
    forget_all()
    one = audit.services.record(Action.TOKEN_CREATED, actor=ada, project=project, target_name="CI")
    Entry.objects.filter(pk=one.pk).update(address="2001:db8::1")
    two = audit.services.record(Action.PLAN_CHANGED, actor=bob, subject=ada, target_name=ada.email)
    three = audit.services.record(Action.PASSWORD_CHANGED, actor=bob)
    found = {
        "q=ADA@example.com": [one, two],
        "q=bob@example.com": [two, three],
        "q=2001:db8:0::1": [one],
        f"q={ada.public_id}": [one, two],
        f"q={project.public_id}": [one],
        "q=prj_none": [],
        "q=plan.changed": [two],
        "q=nothing": [],
        "action=password.changed": [three],
        "actor_type__exact=operator": [one, two, three],
        "actor_type__exact=staff": [],
        "within=hour": [one, two, three],
        "within=nonsense&action=nonsense": [],
    }
    for query, entries in found.items():
        page = text(staff, f"?{query}")
        shown = [entry for entry in (one, two, three) if f"{LIST}{entry.pk}/change/" in page]
        assert shown == entries, query
    page = staff.get(f"{LIST}{one.pk}/change/").content.decode()
    assert ("2001:db8::1" in page, "CI" in page) == (True, True)
    account = staff.get(reverse("admin:accounts_user_change", args=[ada.pk])).content.decode()
    assert ("token.created" in account, f"{LIST}?q={ada.public_id}" in account) == (True, True)
    for path in (f"{LIST}add/", f"{LIST}{one.pk}/delete/"):
        assert staff.get(path).status_code == 403
    staff.post(f"{LIST}{one.pk}/change/", {"action": "token.revoked"})
    assert Entry.objects.get(pk=one.pk).action == "token.created"


QUERIES = [
    ("actor_email = 'a@example.com' OR target_name = 'a@example.com'", ("audit_actor_email", "audit_target_name")),
    ("address = '192.0.2.1'", ("audit_address",)),
    ("action = 'plan.changed'", ("audit_action",)),
    ("actor_id = 7 OR subject_id = 7", ("audit_actor", "audit_subject")),
    ("project_id = 7", ("audit_project",)),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("condition", "indexes"), QUERIES, ids=[condition for condition, _ in QUERIES])
def test_what_is_asked_has_an_index(condition: str, indexes: tuple[str, ...]) -> None:
    """The table's statistics are set to many rows, so that the planner picks an index for a selective query."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_entry (public_id, at, action, actor_type, actor_id, actor_public_id, actor_email,"
            " subject_id, project_id, project_public_id, target_id, target_name, address, user_agent, details)"
            " SELECT '', now(), 'a.' || n % 30, 'user', n % 900, '', n || '@x',"
            " n % 900, n % 900, '', '', n || '@y', ('10.0.' || n % 200 || '.1')::inet, '', '{}'"
            " FROM generate_series(1, 20000) n"
        )
        cursor.execute("ANALYZE audit_entry")
        cursor.execute(f"EXPLAIN SELECT * FROM audit_entry WHERE {condition} ORDER BY id DESC LIMIT 101")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert all(index in plan for index in indexes), plan
    assert "Seq Scan" not in plan


def test_what_staff_does_to_accounts_is_theirs(staff: Client) -> None:
    user = UserFactory(email="ada@example.com")
    App(user)
    forget_all()
    path = reverse("admin:accounts_user_change", args=[user.pk])
    fields = {"email": "new@example.com", "plan": str(UserFactory(plan__name="free").plan_id)}
    forget_all()
    assert staff.post(path, fields).status_code == 302
    assert actions(subject_id=user.pk) == ["plan.changed", "email.changed", "account.updated"]
    assert last().details == {"fields": ["is_active"], "is_active": False, "is_staff": False}
    password = "another long password"
    given = {"usable_password": "true", "password1": password, "password2": password}
    assert staff.post(f"/admin/accounts/user/{user.pk}/password/", given).status_code == 302
    assert User.objects.get(pk=user.pk).check_password(password)
    staff.post(f"/admin/accounts/user/{user.pk}/password/", {"usable_password": "false", "unset-password": "1"})
    assert not User.objects.get(pk=user.pk).has_usable_password()
    factor = Authenticator.objects.get(user=user, type="totp")
    staff.post(f"/admin/mfa/authenticator/{factor.pk}/delete/", {"post": "yes"})
    assert actions(subject_id=user.pk)[3:] == ["password.reset", "password.removed", "second_factor.disabled"]
    assert set(Entry.objects.filter(subject_id=user.pk).values_list("actor_type", "actor_email")) == {
        ("staff", User.objects.get(is_superuser=True).email)
    }
