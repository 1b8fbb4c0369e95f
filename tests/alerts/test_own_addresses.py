"""Accounts that were there before channels were get their e-mail address as one."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from accounts.models import User
from accounts.services import on_account_created
from alerts.models import AlertChannel
from core.errors import ValidationFailed
from tests.makers import make_channel, make_user


@pytest.mark.django_db(transaction=True)
def test_the_migration_adds_them_as_new_accounts_get_them() -> None:
    before, after, own = make_user(), make_user(), make_user()
    expected = AlertChannel.objects.get(owner=before)
    AlertChannel.objects.filter(owner=own).delete()
    only = make_channel(own)
    try:
        call_command("migrate", "alerts", "0001", verbosity=0)
        AlertChannel.objects.filter(owner__in=[before, after]).delete()
    finally:
        call_command("migrate", verbosity=0)
    made = AlertChannel.objects.get(owner=before)
    assert made.config == expected.config == {"address": before.email}
    for field in AlertChannel._meta.concrete_fields:
        if field.name not in ("id", "public_id", "sealed_config"):
            assert getattr(made, field.name) == getattr(expected, field.name), field.name
    assert AlertChannel.objects.filter(owner=after).count() == 1
    assert AlertChannel.objects.get(owner=own) == only, "whoever has one has chosen"


@pytest.mark.django_db(transaction=True)
def test_an_account_and_what_upper_floors_add_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(user: User) -> None:
        raise ValidationFailed("not now")

    make_user(email="first@example.com")
    monkeypatch.setattr("accounts.services.on_account_created", [*on_account_created, fail])
    with pytest.raises(ValidationFailed, match="not now"):
        make_user(email="second@example.com")
    assert User.objects.get().email == "first@example.com"
    assert AlertChannel.objects.get().owner.email == "first@example.com"
