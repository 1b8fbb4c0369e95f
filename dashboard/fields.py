"""Form fields for values that people write differently from the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from core.forms import Renderer
from dashboard.spans import MAX_TEXT, MS_OF, NoSpanError, parse_span, say_span


class PlainRenderer(Renderer):
    """Renderer without a mark for optional fields. Fields may have `suggestions`, written as a user would type them."""

    field_template_name = "dashboard/widgets/field.html"


class SpanField(forms.CharField):
    """A duration like `5m`. Cleans to an integer in `unit` (`s` or `ms`), or None."""

    def __init__(
        self,
        *,
        unit: str = "s",
        least: int | None = None,
        most: int | None = None,
        suggestions: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        self._ms = MS_OF[unit]
        self._least, self._most = least, most
        self.suggestions = suggestions
        super().__init__(max_length=MAX_TEXT, **kwargs)

    def clean(self, value: Any) -> Any:
        text: str = super().clean(value)
        if not text:
            return None
        try:
            count = parse_span(text) / self._ms
        except NoSpanError:
            raise ValidationError("Say it as 90, 5m, 1h or 1h 30m; a number alone counts seconds.") from None
        if count != int(count):
            raise ValidationError(f"Whole {'seconds' if self._ms == MS_OF['s'] else 'milliseconds'} only.")
        if self._least is not None and count < self._least:
            raise ValidationError(f"At least {say_span(self._least * self._ms)}.")
        if self._most is not None and count > self._most:
            raise ValidationError(f"At most {say_span(self._most * self._ms)}.")
        return int(count)

    def prepare_value(self, value: Any) -> Any:
        return say_span(value * self._ms) if isinstance(value, int) else value


class CountField(forms.IntegerField):
    def __init__(self, *, suggestions: Sequence[str] = (), **kwargs: Any) -> None:
        self.suggestions = suggestions
        super().__init__(**kwargs)
