"""Forms that create an object once, even if they are sent again.

A hidden field has a key that works like the Idempotency-Key of the API.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django import forms
from django.http import HttpRequest, QueryDict

from core.api.idempotency import HEADER, Created
from core.clock import utc_now
from core.forms import ServiceForm
from core.ids import random_text
from dashboard.pages import PageRequest
from projects.access import Caller
from projects.idempotency import create_once

_NOT_CONTENT = "csrfmiddlewaretoken"  # Django renders a different one with each page


def _new_key() -> str:
    return random_text(20)


class OnceForm(ServiceForm):
    """A form that creates something once. Its template has to render `form_key`."""

    form_key = forms.CharField(max_length=64, widget=forms.HiddenInput, initial=_new_key)

    def make_once(
        self, request: HttpRequest, caller: Caller, make: Callable[[], str | Created], *, now: datetime
    ) -> Created:
        """Return what `make` creates, or what this form created earlier.

        `make` returns a public id, or `Created` to add values that are shown only once, like a secret.
        """

        def created() -> Created:
            result = make()
            return result if isinstance(result, Created) else Created(result)

        content = {name: values for name, values in request.POST.lists() if name != _NOT_CONTENT}
        return create_once(
            caller,
            key=f"page {self.cleaned_data['form_key']}",
            content=[request.path, content],
            create=created,
            now=now,
        )

    def create(self, request: PageRequest, make: Callable[[datetime], str | Created]) -> Created | None:
        """Create once, at the current time. Return None if the service refused; the form's errors have the reason."""
        now = utc_now()
        return self.attempt(lambda: self.make_once(request, request.caller, lambda: make(now), now=now))

    def refuse(self, field: str | None, reason: str) -> None:
        """Give the form a new key if it was changed after it was sent, so that it creates another object."""
        if field != HEADER:
            return super().refuse(field, reason)
        assert isinstance(self.data, QueryDict)
        self.data = self.data.copy()
        self.data["form_key"] = _new_key()
        self.add_error(
            None,
            "This form was already sent. Send it again to create another.",
        )
        return None
