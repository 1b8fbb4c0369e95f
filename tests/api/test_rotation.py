"""`manage.py rotate_encryption_key` re-encrypts everything and loses nothing, also during concurrent writes."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet, InvalidToken
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from accounts import second_factor
from accounts.models import User
from alerts.models import AlertChannel
from connectors.models import Connector, OAuthState
from core import rotation
from core.clock import utc_now
from core.crypto import Ciphertext
from core.rotation import encrypted_columns
from manifests.models import Upload
from monitors.models import BulkEdit, BulkEditItem, Monitor
from monitors.services import update_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import ChannelFactory, ConnectorFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.second_factor import App
from tests.statuspages.making import make_page, make_subscriber


def make_key() -> str:
    return Fernet.generate_key().decode()


def rotate(*arguments: str) -> str:
    out = StringIO()
    call_command("rotate_encryption_key", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def make_with_header(owner: User, value: str) -> Monitor:
    return MonitorFactory(owner=owner, request_headers=[{"name": "Authorization", "value": value}])


def value_of(monitor: Monitor) -> str:
    value: str = Monitor.objects.get(pk=monitor.pk).full_config["request_headers"][0].value
    return value


def opens(key: str, token: bytes) -> bool:
    try:
        Fernet(key).decrypt(token)
    except InvalidToken:
        return False
    return True


def stored() -> list[Ciphertext]:
    values = Monitor.objects.filter(header_values__isnull=False).values_list("header_values", flat=True)
    return [value for value in values if isinstance(value, Ciphertext)]


def test_every_encrypted_column_is_found() -> None:
    assert list(map(str, encrypted_columns())) == [
        "alerts.AlertChannel.config",
        "connectors.Connector.tokens",
        "connectors.OAuthState.session",
        "manifests.Upload.content",
        "mfa.Authenticator.data.secret",
        "mfa.Authenticator.data.seed",
        "monitors.BulkEditItem.before",
        "monitors.Monitor.header_values",
        "projects.IdempotencyKey.answer",
        "statuspages.Subscriber.address",
    ]


def test_a_rotation_in_its_three_steps(settings: Settings, user: User) -> None:
    api, project = Api.signed_in(user), ProjectFactory(owner=user)
    old, new = settings.ENCRYPTION_KEYS[0], make_key()
    body = {"project_id": project.public_id, "name": "CI"}
    before = make_with_header(user, "before")
    plain = MonitorFactory(owner=user)
    ConnectorFactory(user=user)
    OAuthState.objects.create(digest=b"x", user=user, provider="vercel", expires_at=utc_now(), session={})
    Upload.objects.create(user=user, source="gatus", place={}, content={"monitors": []}, created_at=utc_now())
    make_subscriber(make_page(user, [plain]))
    edit = BulkEdit.objects.create(user=user, created_at=utc_now())
    BulkEditItem.objects.create(edit=edit, monitor=plain, etag="", before={})
    token = api.post("/v1/tokens", body, key="k").text
    app = App(user)

    settings.ENCRYPTION_KEYS = (old, new)
    assert "0 re-encrypted, 1 already current" in rotate(), "nothing to do before the new key is the first"

    settings.ENCRYPTION_KEYS = (new, old)
    between = make_with_header(user, "between")
    assert [value_of(m) for m in (before, between)] == ["before", "between"]
    said = rotate("--batch", "1")
    assert "monitors.Monitor.header_values: 1 re-encrypted, 1 already current, 0 cannot be decrypted" in said
    assert "projects.IdempotencyKey.answer: 1 re-encrypted, 0 already current" in said
    assert said.count(" 0 re-encrypted") == 0
    assert rotate().count(" 0 re-encrypted") == len(encrypted_columns())

    settings.ENCRYPTION_KEYS = (new,)
    assert [value_of(m) for m in (before, between)] == ["before", "between"]
    assert api.post("/v1/tokens", body, key="k").text == token
    assert Monitor.objects.get(pk=plain.pk).header_values is None
    assert not any(opens(old, token) for token in stored())
    assert [second_factor.use_code(user, code) is not None for code in (app.code(), app.recovery_codes[0])] == [
        True
    ] * 2


@pytest.mark.django_db(transaction=True)
def test_rotating_while_monitors_are_changed(settings: Settings) -> None:
    owner = UserFactory()
    monitors = [make_with_header(owner, f"old {n}") for n in range(40)]
    old, new = settings.ENCRYPTION_KEYS[0], make_key()
    settings.ENCRYPTION_KEYS = (new, old)

    def patch(offset: int) -> Any:
        def run() -> None:
            for n in range(offset, 40, 4):
                headers = [{"name": "Authorization", "value": f"new {n}"}]
                update_monitor(Caller(owner), monitors[n].public_id, {"request_headers": headers}, now=utc_now())
                update_monitor(Caller(owner), monitors[n].public_id, {"name": f"named {n}"}, now=utc_now())

        return run

    def rotate_twice() -> None:
        rotate("--batch", "3")
        rotate("--batch", "50")

    run_concurrently(patch(0), rotate_twice, patch(1), rotate_twice, patch(2))
    settings.ENCRYPTION_KEYS = (new,)
    expected = [f"old {n}" if n % 4 == 3 else f"new {n}" for n in range(40)]
    assert [value_of(monitor) for monitor in monitors] == expected
    assert Monitor.objects.filter(name__startswith="named").count() == 30


@pytest.mark.django_db(transaction=True)
def test_a_row_written_between_reading_and_writing_is_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that still encrypts with the old key is the worst case."""
    owner = UserFactory()
    changed, deleted, emptied, still = (make_with_header(owner, name) for name in "abcd")
    old, new = settings.ENCRYPTION_KEYS[0], make_key()
    settings.ENCRYPTION_KEYS = (new, old)
    real = rotation._write
    interventions = 0

    def write(column: Any, changes: Any) -> set[int]:
        nonlocal interventions
        if column.model is Monitor and not interventions:
            interventions += 1
            settings.ENCRYPTION_KEYS = (old,)
            Monitor.objects.filter(pk=changed.pk).update(header_values=["written during the rotation"])
            settings.ENCRYPTION_KEYS = (new, old)
            Monitor.objects.filter(pk=deleted.pk).delete()
            Monitor.objects.filter(pk=emptied.pk).update(header_values=None, config={})
        return real(column, changes)

    monkeypatch.setattr(rotation, "_write", write)
    assert "header_values: 2 re-encrypted, 0 already current, 0 cannot" in rotate()
    settings.ENCRYPTION_KEYS = (new,)
    assert (value_of(changed), value_of(still)) == ("written during the rotation", "d")


