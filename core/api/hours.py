"""Hours of the week in requests and responses: `core.hours`."""

from __future__ import annotations

from typing import Any

from core.api.fields import IntField, ListField, StrictSerializer, TextField

_TIME = r"HH:MM, from 00:00 to 23:59."


class HoursSerializer(StrictSerializer):
    """Hours of some days of the week, by the wall clock."""

    days = ListField(
        child=IntField(min_value=1, max_value=7), min_length=1, max_length=7, help_text="1 to 7; Monday is 1."
    )

    def get_fields(self) -> dict[str, Any]:
        start = TextField(max_length=5, help_text=_TIME)
        end = TextField(max_length=5, help_text=f"{_TIME} At or before `from`: of the next day.")
        return super().get_fields() | {"from": start, "to": end}
