"""Tags of a monitor: how they are stored, and what is refused."""

from __future__ import annotations

import time
import unicodedata

import pytest
from django.db import connection

from core.errors import ValidationFailed
from monitors.checking.jobs import load_jobs
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from monitors.types.tags import MAX_TAG, MAX_TAGS, settle_tags, tag_key
from projects.access import Caller
from tests.factories import UserFactory
from tests.helpers import NOON

URL = "http://shop.example/"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ((), ()),
        (("b", "a", "Web"), ("b", "a", "Web")),
        ((" web\t", "a b"), ("web", "a b")),
        (("a\u0308",), ("\u00e4",)),
        (("e\u0301" * MAX_TAG,), ("\u00e9" * MAX_TAG,)),
        (("ΐ",), (unicodedata.normalize("NFC", "ΐ"),)),
        (("👩‍👩‍👧", "שלום\u200f"), ("👩‍👩‍👧", "שלום\u200f")),
        (tuple(map(str, range(MAX_TAGS))), tuple(map(str, range(MAX_TAGS)))),
    ],
)
def test_they_are_trimmed_and_in_nfc_in_the_given_order(given: tuple[str, ...], stored: tuple[str, ...]) -> None:
    assert settle_tags(given) == stored
    assert settle_tags(stored) == stored, "what was read can be sent back"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("",), "tags[0]"),
        (("a", " \u2003"), "tags[1]"),
        (("a,b",), "tags[0]"),
        (("a\tb",), "tags[0]"),
        (("a\x7f" + "b",), "tags[0]"),
        (("\ud800",), "tags[0]"),
        (("a" * (MAX_TAG + 1),), "tags[0]"),
        (("web", "web"), "tags"),
        (("Straße", "STRASSE"), "tags"),
        (("Ä", "a\u0308"), "tags"),
        (tuple(map(str, range(MAX_TAGS + 1))), "tags"),
    ],
)
def test_others_are_refused(given: tuple[str, ...], field: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        settle_tags(given)
    assert refused.value.field == field


@pytest.mark.parametrize("text", ["a" * 10**6, "a" + "\u0301\u0327" * 10**6])
def test_a_long_text_is_refused_at_once(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ValidationFailed):
        settle_tags([text])
    tag_key(text)
    assert time.process_time() - start < 0.5


def _stored() -> tuple[object, object]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tags::text, tag_keys::text FROM monitors_monitor")
        (row,) = cursor.fetchall()
        return row[0], row[1]


@pytest.mark.django_db
def test_a_monitor_without_any_stores_null() -> None:
    """So rows that older code inserts, and nearly all others, cost nothing."""
    caller = Caller(UserFactory())
    made = create_monitor(caller, {"url": URL}, now=NOON)
    assert _stored() == (None, None)
    update_monitor(caller, made.public_id, {"tags": ["Web", 'a"\\b']}, now=NOON)
    assert _stored() == ('["Web", "a\\"\\\\b"]', '["web", "a\\"\\\\b"]')
    assert Monitor.objects.get().full_config.tags == ("Web", 'a"\\b')
    update_monitor(caller, made.public_id, {"tags": []}, now=NOON)
    assert _stored() == (None, None)
    assert Monitor.objects.get().tags == []


@pytest.mark.django_db
def test_a_change_neither_repeats_the_check_nor_reaches_it() -> None:
    caller = Caller(UserFactory())
    made = create_monitor(caller, {"url": URL, "tags": ["web"]}, now=NOON)
    before = Monitor.objects.select_related("state").get()
    update_monitor(caller, made.public_id, {"tags": ["db"]}, now=NOON)
    after = Monitor.objects.select_related("state").get()
    assert (after.tags, after.tag_keys) == (["db"], ["db"])
    assert after.config_version == before.config_version
    assert after.state.next_due_at == before.state.next_due_at
    connection.force_debug_cursor = True
    try:
        assert len(load_jobs([(made.pk, 1)])) == 1
        statements = [query["sql"] for query in connection.queries if "monitors_monitor" in query["sql"]]
    finally:
        connection.force_debug_cursor = False
    assert statements
    assert "tag" not in "".join(statements)
