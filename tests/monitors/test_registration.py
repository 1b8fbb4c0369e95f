"""Names are registered once: a second definition is rejected instead of replacing the first."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
from django.db import connection

from alerts.transports import KINDS
from alerts.transports.webhook import Webhook
from checks.probes.loop import Probe
from checks.spec import CheckSpec
from connectors.providers import BACKENDS
from connectors.providers.backend import ProviderBackend
from connectors.providers.vercel import Vercel
from core.errors import ApiError
from core.registry import IncompleteError, NameTakenError, require_complete, union
from monitors import types
from monitors.types.base import MonitorType
from monitors.types.content import ContentSettings
from monitors.types.http import HttpSettings
from monitors.types.schedule import Expression
from monitors.types.settings import MonitorConfig, Setting, Settings, settings_of
from tests.api.client import Api
from tests.factories import UserFactory


def kind_with(own: type[Settings], *, kind_name: str = "toy") -> MonitorType:
    class Toy(MonitorType):
        name = kind_name
        label, icon, description = "Toy", "globe", "Is played with."
        settings: ClassVar[type[Settings]] = own

        def spec(self, config: MonitorConfig, *, run_id: str) -> CheckSpec:
            raise NotImplementedError

    return Toy()


class OwnMethod(Settings, frozen=True, kw_only=True):
    method: Annotated[str, Setting(max_length=20)] = "SHAKE"


class OwnDefault(Settings, frozen=True, kw_only=True):
    schedule: Expression = "0 0 * * *"


class OwnTimeout(Settings, frozen=True, kw_only=True):
    timeout_ms: Annotated[int, Setting(minimum=1)] = 5


class Inherited(ContentSettings, frozen=True, kw_only=True):
    wheels: Annotated[int, Setting(minimum=0)] = 4


class Shared(Settings, frozen=True, kw_only=True):
    schedule: Expression = None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (OwnMethod, "the types 'http' and 'toy' both define 'method'"),
        (OwnDefault, "the types 'http' and 'toy' both define 'schedule'"),
        (OwnTimeout, "the type 'toy' defines 'timeout_ms', which is a setting of every type"),
    ],
)
@pytest.mark.django_db
def test_a_type_that_redefines_a_setting_is_refused(settings: type[Settings], words: str) -> None:
    before = dict(types.REGISTRY)
    with pytest.raises(NameTakenError, match=words):
        types.REGISTRY["toy"] = kind_with(settings)
    assert before == types.REGISTRY
    assert types.settings()["method"] == settings_of(HttpSettings)["method"]
    api = Api.signed_in(UserFactory())
    assert api.post("/v1/monitors", {"url": "http://127.0.0.1:9/", "method": "NONSENSE"}).status == 422
    assert connection.is_usable()


@pytest.mark.parametrize("settings", [Inherited, Shared, ContentSettings])
def test_types_may_share_one_definition(settings: type[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(types.REGISTRY, "toy", kind_with(settings))
    assert types.get("toy").settings is settings


def test_a_name_is_registered_once() -> None:
    with pytest.raises(NameTakenError, match=r"Toy and monitors\.types\.http\.Http both have the name 'http'"):
        types.REGISTRY["http"] = kind_with(Shared, kind_name="http")
    with pytest.raises(NameTakenError, match="both have the name 'webhook'"):
        KINDS["webhook"] = Webhook()
    with pytest.raises(NameTakenError, match="both have the name 'vercel'"):
        BACKENDS["vercel"] = type("Other", (Vercel,), {})
    with pytest.raises(NameTakenError, match="both have the code 'not_found'"):
        type("Lost", (ApiError,), {}, code="not_found")


class Misspelt(Probe[CheckSpec]):
    def start(self) -> None: ...

    def expire(self) -> None: ...

    def judge(self) -> None:
        """Meant as `find_failure`, without which every check would pass."""

    def evidence(self) -> None: ...

    def close(self) -> None: ...


def test_an_incomplete_definition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IncompleteError, match=r"Misspelt does not define find_failure\.$"):
        require_complete(Misspelt)
    nameless = type("Nameless", (Webhook,), {})()
    monkeypatch.delattr(Webhook, "label")
    with pytest.raises(IncompleteError, match=r"Nameless does not define label\.$"):
        KINDS["nameless"] = nameless
    with pytest.raises(IncompleteError, match=r"Other does not define account_name, page, url_of\.$"):
        BACKENDS["other"] = type("Other", (ProviderBackend,), {"name": "other"})
    with pytest.raises(TypeError, match=r"Toy.*spec"):
        type("Toy", (MonitorType,), {})()


def test_a_setting_may_not_hide_a_field_of_the_api() -> None:
    with pytest.raises(NameTakenError, match="monitor and settings both have the name 'status'"):
        union(monitor={"status": 1, "id": 2}, settings={"status": 3})
