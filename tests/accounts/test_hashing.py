"""Hashing of passwords: Argon2 in turns, and passwords that were hashed before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher, check_password, make_password
from pytest_django.fixtures import Settings

from accounts import hashing
from accounts.models import User
from config import settings as deployed
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def hashers(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = deployed.PASSWORD_HASHERS


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the clients whose turns were used, in order."""
    taken: list[tuple[str, ...]] = []
    turn = hashing.shares.turn

    @contextmanager
    def counted(*users: str) -> Iterator[None]:
        with turn(*users):
            taken.append(users)
            yield

    monkeypatch.setattr(hashing.shares, "turn", counted)
    return taken


def test_each_hash_takes_a_turn(turns: list[tuple[str, ...]]) -> None:
    encoded = make_password("a fine long password")
    assert encoded.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
    assert check_password("a fine long password", encoded)
    assert not check_password("another one", encoded)
    assert len(turns) == 3


@pytest.mark.django_db
def test_an_earlier_hash_is_valid_and_is_replaced_when_it_is_used(turns: list[tuple[str, ...]]) -> None:
    earlier = PBKDF2PasswordHasher().encode("a fine long password", "salt", 1_000)
    user = UserFactory()
    User.objects.filter(pk=user.pk).update(password=earlier)
    user.refresh_from_db()
    assert not user.check_password("another one")
    assert user.check_password("a fine long password")
    user.refresh_from_db()
    assert user.password.startswith("argon2$")
    assert user.check_password("a fine long password")
    assert len(turns) >= 4
