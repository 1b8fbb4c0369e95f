"""Delete the object of a page. If it was changed after the page was opened, show what changed and ask again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from core.errors import ApiError, ChangedMeanwhile
from core.etags import Tagged, etag
from dashboard.forms import Value, read_tags, write_tags
from dashboard.pages import PageRequest, action, done, render_page


class Deletable(NamedTuple):
    """A row with its settings, for `dashboard/_opened.html` in the form of its button, and for the page that asks."""

    row: Tagged
    name: str
    values: Sequence[Value]

    @property
    def etag(self) -> str:
        return etag(self.row)

    @property
    def opened(self) -> str:
        return write_tags(self.values)

    def changes(self, opened: str) -> list[tuple[str, str]]:
        """Return label and present text of the settings that changed, all settings if it is not known which did."""
        tags = read_tags(opened)
        removed = tags.keys() - {value.key for value in self.values}
        found = [(value.label, value.text) for value in self.values if tags.get(value.key) != value.tag]
        return found + [(key, "") for key in sorted(removed)]


def deletion(
    delete: Callable[..., object], read: Callable[[PageRequest, str], Deletable], message: str, to: str
) -> Callable[..., Any]:
    """Return the view of a button that deletes the object of the path, and redirects to the page `to`.

    `delete` is its service, `read` returns the object. Raises NotFound. A conflict is shown as a message.
    """

    @action
    def press(request: PageRequest, /, **ids: str) -> HttpResponse:
        (public_id,) = ids.values()
        sent = request.POST.get("form_etag")
        try:
            delete(request.caller, public_id, if_match=None if sent is None else {sent})
        except ChangedMeanwhile as error:
            found = read(request, public_id)
            changes = found.changes(request.POST.get("form_opened", ""))
            return render_page(request, "deletion", status=error.status, found=found, changes=changes, to=to)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            messages.error(request, str(error))
            return redirect(to)
        return done(request, message, to)

    return press
