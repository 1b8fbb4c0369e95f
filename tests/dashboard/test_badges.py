"""The badges of a monitor: creating them, copying their code, and removing them."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from statuspages.caching import clear_local_caches
from statuspages.models import Badge
from tests.factories import MonitorFactory, UserFactory

pytestmark = pytest.mark.django_db


def test_badges_are_given_shown_and_taken_away(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, name="A secret name")
    path = f"/monitors/{monitor.public_id}/badges"
    assert "No badges yet" in web.get(path).text
    assert web.post(f"{path}/give").url == path  # type: ignore[attr-defined]
    assert web.post(f"{path}/give").url == path  # type: ignore[attr-defined]
    assert Badge.objects.count() == 1
    pictures = re.findall(r'<img src="([^"]+)"', web.get(path).text)
    assert len(pictures) == 6
    for picture in pictures:
        drawn = Client().get(picture)
        assert drawn.status_code == 200
        assert "secret" not in drawn.text
    web.post(f"{path}/take")
    clear_local_caches()
    assert "No badges yet" in web.get(path).text
    assert not Badge.objects.exists()


@pytest.mark.parametrize(("method", "rest"), [("get", ""), ("post", "/give"), ("post", "/take")])
def test_badges_of_other_accounts_are_not_found(web: Client, method: str, rest: str) -> None:
    monitor = MonitorFactory(owner=UserFactory())
    answer = getattr(web, method)(f"/monitors/{monitor.public_id}/badges{rest}")
    assert answer.status_code == 404
    assert not Badge.objects.exists()
