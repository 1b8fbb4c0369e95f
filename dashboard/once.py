"""Forms that make something: however often one is sent, one thing is made.

A form carries a key of its own in a hidden field, and the service runs under it as under an Idempotency-Key of the API.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django import forms
from django.http import HttpRequest, QueryDict

from core.api.idempotency import HEADER, Created
from core.forms import ServiceForm
from core.ids import random_text
from projects.access import Caller
from projects.idempotency import create_once

_NOT_CONTENT = "csrfmiddlewaretoken"  # Django gives another one with each page


def _new_key() -> str:
    return random_text(20)


class OnceForm(ServiceForm):
    """Raises the usual errors of a service; `form_key` has to be drawn with the other hidden fields."""

    form_key = forms.CharField(max_length=64, widget=forms.HiddenInput, initial=_new_key)

    def make_once(
        self, request: HttpRequest, caller: Caller, make: Callable[[], str | Created], *, now: datetime
    ) -> Created:
        """What `make` made, which returns its public id, or with it what is told this once: a secret, say. Or what this
        form made when it was sent before."""

        def made() -> Created:
            found = make()
            return found if isinstance(found, Created) else Created(found)

        content = {name: values for name, values in request.POST.lists() if name != _NOT_CONTENT}
        return create_once(
            caller,
            key=f"page {self.cleaned_data['form_key']}",
            content=[request.path, content],
            create=made,
            now=now,
        )

    def refuse(self, field: str | None, reason: str) -> None:
        """Somebody went back to a form that was sent, and changed it: it may be sent again, and makes another thing."""
        if field != HEADER:
            return super().refuse(field, reason)
        assert isinstance(self.data, QueryDict)
        self.data = self.data.copy()
        self.data["form_key"] = _new_key()
        self.add_error(
            None,
            "This form was sent before, and what it said then was created. Send it again to create another.",
        )
        return None
