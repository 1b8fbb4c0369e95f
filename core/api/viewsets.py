"""ServiceViewSet: a resource of the API over its services and selectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import Any, Literal

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.permissions import SAFE_METHODS, AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import Route, SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import ViewSet

import core.api.converters  # noqa: F401  (registers <id:…>)
from core.api.fields import StrictSerializer, validated
from core.api.idempotency import Created, create_once
from core.api.query import Pages, Param
from core.clock import utc_now
from core.errors import ApiError, NotFound
from core.etags import IF_MATCH, IfMatch, etag, parse_if_match
from core.text import copy_name

Method = Literal["get", "post", "put", "delete"]


class OkSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the API: its input, its responses, and its description in openapi.json."""

    summary: str
    description: str
    id: str | None = None
    body: type[StrictSerializer] | None = None
    answer: Any = None
    """The serializer class of the answer. None: that of the viewset, or {"ok": true} for a deletion."""
    many: bool = False
    media_types: Sequence[str] = ("application/json",)
    """The media type of the response. If it is not JSON, the operation returns the response without a serializer."""
    status: int = 200
    errors: Collection[type[ApiError]] = ()
    params: Collection[Param] = ()
    pages: Pages | None = None
    is_idempotent: bool = False
    is_public: bool = False
    session_only: bool = False
    """Project tokens are refused, as they are if the viewset has `session_only`."""
    only_reads: bool = False
    """It changes nothing: callers that only read may use it, also if it is a POST."""
    locks: bool = False
    """Its service finds and locks the object before anything else. Only a bad body needs a query of its own: 404 comes
    before its errors."""
    throttles: Collection[type[BaseThrottle]] = ()
    max_bytes: int | None = None


ETAG = "ETag"
"""The response's header, and the member of a stored answer that becomes it."""
_NOT_ALLOWED = Operation(summary="", description="")
_DEFAULTS: dict[str, dict[str, Any]] = {
    "list": {"pages": Pages(), "many": True},
    "create": {"status": 201, "is_idempotent": True},
    "destroy": {"answer": OkSerializer},
}


