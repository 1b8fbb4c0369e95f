"""`manage.py create_account`, which creates accounts."""

from __future__ import annotations

import io
import sys

import pytest
from django.core.management import CommandError, call_command

from accounts.models import User
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db

GOOD = {"email": "Me@Example.com", "password": "a fine long password"}


def create(**options: object) -> str:
    out = io.StringIO()
    call_command("create_account", stdout=out, **{**GOOD, **options})
    return out.getvalue()


def test_an_account_and_one_of_staff() -> None:
    assert create() == "created me@example.com on plan free\n"
    plain = User.objects.get()
    assert (plain.plan.name, plain.is_staff, plain.is_superuser) == ("free", False, False)
    assert plain.check_password(GOOD["password"])
    create(email="boss@example.com", plan="pro", staff=True)
    boss = User.objects.get(email="boss@example.com")
    assert (boss.plan.name, boss.is_staff, boss.is_superuser) == ("pro", True, True)


def test_the_password_may_be_a_line_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(GOOD["password"] + "\n"))
    call_command("create_account", "--email", GOOD["email"], stdout=io.StringIO())
    assert User.objects.get().check_password(GOOD["password"])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CommandError, match="password"):
        call_command("create_account", "--email", "other@example.com", stdout=io.StringIO())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"email": "no-domain"}, "email"),
        ({"password": "12345678"}, "password"),
        ({"plan": "gold"}, "choose one of: free, local, pro"),
    ],
)
def test_bad_values_are_named_and_nothing_is_made(options: dict[str, str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        create(**options)
    assert not User.objects.exists()


def test_a_taken_address() -> None:
    UserFactory(email="me@example.com")
    with pytest.raises(CommandError, match="already"):
        create()


def test_createsuperuser_creates_a_staff_account() -> None:
    call_command("createsuperuser", stdout=io.StringIO(), **GOOD)
    user = User.objects.get()
    assert (user.email, user.is_staff, user.is_superuser) == ("me@example.com", True, True)
