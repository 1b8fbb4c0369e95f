"""The response for unknown URLs below /v1."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.errors import NotFound


@extend_schema(exclude=True)
class UnknownRoute(APIView):
    """Any other URL below /v1: 404 in the Error shape, for every method and credential."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise NotFound("There is no such address.")

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        raise NotFound
