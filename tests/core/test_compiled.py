"""Queries that are compiled once in a process."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from core.clock import EPOCH, utc_now
from core.db import any_once_compiled
from monitors.models import SchedulerGap, SchedulerTick


@pytest.mark.django_db
def test_one_statement_finds_whether_any_query_has_a_row(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    found = any_once_compiled(
        lambda now: [SchedulerTick.objects.filter(at__lt=EPOCH), SchedulerGap.objects.filter(ended_at__lte=now)]
    )
    end = utc_now()
    assert not found(end)
    SchedulerGap.objects.create(started_at=end - timedelta(minutes=1), ended_at=end)
    with django_assert_num_queries(2):
        assert not found(end - timedelta(seconds=1))
        assert found(end)
