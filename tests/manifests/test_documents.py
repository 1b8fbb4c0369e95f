"""The sample and the schema under docs/samples match the code, and docs/use/commands.md is correct."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from manifests.schema import schema
from pulsekeeper.manifest.yaml_reader import read
from tests.factories import UserFactory
from tests.manifests.helpers import apply_text, exported
from tests.manifests.rich import make_rich

SAMPLES = Path(__file__).parents[2] / "docs" / "samples"


def test_the_schema_is_that_of_the_code() -> None:
    written = json.loads((SAMPLES / "pulsekeeper.schema.json").read_text())
    assert written == schema(), "run: python -m tests.generated"
    jsonschema.Draft202012Validator.check_schema(written)


@pytest.mark.django_db
def test_the_sample_applies() -> None:
    user = UserFactory(email="me@example.com")
    text = (SAMPLES / "pulsekeeper.yaml").read_text()
    values = {"PK_SHOP_TOKEN": "t", "PK_ON_CALL_URL": "https://hooks.example.com/x", "PK_ON_CALL_SECRET": "x" * 32}
    jsonschema.validate(read(text.encode()).root, schema())
    dry = apply_text(user, text, environment=values, dry_run=True)
    report = apply_text(user, text, environment=values)
    assert replace(dry, applied=True) == report
    assert report.created == len(report.changes) == 14
    del values["PK_ON_CALL_SECRET"]
    assert apply_text(user, text, environment=values, prune=True).changes == []


@pytest.mark.django_db
def test_an_export_fits_the_schema() -> None:
    jsonschema.validate(read(exported(make_rich(), with_ids=True).encode()).root, schema())


@pytest.mark.parametrize(
    ("where", "value"),
    [("slow_ms", "fast"), ("intervall_sec", 3), ("type", "snmp"), ("request_headers", [{"name": "X"}])],
)
def test_what_apply_refuses_an_editor_marks(where: str, value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1, "monitors": [{"name": "M", where: value}]}, schema())
