"""A resource of the API takes one viewset: registered here over a dict, and driven from creation to deletion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from django.urls import include, path
from drf_spectacular.generators import SchemaGenerator
from pytest_django.fixtures import Settings
from rest_framework import serializers

import config.urls
from accounts.models import User
from core.api.fields import IntField, StrictSerializer, TextField
from core.api.query import IntParam, TimePages
from core.api.viewsets import ServiceRouter, ServiceViewSet, operation
from core.errors import NotFound
from core.ids import random_text
from tests.api.client import Api
from tests.factories import UserFactory


@dataclass
class Toy:
    public_id: str
    owner: User
    made_at: datetime
    number: int
    name: str
    wheels: int = 4


class ToyInputSerializer(StrictSerializer):
    name = TextField(max_length=20)
    wheels = IntField(required=False, min_value=0, help_text="Default: 4.")


class ToyPatchSerializer(ToyInputSerializer):
    ignored = frozenset({"id"})
    name = TextField(max_length=20, required=False)


class ToySerializer(serializers.Serializer[Any]):
    """Something to play with."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    wheels = serializers.IntegerField()


TOYS: dict[str, Toy] = {}
WHEELS = IntParam("wheels", "Only toys with this number of wheels.", 0, 10)
Position = tuple[datetime, int]


class ToyViewSet(ServiceViewSet):
    noun = "toy"
    lookup_url_kwarg = "toy_id"
    serializer_class = ToySerializer

    def get_object(self, toy_id: str) -> Toy:
        toy = TOYS.get(toy_id)
        if toy is None or toy.owner != self.caller.user:
            raise NotFound
        return toy

    @operation(pages=TimePages(time="made_at", number="number"), params=(WHEELS,))
    def list(self, wheels: int | None, limit: int, before: Position | None) -> Sequence[Toy]:
        """List toys, newest first."""
        own = [toy for toy in reversed(TOYS.values()) if toy.owner == self.caller.user]
        fitting = [toy for toy in own if wheels in (None, toy.wheels)]
        return [toy for toy in fitting if before is None or (toy.made_at, toy.number) < before][:limit]

    @operation(body=ToyInputSerializer)
    def create(self, data: dict[str, Any]) -> Toy:
        """Create a toy.

        From wood.
        """
        toy = Toy("toy_" + random_text(20), self.caller.user, self.now, len(TOYS), **data)
        return TOYS.setdefault(toy.public_id, toy)

    @operation()
    def retrieve(self, toy_id: str) -> Toy:
        """Read a toy."""
        return self.get_object(toy_id)

    @operation(body=ToyPatchSerializer)
    def partial_update(self, toy_id: str, data: dict[str, Any]) -> Toy:
        """Change a toy."""
        self.found.__dict__.update(data)
        return self.get_object(toy_id)

    @operation()
    def destroy(self, toy_id: str) -> None:
        """Delete a toy."""
        del TOYS[self.get_object(toy_id).public_id]


router = ServiceRouter()
router.register("toys", ToyViewSet)
urlpatterns = [path("v1/", include(router.urls)), *config.urls.urlpatterns]


@pytest.fixture
def owner(settings: Settings, db: None) -> Api:
    settings.ROOT_URLCONF = __name__
    TOYS.clear()
    return Api.signed_in(UserFactory())


def test_created_once_per_idempotency_key(owner: Api) -> None:
    first = owner.post("/v1/toys", {"name": "Car"}, key="a")
    again = owner.post("/v1/toys", {"name": "Car"}, key="a")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert first.json == {"id": first.json["id"], "name": "Car", "wheels": 4}
    assert owner.post("/v1/toys", {"name": "Bus"}, key="a").status == 422
    assert len(TOYS) == 1


def test_listed_by_pages_and_parameters(owner: Api) -> None:
    for wheels in range(5):
        owner.post("/v1/toys", {"name": f"Toy {wheels}", "wheels": wheels})
    found, address = [], "/v1/toys?limit=2"
    for _ in range(3):
        page = owner.get(address)
        found += [toy["wheels"] for toy in page.json]
        address = page.headers.get("Link", "").partition(">")[0].removeprefix("<http://testserver")
    assert (found, address) == ([4, 3, 2, 1, 0], "")
    assert [toy["name"] for toy in owner.get("/v1/toys?wheels=3").json] == ["Toy 3"]
    for query in ("wheels=11", "wheels=x", "limit=0", "cursor=x"):
        assert owner.get(f"/v1/toys?{query}").status == 422, query


def test_read_changed_and_deleted(owner: Api) -> None:
    car = owner.post("/v1/toys", {"name": "Car"}).json
    address = f"/v1/toys/{car['id']}"
    assert owner.get(address).json == car
    changed = owner.patch(address, car | {"wheels": 3})
    assert (changed.status, changed.json) == (200, car | {"wheels": 3})
    assert (owner.delete(address).status, owner.get(address).status) == (200, 404)


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "Car", "color": "red"}, {"name": 1}, [], "{"])
def test_invalid_bodies(owner: Api, body: Any) -> None:
    answer = owner.post("/v1/toys", body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")


def test_strangers_find_nothing(owner: Api) -> None:
    address = f"/v1/toys/{owner.post('/v1/toys', {'name': 'Car'}).json['id']}"
    stranger = Api.signed_in(UserFactory())
    assert stranger.get("/v1/toys").json == []
    for method in ("get", "patch", "delete"):
        answer = stranger.send(method, address, "not even JSON")
        assert (answer.status, answer.json["error"]) == (404, "not_found"), method
        assert Api().send(method, address).status == 401
    assert len(TOYS) == 1


def test_other_methods_are_not_allowed(owner: Api) -> None:
    for method in ("put", "patch", "options"):
        answer = owner.send(method, "/v1/toys")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST, HEAD, OPTIONS")


def test_described_in_the_schema(owner: Api) -> None:
    document = SchemaGenerator(urlconf=__name__).get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    toys, toy = document["paths"]["/v1/toys"], document["paths"]["/v1/toys/{toy_id}"]
    operations = [*toys.values(), *toy.values()]
    ids = {operation["operationId"] for operation in operations}
    assert ids == {"list_toys", "create_toy", "get_toy", "update_toy", "delete_toy"}
    assert (toys["post"]["summary"], toys["post"]["description"]) == ("Create a toy", "From wood.")
    assert {p["name"] for p in toys["get"]["parameters"]} == {"limit", "cursor", "wheels"}
    assert {p["name"] for p in toys["post"]["parameters"]} == {"Idempotency-Key"}
    assert {"201", "401", "409", "413", "415", "422", "429"} <= set(toys["post"]["responses"])
    assert {"200", "401", "404", "422"} <= set(toy["delete"]["responses"])
    schemas = document["components"]["schemas"]
    assert set(schemas["Toy"]["properties"]) == {"id", "name", "wheels"}
    assert schemas["ToyInput"]["additionalProperties"] is False
