from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from accounts.services import create_account
from tests.factories import UserFactory
from tests.helpers import PASSWORD


@pytest.fixture(autouse=True)
def _content_types_of_this_test() -> Iterator[None]:
    """Clear Django's cache of content types: their rows are rolled back with the test."""
    ContentType.objects.clear_cache()
    yield
    ContentType.objects.clear_cache()


@pytest.fixture
def staff(db: None) -> Client:
    for plan in ("free", "pro"):  # which transactional tests truncate
        UserFactory(plan__name=plan)
    client = Client()
    client.force_login(create_account(email="staff@example.com", password=PASSWORD, is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def with_rights(staff: Client) -> Callable[..., Client]:
    """Create a staff user with only these permissions, each as `app.codename`."""

    def made(*names: str) -> Client:
        user = create_account(email=f"helper{len(names)}@example.com", password=PASSWORD, is_staff=True)
        for name in names:
            app, _, codename = name.partition(".")
            # Tests have none (tests/flushing.py).
            create_permissions(apps.get_app_config(app), verbosity=0)
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return made
