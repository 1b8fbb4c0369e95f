"""Schemas that drf-spectacular cannot derive: operations of a ServiceViewSet, shared errors, strict bodies."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS

from core import errors
from core.api.errors import error_body
from core.api.fields import StrictSerializer, TextField
from core.api.idempotency import HEADER, MAX_LENGTH
from core.api.viewsets import Operation
from core.etags import IF_MATCH

NO_NUL = "^[^\\u0000]*$"
"""PostgreSQL stores no NUL in text."""

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    description="A unique value for this attempt, for example a UUID. Repeating key and body within 24 hours creates "
    "nothing more and returns the same response. The same key with another body is refused with 422.",
)
IF_MATCH_HEADER = OpenApiParameter(
    IF_MATCH,
    {"type": "string", "minLength": 1},
    OpenApiParameter.HEADER,
    description="The expected ETag of the object, or several, separated by commas; `*`: any. If the object has "
    "another, nothing is changed: 412 `changed_meanwhile`.",
)
_VERBS = {"retrieve": "get", "partial_update": "update", "destroy": "delete"}


_SHARED: tuple[type[errors.ApiError], ...] = (
    errors.Unauthorized,
    errors.NotFound,
    errors.BodyTooLarge,
    errors.UnsupportedMediaType,
    errors.TooManyRequests,
)
_EXAMPLES = {
    "422": error_body(errors.ValidationFailed("must be a whole number from 1 to 1000.", field="limit")),
    "default": error_body(errors.ApiError),
}


def _etag_header(status: int) -> OpenApiParameter:
    text = "Changes with the settings, not with the state. Send it as If-Match of a change or deletion."
    return OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[status], description=text)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tokens.authentication.BearerAuthentication"
    name = "Bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        description = (
            "A session token (`ses_…`, of POST /v1/sessions) or a project token (`svc_…`, of POST /v1/tokens)."
        )
        return {"type": "http", "scheme": "bearer", "description": description}


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error below /v1."""

    error = serializers.CharField(help_text="A stable code in snake_case.")
    reason = serializers.CharField(required=False, help_text="A sentence for people; it names the field.")
    limit = serializers.IntegerField(required=False, help_text="The limit that was reached.")


class PulsekeeperSchema(AutoSchema):
    """Describes the operations of viewsets, and adds the Error answers that every operation shares."""

    view: Any

    @property
    def _spec(self) -> Operation:
        spec: Operation = self.view.current_operation
        return spec

    def get_operation_id(self) -> str:
        action = self.view.action
        plural = "s" if action == "list" else ""
        return self._spec.id or f"{_VERBS.get(action, action)}_{self.view.noun}{plural}"

    def get_summary(self) -> str:
        return self._spec.summary

    def get_description(self) -> str:  # type: ignore[override]  # as AutoSchema of drf-spectacular has it
        return self._spec.description

    def get_override_parameters(self) -> list[Any]:
        pages = [] if self._spec.pages is None else self._spec.pages.parameters()
        key = [IDEMPOTENCY_KEY] if self._spec.is_idempotent else []
        condition = [IF_MATCH_HEADER] if self._is_conditional else []
        tag = [_etag_header(self._spec.status)] if self._has_etag else []
        return [*pages, *key, *condition, *tag, *(param.describe() for param in self._spec.params)]

    @property
    def _is_conditional(self) -> bool:
        is_of_one = self.view.is_singleton or "{" in self.path
        return self.view.has_etag and is_of_one and self.method in ("PATCH", "PUT", "DELETE")

    @property
    def _has_etag(self) -> bool:
        """Return whether the response has an ETag: all except those of lists, tests and deletions of the object."""
        spec = self._spec
        is_gone = self.view.action == "destroy" and not self.view.is_singleton
        is_row = spec.answer is None or self._is_conditional
        return self.view.has_etag and is_row and not is_gone and spec.pages is None

    def get_request_serializer(self) -> Any:
        return self._spec.body

    def get_response_serializers(self) -> Any:
        answer = self._spec.answer or self.view.serializer_class
        answers = {(self._spec.status, *self._spec.media_types): answer(many=True) if self._spec.many else answer}
        return answers | {error.status: ErrorSerializer for error in self._errors}

    @property
    def _errors(self) -> list[type[errors.ApiError]]:
        found = list(self._spec.errors)
        if self._spec.session_only or (self.view.session_only and not self._spec.is_public):
            found.append(errors.SessionRequired)
        if self._spec.is_idempotent:
            found.append(errors.IdempotencyKeyInUse)
        if self._is_conditional:
            found.append(errors.ChangedMeanwhile)
        if not (self._spec.is_public or self._spec.only_reads or self.method in SAFE_METHODS):
            found.append(errors.ReadOnly)
        return found

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        shared = {"422": "Validation error", "429": "Too many requests", "default": "Any other error"}
        if self.view.get_authenticators():
            shared["401"] = "Missing or invalid token"
        if "{" in self.path:
            shared["404"] = "Not found"
        if self._spec.body:
            shared |= {"413": "Body too large", "415": "Unsupported media type"}
        for code, description in shared.items():
            if code not in bodies:
                body: dict[str, Any] = self._get_response_for_code(ErrorSerializer, code)  # type: ignore[no-untyped-call]
                bodies[code] = body | {"description": description}
        possible = (*_SHARED, *reversed(self._errors))
        examples = _EXAMPLES | {str(error.status): error_body(error) for error in possible}
        for code, body in bodies.items():
            if not code.startswith("2"):
                body["content"]["application/json"]["example"] = examples[code]
        return bodies

    def _get_request_body(self, direction: Literal["request", "response"] = "request") -> Any:
        method = self.method
        if method == "DELETE" and self._spec.body:  # drf-spectacular expects none
            self.method = "POST"
        try:
            return super()._get_request_body(direction)  # type: ignore[no-untyped-call]
        finally:
            self.method = method

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """Use the docstring as description. A body takes only its own fields and those that it ignores."""
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if text := vars(type(serializer)).get("__doc__"):
            schema["description"] = " ".join(text.split())
        if isinstance(serializer, StrictSerializer):
            if serializer.ignored:
                schema["propertyNames"] = {"enum": sorted({*schema["properties"], *serializer.ignored})}
            else:
                schema["additionalProperties"] = False
            for name, field in serializer.fields.items():
                if isinstance(field, TextField):
                    text = schema["properties"][name]
                    text.setdefault("pattern", NO_NUL)
                    if not field.allow_blank:
                        text.setdefault("minLength", 1)
        return schema
