"""Forms of pages: drawn by templates/forms, and judged in the end by the services that the API calls too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django import forms
from django.forms.renderers import TemplatesSetting

from core.errors import ApiError, NotFound, ValidationFailed

T = TypeVar("T")
F = TypeVar("F", bound=forms.Field)


class Renderer(TemplatesSetting):
    form_template_name = "forms/form.html"
    field_template_name = "forms/field.html"


def conditional(field: F) -> F:
    """A field that is asked for in some cases, which its form judges: it is not required, and not called optional."""
    field.required = False
    field.conditional = True  # type: ignore[attr-defined]
    return field


class ServiceForm(forms.Form):
    """A form whose last word is a service's. It checks what the page can say better; nothing has to be said twice."""

    def attempt(self, action: Callable[[], T]) -> T | None:
        """What `action` returns; None where it refused, with its reason beside the field that it names.

        Called with valid data only. NotFound is no matter of the form, and goes on to the page.
        """
        try:
            return action()
        except NotFound:
            raise
        except ValidationFailed as error:
            # The reason begins with the path of what is wrong, as the API says it: `url: …`.
            self.refuse(error.field, error.reason or "")
        except ApiError as error:
            self.add_error(None, error.reason or error.code)
        return None

    def refuse(self, field: str | None, reason: str) -> None:
        """Put a service's reason where a person looks for it; a form whose fields are named otherwise says where."""
        name = field if field in self.fields else None
        self.add_error(name, sentence(reason.removeprefix(f"{name}: ") if name else reason))


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
