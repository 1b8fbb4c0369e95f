"""A form with rows of fields, whose buttons add empty rows without saving anything."""

from __future__ import annotations

import re
from typing import Any

from django.forms.utils import ErrorDict

from dashboard.forms import ObjectForm


class RowsForm(ObjectForm):
    """`more` is the value of the button that adds rows. With it, the input is shown again and not validated."""

    def __init__(self, data: Any = None, *, more: str = "", **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.more = more

    def full_clean(self) -> None:
        if self.more:
            self._errors = ErrorDict()
        else:
            super().full_clean()

    def count_rows(self, pattern: str) -> int:
        """Return how many rows of a kind were sent. The group of the pattern is the number of a row."""
        return len({found[1] for name in self.data if (found := re.fullmatch(pattern, name, re.ASCII))})

    def prefill(self, prefix: str, marker: str) -> None:
        """Show the initial values of a row that was not sent: `marker` is a field that each sent row has."""
        if not self.is_bound or marker in self.data:
            return
        for name in self.fields:
            if name.startswith(prefix):
                field = self.fields[name]
                value = field.widget.format_value(field.prepare_value(field.initial))
                self.data.setlist(name, value if isinstance(value, list) else [value or ""])
