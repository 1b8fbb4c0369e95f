"""`manage.py check`: each of our checks reports its problem, and production's settings pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.checks import run_checks
from django.db import connection, connections
from pytest_django.fixtures import Settings

from config import celeryconfig, system_checks
from config.env import mail_settings
from core.egress import parse_networks
from core.postgresql import HISTORY
from tests.factories import ProjectFactory

ROOT = Path(__file__).parents[1]
KEY = Fernet.generate_key().decode()
PRODUCTION = {
    "BASE_URL": "https://pulse.example.com",
    "ALLOWED_HOSTS": ["pulse.example.com"],
    "TRUSTED_PROXIES": parse_networks("192.0.2.1/32"),
    "ALLOWED_PRIVATE_NETWORKS": parse_networks("10.0.0.0/8"),
    "ENCRYPTION_KEYS": (KEY,),
    "DEFAULT_FROM_EMAIL": "Pulsekeeper <pulse@example.com>",
    **mail_settings("smtps://me:pw@mail.example.com"),
}


@pytest.fixture
def production(settings: Settings) -> Settings:
    for name, value in PRODUCTION.items():
        setattr(settings, name, value)
    return settings


def found(**arguments: Any) -> set[str]:
    """Return the ids of the messages of our own checks."""
    said = run_checks(tags=[system_checks.TAG], include_deployment_checks=True, **arguments)
    return {str(message.id) for message in said}


def test_production_is_clean(production: Settings) -> None:
    assert found() == set()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"ENCRYPTION_KEYS": (KEY, "no key")}, {"pulsekeeper.E001", "pulsekeeper.W011"}),
        ({"TIME_ZONE": "Europe/Berlin"}, {"pulsekeeper.E002"}),
        ({"ENCRYPTION_KEYS": (KEY, KEY)}, {"pulsekeeper.W010"}),
        ({"ENCRYPTION_KEYS": (f"{'A' * 43}=",)}, {"pulsekeeper.W011"}),
        ({"REDIS_URL": None}, {"pulsekeeper.E012"}),
        ({"BASE_URL": "http://pulse.example.com"}, {"pulsekeeper.W013"}),
        ({"TRUSTED_PROXIES": ()}, {"pulsekeeper.W014"}),
        ({"ALLOWED_HOSTS": ["*"]}, {"pulsekeeper.W015"}),
        ({"ALLOWED_HOSTS": ["localhost"]}, {"pulsekeeper.E016"}),
        (mail_settings(""), {"pulsekeeper.W017"}),
        ({"DEFAULT_FROM_EMAIL": "pulsekeeper@localhost"}, {"pulsekeeper.W018"}),
        ({"ALLOWED_PRIVATE_NETWORKS": parse_networks("127.0.0.0/8")}, {"pulsekeeper.W019"}),
        ({"ALLOWED_PRIVATE_NETWORKS": parse_networks("::1/128")}, {"pulsekeeper.W019"}),
        ({"OIDC_PROJECT_ROLES": (("ops", "prj_1", "owner"),)}, {"pulsekeeper.E007"}),
        ({"OIDC_ISSUER": "http://id.example.com"}, {"pulsekeeper.W024"}),
        ({"ALLOWED_PRIVATE_NETWORKS": parse_networks("169.254.169.254/32")}, {"pulsekeeper.W019"}),
    ],
)
def test_what_is_not(production: Settings, changed: dict[str, Any], expected: set[str]) -> None:
    for name, value in changed.items():
        setattr(production, name, value)
    assert found() == expected


def test_no_key_is_shown(production: Settings) -> None:
    production.ENCRYPTION_KEYS = ("a-key-of-an-operator",)
    (message,) = system_checks.check_keys_are_valid()
    assert "key 1" in message.msg
    assert "a-key-of-an-operator" not in str(message)


def test_a_name_that_is_no_task(production: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(celeryconfig.beat_schedule, "lost", {"task": "monitors.tasks.lost", "schedule": 1.0})
    assert found() == {"pulsekeeper.E003"}


@pytest.mark.django_db
def test_projects_that_groups_give_roles_in(production: Settings) -> None:
    production.OIDC_PROJECT_ROLES = (("ops", ProjectFactory().public_id, "admin"), ("dev", "prj_gone", "member"))
    assert found() == set()
    assert found(databases=["default"]) == {"pulsekeeper.W008"}


@pytest.mark.django_db
def test_what_is_reached(production: Settings) -> None:
    assert found(databases=["default"]) == set()


@pytest.mark.django_db
def test_a_broker_that_is_away(production: Settings) -> None:
    production.REDIS_URL = "redis://127.0.0.1:1/0"
    assert found(databases=["default"]) == {"pulsekeeper.E020"}


@pytest.mark.usefixtures("no_database")
def test_a_database_that_is_away(production: Settings) -> None:
    assert found(databases=["default"]) == {"pulsekeeper.E021"}


@pytest.mark.django_db
def test_a_database_without_tables_and_of_another_zone(production: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = connection.settings_dict | {"NAME": "template1"}
    monkeypatch.setattr(connections["default"], "settings_dict", elsewhere)
    assert found(databases=["default"]) == {"pulsekeeper.E022"}
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")  # libpq sends it to the server, like the server's own setting
    assert found(databases=["default"]) == {"pulsekeeper.E022", "pulsekeeper.W023"}


@pytest.mark.usefixtures("second_database")
class TestHistoryDatabase:
    @pytest.mark.django_db(databases="__all__")
    def test_it_is_checked_too(self, production: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        assert found(databases=["default"]) == set()
        history = connections[HISTORY]
        given = history.settings_dict
        for changed, problem in [({"NAME": "template1"}, "E022"), ({"HOST": "127.0.0.1", "PORT": "1"}, "E021")]:
            monkeypatch.setattr(history, "settings_dict", given | changed)
            assert found(databases=["default"]) == {f"pulsekeeper.{problem}"}

    @pytest.mark.django_db(databases="__all__")
    def test_it_is_the_main_one(self, production: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections[HISTORY], "settings_dict", connection.settings_dict)
        assert found(databases=["default"]) == {"pulsekeeper.E025"}

    @pytest.mark.django_db(databases="__all__", transaction=True)
    def test_the_main_one_has_rows(self, production: Settings) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO checks_hourlyrollup VALUES (1, now(), 0, 1, 0, 0, 0)")
            try:
                [message] = system_checks.check_history_is_moved(databases=["default"])
            finally:
                cursor.execute("DELETE FROM checks_hourlyrollup")
        assert message.id == "pulsekeeper.E026"
        assert "checks_hourlyrollup" in message.msg


def test_nothing_is_asked_without_a_database_named(production: Settings) -> None:
    production.REDIS_URL = "redis://127.0.0.1:1/0"
    assert found() == set()


def test_check_deploy_is_clean_under_production_settings(clean_environment: dict[str, str]) -> None:
    """As when an image is built: with all settings, and without servers."""
    given = {
        "SECRET_KEY": "".join(map(chr, range(48, 110))),
        "ENCRYPTION_KEYS": KEY,
        "DATABASE_URL": "postgresql://pulse:secret@127.0.0.1:1/pulse",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "BASE_URL": "https://pulse.example.com",
        "ALLOWED_HOSTS": "pulse.example.com,127.0.0.1",
        "TRUSTED_PROXIES": "192.0.2.1/32",
        "EMAIL_URL": "smtps://me:pw@mail.example.com",
        "EMAIL_FROM": "Pulsekeeper <pulse@example.com>",
        "LOG_FORMAT": "json",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env=clean_environment | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith("System check identified no issues")
