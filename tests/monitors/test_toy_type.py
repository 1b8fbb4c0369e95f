"""A monitor type needs one definition: registered here with its own settings, and tested end to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from checks.probes.http.spec import HttpSpec
from core.clock import utc_now
from core.errors import ValidationFailed
from manifests.schema import schema
from monitors import types
from monitors.models import Monitor
from monitors.scheduling import claim_due
from monitors.tasks import leave, probe_batch
from monitors.types.base import MonitorType
from monitors.types.settings import MonitorConfig, Setting, Settings
from tests.api import client as client_module
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import flush_broker, state_of
from tests.manifests.helpers import apply_text, exported, told
from tests.site import Site


class ToySettings(Settings, frozen=True, kw_only=True):
    wheels: Annotated[
        int, Setting(description="How many it has.", label="Wheels", section="when", minimum=0, maximum=18)
    ] = 4
    path: Annotated[str, Setting(label="Toy path", max_length=20, blank=True)] = "/status/503"
    colours: Annotated[tuple[str, ...], Setting(label="Colours", max_length=3, probed=False)] = ()

    def settle(self, kind: MonitorType) -> Self:
        if self.wheels == 13:
            raise ValidationFailed("must not be 13.", field="wheels")
        return self


class Toy(MonitorType):
    name = "toy"
    label = "Toy car"
    icon = "globe"
    description = "Drives to an address."
    settings = ToySettings
    unasked = frozenset({"check_ssl", "check_domain"})

    def spec(self, config: MonitorConfig, *, run_id: str) -> HttpSpec:
        return HttpSpec(
            url=config.url + config["path"], method="GET", timeout_ms=config.timeout_ms, slow_ms=config.slow_ms
        )


@pytest.fixture(autouse=True)
def _toy(no_worker: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    flush_broker()
    monkeypatch.setitem(types.REGISTRY, Toy.name, Toy())
    _forget_derived()
    document = _document()
    monkeypatch.setattr(client_module, "read_document", lambda: document)  # answers are validated against it
    yield
    monkeypatch.delitem(types.REGISTRY, Toy.name)
    _forget_derived()
    leave()
    flush_broker()


def _forget_derived() -> None:
    for cached in (types.groups, types.settings, types.option_defaults):
        cached.cache_clear()


def _document() -> dict[str, Any]:
    document: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document


def test_openapi_and_the_schema_of_manifests_describe_it() -> None:
    schemas = _document()["components"]["schemas"]
    wheels = schemas["MonitorInput"]["properties"]["wheels"]
    assert (wheels["maximum"], wheels["description"]) == (18, "How many it has. Default: 4.")
    assert {"wheels", "path", "colours"} <= schemas["Monitor"]["properties"].keys()
    assert {"wheels", "path", "colours"} <= schemas["MonitorPatch"]["properties"].keys()
    monitors = schema()["properties"]["monitors"]["items"]["properties"]
    assert "toy" in monitors["type"]["enum"]
    assert {"wheels", "path", "colours"} <= monitors.keys()


@pytest.mark.django_db(transaction=True)
def test_it_is_created_checked_and_changed_by_the_api(site: Site) -> None:
    api = Api.signed_in(UserFactory())
    made = api.post("/v1/monitors", {"type": "toy", "url": site.url(""), "wheels": 3, "timeout_ms": 1_000})
    assert (made.status, made.json["type"], made.json["wheels"], made.json["path"]) == (201, "toy", 3, "/status/503")
    assert (made.json["method"], made.json["grace_sec"]) == ("HEAD", 60), "settings of other types are shown"
    assert api.post("/v1/monitors", {"type": "toy", "url": site.url(""), "wheels": 19}).status == 422
    refused = api.post("/v1/monitors", {"type": "toy", "url": site.url(""), "wheels": 13})
    assert (refused.status, refused.json["reason"]) == (422, "wheels: must not be 13.")
    monitor = Monitor.objects.get()

    (claim,) = claim_due(utc_now(), limit=9)
    probe_batch([(claim.monitor_id, claim.number)])
    leave()
    assert state_of(monitor).status == "down", "its own path is asked for"

    path = f"/v1/monitors/{monitor.public_id}"
    version = monitor.config_version
    changed = api.patch(path, api.get(path).json | {"path": "/ok", "colours": ["red", "blue"]})
    assert (changed.status, changed.json["path"], changed.json["colours"]) == (200, "/ok", ["red", "blue"])
    assert Monitor.objects.get().config_version == version + 1, "a probed setting outdates running checks"
    assert api.patch(path, {"colours": []}).json["colours"] == []
    assert Monitor.objects.get().config_version == version + 1
    assert api.patch(path, {"type": "http"}).status == 422

    (claim,) = claim_due(utc_now(), limit=9)
    probe_batch([(claim.monitor_id, claim.number)])
    leave()
    assert state_of(monitor).status in ("up", "slow")


@pytest.mark.django_db
def test_the_dashboard_creates_shows_lists_and_edits_it(client: Client) -> None:
    user = UserFactory()
    client.force_login(user)
    form = client.get("/monitors/new").content.decode()
    assert "Toy car" in form
    assert "Drives to an address." in form
    assert 'name="wheels"' in form
    typed = {
        "form_key": "a-key",
        "type": "toy",
        "url": "http://127.0.0.1:9",
        "interval_sec": "5m",
        "timeout_ms": "10s",
        "slow_ms": "1.5s",
        "fail_threshold": "3",
        "recover_threshold": "1",
        "wheels": "6",
        "path": "/ok",
        "colours": "red\r\nblue",
    }
    assert client.post("/monitors/new", typed).status_code == 302
    monitor = Monitor.objects.get()
    assert (monitor.type, monitor.options["wheels"], monitor.options["colours"]) == ("toy", 6, ["red", "blue"])
    shown = client.get(f"/monitors/{monitor.public_id}").content.decode()
    assert "Toy car" in shown
    assert "<dt>Wheels</dt><dd>6</dd>" in shown
    assert "<dt>Colours</dt><dd>red<br>blue</dd>" in shown
    assert monitor.name in client.get("/monitors?type=toy").content.decode()
    assert client.post(f"/monitors/{monitor.public_id}/edit", typed | {"wheels": "8"}).status_code == 302
    assert Monitor.objects.get().options["wheels"] == 8
    wrong = client.post(f"/monitors/{monitor.public_id}/edit", typed | {"wheels": "13"}).content.decode()
    assert "Must not be 13." in wrong


@pytest.mark.django_db
def test_a_manifest_exports_and_applies_it() -> None:
    user = UserFactory()
    text = """
        version: 1
        monitors:
          - name: Car
            type: toy
            url: http://127.0.0.1:9
            interval_sec: 300
            wheels: 6
            colours: [red]
    """
    assert apply_text(user, text).created == 1
    written = exported(user)
    assert "wheels: 6" in written
    assert "path:" not in written, "defaults are left out"
    assert apply_text(user, written).changes == []
    changes = told(apply_text(user, written.replace("wheels: 6", "wheels: 8")))
    assert any("wheels: 6 → 8" in line for line in changes)
    assert Monitor.objects.get().options["wheels"] == 8
