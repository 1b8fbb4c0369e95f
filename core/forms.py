"""Forms of pages: rendered by templates/forms, validated in the end by the services that the API calls too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django import forms
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest
from django.utils.text import capfirst

from core.errors import ApiError, BodyTooLarge, NotFound, ValidationFailed

T = TypeVar("T")
F = TypeVar("F", bound=forms.Field)


class Renderer(TemplatesSetting):
    form_template_name = "forms/form.html"
    field_template_name = "forms/field.html"


MAX_FORM_BYTES, MAX_MULTIPART_BYTES = 16 * 1024, 8 * 1024
"""The largest forms without a session. Parsing a multipart body costs many times as much."""


def require_small_form(request: HttpRequest) -> None:
    """Raise BodyTooLarge before Django parses a form above the limits for requests without a session."""
    limit = MAX_MULTIPART_BYTES if request.content_type == "multipart/form-data" else MAX_FORM_BYTES
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
        raise BodyTooLarge(limit=limit)


def conditional(field: F) -> F:
    """Return the field as one that its form requires in some cases: neither required nor labelled optional."""
    field.required = False
    field.conditional = True  # type: ignore[attr-defined]
    return field


class ServiceForm(forms.Form):
    """A form whose input a service validates. It checks only what the page can explain better."""

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Return the result of `action`, or None if it refused, with its reason beside the field.

        Call it with valid data only. NotFound is raised: it is not an error of the form.
        """
        try:
            return action()
        except NotFound:
            raise
        except ValidationFailed as error:
            # The reason begins with the path of the field, as in the API: `url: …`.
            self.refuse(error.field, error.reason)
        except ApiError as error:
            self.add_error(None, error.reason)
        return None

    def refuse(self, field: str | None, reason: str) -> None:
        """Put a service's reason beside its field. Override it if the form's fields have other names."""
        name = field if field in self.fields else None
        self.add_error(name, capfirst(reason.removeprefix(f"{name}: ") if name else reason))