def operation(
    path: str | None = None, *, method: Method = "post", detail: bool = True, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an endpoint of a method of a ServiceViewSet.

    The docstring becomes the summary and the description in openapi.json. A method with the name of a standard action
    (list, create, retrieve, update, partial_update, destroy) has the URL and HTTP method of that action, `update_many`
    is PATCH of the list, and any other one needs `path`. `list` is paged and `create` is idempotent by default. The
    method takes the ids of the URL, the values of `params`, and the validated body as `data`; it returns an object to
    serialize, None for {"ok": true}, or a response. The other options are the fields of Operation.
    """

    def decorate(method_: Callable[..., Any]) -> Callable[..., Any]:
        summary, _, description = inspect.cleandoc(method_.__doc__ or "").partition("\n\n")
        defaults = _DEFAULTS.get(method_.__name__, {})
        spec = Operation(
            summary=" ".join(summary.split()).rstrip("."),
            description=" ".join(description.split()),
            **(defaults | options),
        )

        @wraps(method_)
        def endpoint(view: ServiceViewSet, request: Request, **ids: str) -> HttpResponseBase:
            return view.run(spec, partial(method_, view), ids)

        endpoint.operation = spec  # type: ignore[attr-defined]  # read by ServiceViewSet and PulsekeeperSchema
        if path is None:
            return endpoint
        return action(detail=detail, methods=[method], url_path=path)(endpoint)

    return decorate


class ServiceViewSet(ViewSet):
    """A resource of the API. Its operations are methods decorated with `operation`.

    The base guarantees the order of errors: credentials, the account's throttle, the kind of credential, the throttles
    of the operation, 404 for what the caller cannot access, 403 for what the caller can only read, then the body. So
    an operation on a URL with ids that takes a body needs `get_object`, or `get_parent` if the URL lacks the resource's
    own id.
    """

    noun: str
    """In the singular and with underscores, for operation ids and URL names."""
    serializer_class: type[serializers.Serializer[Any]]
    lookup_url_kwarg: str | None = None
    lookup_value_converter = "id"
    is_singleton = False
    """There is one object, at the bare URL."""
    session_only = False
    """Project tokens are refused."""
    has_etag = False
    """Operations return rows with `tagged_settings`. Those that change them pass `if_match` to their service."""
    get_object: Callable[..., Any]
    get_parent: Callable[..., Any]
    found: Any = None
    """The result of `get_object` or `get_parent`, from before the body was read."""
    data: dict[str, Any]
    """The validated body."""
    secret: str | None = None
    """Set by an operation to show a secret once: serializers get it in their context."""

    @classmethod
    def get_extra_actions(cls) -> list[Any]:
        """Return the operations with their own path. DRF also reads `schema`, which loads drf-spectacular: 5 MiB."""
        members = (getattr(cls, name) for name in dir(cls) if name != "schema")
        return [member for member in members if hasattr(member, "mapping")]

    @cached_property
    def now(self) -> datetime:
        return utc_now()

    @property
    def caller(self) -> Any:
        """The `projects.access.Caller` that authentication found."""
        return self.request.user

    @property
    def if_match(self) -> IfMatch:
        """The tags that the request's If-Match accepts. Raises ValidationFailed."""
        return parse_if_match(self.request.headers.get(IF_MATCH))

    @property
    def current_operation(self) -> Operation:
        """The operation of this request; an empty one if its method is not allowed."""
        spec: Operation = getattr(getattr(type(self), self.action or "", None), "operation", _NOT_ALLOWED)
        return spec

    def initialize_request(self, request: Any, *args: Any, **kwargs: Any) -> Request:
        # DRF sets it only after it chose authenticators, which depend on it here.
        self.action = self.action_map.get(str(request.method).lower(), "")
        return super().initialize_request(request, *args, **kwargs)

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [] if self.current_operation.is_public else super().get_authenticators()

    def get_permissions(self) -> Sequence[Any]:
        return [AllowAny()] if self.current_operation.is_public else super().get_permissions()

    def get_throttles(self) -> list[BaseThrottle]:
        own = [throttle() for throttle in self.current_operation.throttles]
        if self.current_operation.is_public:
            return own
        return [*super().get_throttles(), *(own if self._credential_error() is None else ())]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        error = None if self.current_operation.is_public else self._credential_error()
        if error is not None:
            raise error

    def _credential_error(self) -> ApiError | None:
        """Return SessionRequired or ReadOnly if this kind of credential never allows the request.

        There is none for a wrong method of a public resource.
        """
        spec = self.current_operation
        if self.caller is None:
            return None
        try:
            if spec.session_only or (self.session_only and spec is not _NOT_ALLOWED):
                self.caller.require_session()
            if self.is_writing:
                self.caller.require_write()
        except ApiError as error:
            return error
        return None

    @property
    def is_writing(self) -> bool:
        return self.request.method not in SAFE_METHODS and not self.current_operation.only_reads

    def _require_write(self) -> None:
        """Raise ReadOnly if the caller can only read what was found, or the project that body or query name."""
        if self.is_writing and not self.current_operation.is_public and self.caller is not None:
            body = None
            with suppress(ApiError, APIException):  # it cannot be read
                body = self.request.data
            for given in (body, self.request.query_params):
                self.caller.require_write(self.found, given.get("project_id") if isinstance(given, Mapping) else None)

    def run(self, spec: Operation, call: Callable[..., Any], ids: dict[str, str]) -> HttpResponseBase:
        """Answer the request by calling `call`, the method of the operation `spec`."""
        try:
            return self._run(spec, call, ids)
        except NotFound:
            raise
        except (ApiError, APIException):
            self._require_write()  # before everything that is wrong with the body
            raise

    def _run(self, spec: Operation, call: Callable[..., Any], ids: dict[str, str]) -> HttpResponseBase:
        if ids and (spec.body or spec.params) and not spec.locks:
            find = self.get_object if self.lookup_url_kwarg in ids else self.get_parent
            self.found = find(**ids)
            if self.is_writing and not spec.is_public:
                self.caller.require_write(self.found)
        arguments: dict[str, Any] = dict(ids)
        if spec.body is not None:
            try:
                self.data = arguments["data"] = validated(spec.body, self.request.data)
            except (ApiError, APIException):
                if spec.locks:
                    self.found = self.get_object(**ids)  # 404 and 403 come first
                raise
        arguments |= {param.name: param.read(self.request) for param in spec.params}
        serialize = partial(self.serialize, serializer=spec.answer)
        if spec.pages is not None:
            return spec.pages.respond(self.request, partial(call, **arguments), serialize)
        if spec.is_idempotent:
            answer = dict(self.create_once(partial(call, **arguments), serialize))
            tag = {ETAG: answer.pop(ETAG)} if ETAG in answer else None
            return Response(answer, status=spec.status, headers=tag)
        result = call(**arguments)
        if isinstance(result, HttpResponseBase):
            return result
        if spec.many:
            return Response(serialize(result))
        answer = {"ok": True} if result is None or spec.answer is OkSerializer else serialize([result])[0]
        return Response(answer, status=spec.status, headers=self._tag(result))

    def _tag(self, result: Any) -> dict[str, str]:
        """Return the header of a response that shows the settings of a row, or that they were changed."""
        return {ETAG: etag(result)} if self.has_etag and hasattr(result, "tagged_settings") else {}

    def create_once(self, create: Callable[[], Any], serialize: Callable[[Sequence[Any]], list[Any]]) -> Any:
        """Return the answer to a creation, with its tag as ETAG.

        Repetitions with the same Idempotency-Key get exactly the same one.
        """

        def run() -> Created:
            row = create()
            return Created(row.public_id, serialize([row])[0] | ({ETAG: etag(row)} if self.has_etag else {}))

        return create_once(self.request, self.caller, run, now=self.now).answer

    def body_of_copy(
        self, body: type[StrictSerializer], given: Mapping[str, Any], *, dependent: Mapping[str, Collection[str]]
    ) -> dict[str, Any]:
        """Return the body of a creation that copies `found` with the changes `given`.

        Every setting that a response shows and `body` takes is copied. `dependent` are those that are not copied if
        `given` changes the setting that they depend on.
        """
        shown: dict[str, Any] = self.serialize([self.found])[0]
        fields: Mapping[str, Any] = body().fields
        changed = [name for name in dependent if given.get(name, shown[name]) != shown[name]]
        left_out = {name for one in changed for name in dependent[one]}
        kept = [name for name, field in fields.items() if name in shown and not field.write_only]
        copied = {name: shown[name] for name in kept if name not in left_out}
        copied["name"] = copy_name(shown["name"], limit=fields["name"].max_length)
        return {**validated(body, copied), **given}

    def get_serializer_context(self) -> dict[str, Any]:
        # The schema has no request to authenticate.
        caller = None if getattr(self, "swagger_fake_view", False) else self.caller
        return {"now": self.now, "secret": self.secret, "caller": caller}

    def serialize(self, rows: Sequence[Any], serializer: Any = None) -> list[Any]:
        """Serialize rows, by default with the serializer of the resource."""
        serializer = serializer or self.serializer_class
        return list(serializer(rows, many=True, context=self.get_serializer_context()).data)


class ServiceRouter(SimpleRouter):
    """URLs without trailing slashes. A prefix may contain the ids of parents: `projects/<id:project_id>/members`."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False, use_regex_path=False)

    def get_default_basename(self, viewset: Any) -> str:
        return f"api-{viewset.noun}"  # pages have names like "account"

    def get_routes(self, viewset: Any) -> list[Route]:
        if not viewset.is_singleton:
            list_route, *others = super().get_routes(viewset)
            many = {**list_route.mapping, "patch": "update_many"}
            return [list_route._replace(mapping=many), *others]
        actions = {"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"}
        return [Route("{prefix}{trailing_slash}", actions, "{basename}", detail=True, initkwargs={})]
