"""A channel kind is one module: registered here in one file, and driven through the API, pages, files and workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.messages import Message
from alerts.models import AlertChannel
from alerts.outbox import OUTBOX
from alerts.transports import KINDS
from alerts.transports.base import ChannelKind, Config, Setting, choice, last_characters, matching
from core.clock import utc_now
from manifests.schema import schema as manifest_schema
from notifications.outbox import SendResult
from tests.api import client
from tests.api.client import Api
from tests.factories import DeliveryFactory, UserFactory
from tests.manifests.helpers import apply_text, exported

SENT: list[tuple[Config, str, str]] = []


class Toy(ChannelKind):
    name = "toy"
    label = "Toy Phone"
    icon = "bell"
    about = "A message on a toy."
    settings = (
        Setting("toy_key", "Toy key", matching(r"key-[0-9]{8}", "key- and 8 digits"), help="The key of the toy."),
        choice("toy_sound", "Toy sound", ("ring", "buzz"), default="ring", help_text="What it does."),
    )

    def hint(self, config: Config) -> str:
        return last_characters(config["toy_key"])

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        SENT.append((config, message.subject, key))
        return SendResult(delivered=True, detail="The toy rang.")


@cache
def document() -> dict[str, Any]:
    """Return openapi.json with the toy kind registered."""
    generator: Any = SchemaGenerator
    rendered: dict[str, Any] = json.loads(OpenApiJsonRenderer().render(generator().get_schema(public=True)))
    return rendered


@pytest.fixture(autouse=True)
def _toy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.THROTTLE_SCALE = 0
    SENT.clear()
    KINDS[Toy.name] = Toy()
    monkeypatch.setattr(client, "read_document", document)  # responses are checked against it
    yield
    del KINDS["toy"]


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


@pytest.fixture
def web(user: User) -> Client:
    web = Client()
    web.force_login(user)
    return web


def create(user: User, **given: str) -> AlertChannel:
    created = Api.signed_in(user).post("/v1/alert-channels", {"kind": "toy", **given})
    assert created.status == 201, created.text
    return AlertChannel.objects.get(public_id=created.json["id"])


def test_the_api_creates_it_and_masks_its_secret(user: User) -> None:
    api = Api.signed_in(user)
    channel = create(user, toy_key="key-12345678")
    assert channel.config == {"toy_key": "key-12345678", "toy_sound": "ring"}
    shown = api.get(f"/v1/alert-channels/{channel.public_id}")
    assert (shown.json["kind"], shown.json["hint"], shown.json["name"]) == ("toy", "…5678", "…5678")
    assert "12345678" not in shown.text
    refused = api.patch(f"/v1/alert-channels/{channel.public_id}", {"toy_key": "none"})
    assert (refused.status, refused.json["reason"]) == (422, "toy_key: must be key- and 8 digits.")
    refused = api.patch(f"/v1/alert-channels/{channel.public_id}", {"address": "a@example.com"})
    assert refused.json["reason"] == "address: is not a field of channels of kind toy."


@pytest.mark.django_db(transaction=True)
def test_a_delivery_is_sent(user: User) -> None:
    channel = create(user, toy_key="key-12345678", toy_sound="buzz")
    delivery = DeliveryFactory(channel=channel, created_at=utc_now())
    assert OUTBOX.send_due() == 1
    delivery.refresh_from_db()
    assert delivery.state == "sent"
    ((config, subject, key),) = SENT
    assert (config["toy_sound"], key) == ("buzz", delivery.public_id)
    assert subject.startswith("[DOWN]")


def test_the_dashboard_creates_shows_and_edits_it(web: Client, user: User) -> None:
    assert 'href="?kind=toy">' in web.get("/alert-channels/new").content.decode()
    page = web.get("/alert-channels/new?kind=toy").content.decode()
    assert 'name="toy_key"' in page
    found = re.search(r'name="form_key" value="(\w+)"', page)
    assert found is not None
    fields = {
        "toy_key": "key-12345678",
        "toy_sound": "buzz",
        "name": "Nursery",
        "topics": ["down"],
        "remind_every_hours": "6",
        "monitors": "all",
    }
    web.post("/alert-channels/new?kind=toy", fields | {"form_key": found[1]})
    channel = AlertChannel.objects.get(kind="toy")
    assert channel.config == {"toy_key": "key-12345678", "toy_sound": "buzz"}
    address = f"/alert-channels/{channel.public_id}"
    for path in ("/alert-channels", address, f"{address}/edit"):
        text = web.get(path).content.decode()
        assert "…5678" in text
        assert "key-12345678" not in text
    assert "Toy Phone" in web.get("/alert-channels").content.decode()
    web.post(f"{address}/edit", fields | {"toy_key": "", "toy_sound": "ring", "enabled": "on"})
    channel.refresh_from_db()
    assert channel.config == {"toy_key": "key-12345678", "toy_sound": "ring"}


def test_files_export_and_apply_it(user: User) -> None:
    create(user, toy_key="key-12345678", toy_sound="buzz", name="Nursery")
    text = exported(user)
    assert "toy_key: ${keep:PK_CHANNEL_NURSERY_TOY_KEY}" in text
    assert "toy_sound: buzz" in text
    assert "12345678" not in text
    assert apply_text(user, text).changes == []
    other = UserFactory(email="other@example.com")
    apply_text(other, text, environment={"PK_CHANNEL_NURSERY_TOY_KEY": "key-87654321"})
    copied = AlertChannel.objects.get(owner=other, kind="toy")
    assert (copied.name, copied.config) == ("Nursery", {"toy_key": "key-87654321", "toy_sound": "buzz"})
    assert "toy_sound" in str(manifest_schema())


def test_openapi_describes_it() -> None:
    schemas = document()["components"]["schemas"]
    fields = schemas["ChannelInput"]["properties"]
    assert fields["toy_sound"]["description"] == "toy: What it does. One of ring, buzz. Default: ring."
    assert "toy" in schemas[fields["kind"]["$ref"].rpartition("/")[2]]["enum"]
