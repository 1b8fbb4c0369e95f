"""The export of an account: all that is its own, nothing that is somebody else's, and no secret."""

from __future__ import annotations

import io
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import CASCADE, ForeignKey, Model
from django.test.utils import CaptureQueriesContext, isolate_apps
from pytest_django.fixtures import Settings

import core.db
from accounts import export
from accounts.models import User
from alerts.models import AlertChannel
from audit.models import Entry
from connectors.models import Connector
from core.clock import utc_now
from monitors.models import Monitor
from projects.access import owned
from projects.models import Project
from statuspages.models import StatusPage
from tests.api.client import Api
from tests.encrypted import stored_secrets
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, flush_broker
from tests.ownership import NOT_EXPORTED, all_models, rows_of, undecided, untested
from tests.privacy.living import EMAIL, NEEDLE, live

PATH = "/v1/account/export"


@pytest.fixture
def ada(db: None) -> User:
    user = UserFactory(email=EMAIL)
    live(user, UserFactory(email="friend@example.com"))
    return user


def exported(user: User) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(export.export(user, now=utc_now())))
    return found


def test_everything_of_an_account(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.db, "CHUNK_ROWS", 1)
    api = Api(Api().post("/v1/sessions", _credentials(ada)).json["token"])
    answer = api.get(PATH)
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="pulsekeeper-account-2')
    found = answer.json
    assert (found["account"]["email"], found["complete"]) == (EMAIL, True)
    assert [row["type"] for row in found["account"]["second_factors"]] == ["totp", "recovery_codes"]
    assert found["account"]["social_accounts"][0]["id"] == NEEDLE
    assert [name for name in export.all_sections(ada, now=utc_now()) if not found[name]] == []
    for name, path in (
        ("alert_channels", "/v1/alert-channels"),
        ("tokens", "/v1/tokens"),
        ("connectors", "/v1/connectors"),
        ("maintenance_windows", "/v1/maintenance-windows"),
        ("status_pages", "/v1/status-pages"),
        ("audit_log", "/v1/account/audit-log"),
    ):
        told = api.get(path).json
        key = "provider" if name == "connectors" else "id"
        assert sorted(row[key] for row in told) == sorted(row[key] for row in found[name])
    assert found["audit_log"][-1]["action"] == "account.exported"
    assert {row["type"] for row in found["written_in_incidents_of_others"]} == {"acknowledged", "commented", "resolved"}


def statements_of(user: User) -> list[str]:
    """Return the SQL of an export."""
    with CaptureQueriesContext(connection) as captured:
        exported(User.objects.get(pk=user.pk))
    return [query["sql"] for query in captured]


def test_every_table_is_exported_or_left_out_on_purpose(ada: User) -> None:
    assert undecided(all_models(), statements_of(ada)) == []
    assert NOT_EXPORTED.keys() <= {model._meta.label for model in all_models()}
    assert untested(rows_of(ada, all_models())) == []


@pytest.mark.parametrize("parent", [User, Project, Monitor, StatusPage, AlertChannel])
@isolate_apps("tests")
def test_a_new_table_with_an_owner_is_undecided(ada: User, parent: Any) -> None:
    class Toy(Model):
        owner = ForeignKey(parent, CASCADE, related_name="+", db_constraint=False)

        class Meta:
            app_label = "tests"

        def __str__(self) -> str:
            return "a toy"

    with connection.schema_editor() as editor:
        editor.create_model(Toy)
    (what,) = undecided([Toy], statements_of(ada))
    assert what.startswith("tests.Toy is not in the account export: add it to account_export.py of its app, or to NOT_")
    rows = rows_of(ada, [Toy])
    (what,) = untested(rows)
    assert what.startswith("tests.Toy belongs to accounts: store a row of it in tests/privacy/living.py")
    for row in parent.objects.all():
        Toy._default_manager.create(owner=row)
    assert rows["tests.Toy"].count() == owned(parent.objects.all(), ada).count() > 0


def test_no_secret_is_in_it(ada: User) -> None:
    ChannelFactory(owner=ada, secret="hunter2-of-a-webhook", url="http://127.0.0.1:9/path-that-is-a-secret")
    token = Api.with_token(ada, ProjectFactory(owner=ada)).token
    text = json.dumps(exported(ada))
    secrets = [str(token), "hunter2", "path-that-is-a-secret", PASSWORD, ada.password]
    secrets += [str(row.tokens["access_token"]) for row in Connector.objects.filter(user=ada)]
    for rows in rows_of(ada, all_models()).values():
        for column in rows.model._meta.concrete_fields:
            if re.search(r"password|hash|lookup|session_key", column.name):
                secrets += rows.values_list(column.name, flat=True)
    for stored in stored_secrets():
        secrets += [stored.token, stored.plaintext]
    # The channel that every account has is the account's own.
    addresses = {json.dumps({"address": EMAIL})}
    assert not [secret for secret in secrets if secret and secret not in addresses and secret in text]


def test_nothing_of_others_is_in_it(ada: User) -> None:
    other = UserFactory(email="other@example.com")
    MonitorFactory(owner=other, name="of another")
    ChannelFactory(owner=other, name="of another")
    theirs = ProjectFactory(owner=other, name="Theirs", member=ada)
    MonitorFactory(owner=other, name="of another", project=theirs)
    text = json.dumps(exported(ada))
    assert "of another" not in text
    assert theirs.public_id in text, "her place in the project is hers"


def test_as_many_queries_for_thirty_rows_as_for_one(user: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            exported(user)
        return len(captured)

    ChannelFactory(owner=user)
    one = queries()
    for _ in range(29):
        ChannelFactory(owner=user)
    assert queries() == one


def test_it_is_written_while_it_is_read(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "CHUNK", 1)
    pieces = export.export(user, now=utc_now())
    with CaptureQueriesContext(connection) as captured:
        next(pieces)
        first = len(captured)
        text = list(pieces)
    assert len(captured) > first
    assert text[-1].rstrip().endswith('"complete": true}')


def test_who_asks_too_often(user: User, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"export": (1, 60)}
    flush_broker()
    api = Api.signed_in(user)
    assert [api.get(PATH).status for _ in range(2)] == [200, 429]


def test_the_command(user: User, tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("export_account", user.email.upper(), stdout=out)
    assert json.loads(out.getvalue())["account"]["id"] == user.public_id
    entry = Entry.objects.latest("pk")
    assert (entry.action, entry.actor_type, entry.target_id) == ("account.exported", "operator", user.public_id)
    file = tmp_path / "account.json"
    call_command("export_account", user.email, output=file, stderr=io.StringIO())
    assert json.loads(file.read_text())["complete"] is True
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("mine")
    with pytest.raises(CommandError, match="use --overwrite to replace it"):
        call_command("export_account", user.email, output=file)
    assert file.read_text() == "mine"
    call_command("export_account", user.email, output=file, overwrite=True, stderr=io.StringIO())
    assert json.loads(file.read_text())["complete"] is True


@pytest.mark.parametrize(
    ("email", "output", "said"), [("nobody@example.com", None, "not found"), (None, "no/x", "cannot")]
)
def test_what_the_command_refuses(user: User, tmp_path: Path, email: str | None, output: str | None, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("export_account", email or user.email, output=tmp_path / output if output else None)


def _credentials(user: User) -> dict[str, str]:
    from allauth.mfa.models import Authenticator
    from allauth.mfa.utils import decrypt

    from tests.second_factor import App

    secret = decrypt(Authenticator.objects.get(user=user, type="totp").data["secret"])
    return {"email": user.email, "password": PASSWORD, "code": App(secret=secret).code()}
