"""Accounts that are older than channels get a channel for their e-mail address."""

from __future__ import annotations

import pytest

from accounts.models import User
from accounts.services import on_account_created
from alerts.models import AlertChannel
from core.errors import ValidationFailed
from tests.factories import UserFactory


@pytest.mark.django_db(transaction=True)
def test_an_account_and_what_upper_floors_add_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(user: User) -> None:
        raise ValidationFailed("not now")

    UserFactory(email="first@example.com")
    monkeypatch.setattr("accounts.services.on_account_created", [*on_account_created, fail])
    with pytest.raises(ValidationFailed, match="not now"):
        UserFactory(email="second@example.com")
    assert User.objects.get().email == "first@example.com"
    assert AlertChannel.objects.get().owner.email == "first@example.com"
