from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

from incidents.models import Incident
from monitors.models import Monitor
from tests.factories import IncidentFactory


@pytest.mark.django_db(transaction=True)
def test_a_large_table_that_smaller_ones_refer_to() -> None:
    IncidentFactory()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE monitors_monitor SET url = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 100000) n)"
        )
    call_command("flush", interactive=False, verbosity=0)
    assert not Incident.objects.exists()
    assert not Monitor.objects.exists()
