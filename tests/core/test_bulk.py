"""`insert_objects` stores what `bulk_create` would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError
from django.forms.models import model_to_dict

from alerts.models import DeliveryItem
from core.bulk import insert_objects
from incidents.models import Incident, IncidentEvent
from tests.factories import ChannelFactory, IncidentFactory, UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db

TEXTS = ["", 'It\'s "down"\\', "{a,b}", "NULL", "line\r\n\tnext", "日本 🙂", "%s"]


def _event(incident: Incident, **columns: Any) -> IncidentEvent:
    return IncidentEvent(**{"incident": incident, "type": "commented", "at": NOON, "text": "a"} | columns)


def test_every_field_is_read_as_it_was_written() -> None:
    incident = IncidentFactory.create()
    written = [
        _event(
            incident,
            at=NOON + timedelta(microseconds=number),
            text=text,
            data={text: [1, 2.5, None, True, {"a": text}]},
        )
        for number, text in enumerate(TEXTS)
    ]
    insert_objects(written)
    assert all(event.pk is None for event in written)
    found = list(IncidentEvent.objects.filter(incident=incident).order_by("pk"))
    expected = [model_to_dict(event) | {"id": mine.pk} for event, mine in zip(written, found, strict=True)]
    assert list(map(model_to_dict, found)) == expected


def test_a_related_object_may_be_saved_later() -> None:
    incident = IncidentFactory.build(owner=UserFactory.create(), monitor=None, name="a")
    event = _event(incident)
    incident.save()
    insert_objects([event])
    assert IncidentEvent.objects.get().incident == incident


def test_null_stays_null() -> None:
    channel = ChannelFactory.create()
    insert_objects([DeliveryItem(channel=channel, source="a", at=NOON, due_at=NOON, payload={"by": None})])
    found = DeliveryItem.objects.get()
    assert (found.delivery_id, found.incident_id, found.user_id) == (None, None, None)
    assert (found.channel, found.due_at, found.payload) == (channel, NOON, {"by": None})


def test_without_objects_nothing_happens(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        insert_objects([])


def test_too_long_a_text_is_an_error_and_not_cut() -> None:
    with pytest.raises(DataError):
        insert_objects([_event(IncidentFactory.create(), type="x" * 15)])