def test_rows_that_no_key_opens_are_named_and_the_others_done(settings: Settings, user: User) -> None:
    lost, kept = make_with_header(user, "lost"), make_with_header(user, "kept")
    stranger = Fernet(make_key())
    Monitor.objects.filter(pk=lost.pk).update(header_values=Ciphertext(stranger.encrypt(b"[]")))
    new = make_key()
    settings.ENCRYPTION_KEYS = (new, settings.ENCRYPTION_KEYS[0])
    out = StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("rotate_encryption_key", stdout=out, stderr=out)
    assert raised.value.returncode == 1
    assert f"no key decrypts the rows {lost.pk}\n" in out.getvalue()
    assert "1 re-encrypted, 0 already current, 1 cannot be decrypted" in out.getvalue()
    settings.ENCRYPTION_KEYS = (new,)
    assert value_of(kept) == "kept"


def test_broken_off_and_started_again(settings: Settings, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monitors = [make_with_header(user, str(n)) for n in range(5)]
    settings.ENCRYPTION_KEYS = (new := make_key(), settings.ENCRYPTION_KEYS[0])
    real, batches = rotation._rows, 0

    def rows(column: Any, *rest: Any) -> Any:
        nonlocal batches
        batches += column.model is Monitor
        if batches == 2:
            raise KeyboardInterrupt
        return real(column, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(rotation, "_rows", rows)
        with pytest.raises(KeyboardInterrupt):
            rotate("--batch", "2")
    assert sum(opens(new, token) for token in stored()) == 2
    assert "header_values: 3 re-encrypted, 2 already current" in rotate()
    settings.ENCRYPTION_KEYS = (new,)
    assert [value_of(monitor) for monitor in monitors] == list("01234")
    assert Monitor.objects.latest("pk").header_values == ["4"]


def test_channels_are_sent_to_as_before(settings: Settings, user: User) -> None:
    channel = ChannelFactory(owner=user, url="https://hooks.example.com/x", secret="correct horse battery")
    before = channel.config
    settings.ENCRYPTION_KEYS = (new := make_key(), settings.ENCRYPTION_KEYS[0])
    assert "alerts.AlertChannel.config: 2 re-encrypted" in rotate()
    settings.ENCRYPTION_KEYS = (new,)
    assert AlertChannel.objects.get(pk=channel.pk).config == before
    assert AlertChannel.objects.exclude(pk=channel.pk).get().config == {"address": user.email}


def test_a_linked_provider_is_reached_as_before(settings: Settings, user: User) -> None:
    connector = ConnectorFactory(user=user)
    before = connector.tokens
    settings.ENCRYPTION_KEYS = (new := make_key(), settings.ENCRYPTION_KEYS[0])
    assert "connectors.Connector.tokens: 1 re-encrypted" in rotate()
    settings.ENCRYPTION_KEYS = (new,)
    assert Connector.objects.get().tokens == before


def test_a_batch_of_nothing(db: None) -> None:
    with pytest.raises(CommandError):
        rotate("--batch", "0")


def test_values_are_decrypted_when_they_are_used(settings: Settings, user: User) -> None:
    monitor = make_with_header(user, "hunter2")
    settings.ENCRYPTION_KEYS = (make_key(),)
    loaded = Monitor.objects.get(pk=monitor.pk)
    assert (loaded.name, "hunter2" in repr(vars(loaded))) == (monitor.name, False)
    with pytest.raises(InvalidToken):
        loaded.header_values  # noqa: B018
