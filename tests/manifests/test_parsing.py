"""Every invalid file causes errors with line numbers, and no crash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.parsing import Manifest
from manifests.serializers import SECTIONS
from pulsekeeper.manifest.problems import Document
from tests.helpers import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["all", "${PK_X}", "${keep:PK_X}", "${X}", "2026-01-01T00:00:00Z", "webhook", "GET"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "value", "id", "project", "monitors", "monitor", "type"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
@pytest.mark.parametrize("section", SECTIONS)
def test_any_values_in_any_fields(section: str, data: st.DataObject) -> None:
    fields = list(SECTIONS[section]().fields)
    item: dict[str, Any] = data.draw(st.dictionaries(st.sampled_from(fields), VALUES))
    document = Document({"version": 1, section: [item, data.draw(VALUES)]})
    declaration = Manifest(document, {"PK_X": "a value"})
    found = len(declaration.sections[section]) + len(declaration.invalid)
    assert found == 2
    assert bool(declaration.problems) == bool(declaration.invalid)
    assert all(problem.message for problem in declaration.problems)
