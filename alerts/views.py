"""Endpoints of alert channels, and the page on which an e-mail address agrees to be one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from alerts import confirmation, deliveries, selectors, services, testing
from alerts.models import AlertChannel, Delivery
from alerts.serializers import (
    ChannelInputSerializer,
    ChannelPatchSerializer,
    ChannelSerializer,
    ChannelTestSerializer,
    DeliverySerializer,
)
from core.api.idempotency import Created, create_once
from core.api.pagination import Page, cursor_of, limit_of, page_parameters, with_next
from core.api.query import choice_param
from core.api.schema import IDEMPOTENCY_KEY, ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import EPOCH, MAX_MS, utc_now
from core.errors import NotFound, ValidationFailed
from core.throttles import CallerThrottle, ChannelAddressThrottle, ChannelTestThrottle
from core.waiting import waiting_place
from projects.access import caller_of

PAGE = 100
MICROSECOND = timedelta(microseconds=1)

# The link is a secret. The policy for all pages is this page's too: it loads nothing from elsewhere.
_PAGE_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


def _shown(channel: AlertChannel, secret: str | None = None) -> Any:
    return ChannelSerializer(channel, context={"secret": secret}).data


class ChannelList(APIView):
    throttle_classes = (CallerThrottle, ChannelAddressThrottle)

    @extend_schema(
        operation_id="list_alert_channels",
        summary="List alert channels",
        parameters=page_parameters(),
        responses=ChannelSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_channels(caller_of(request)))
        return page.response(ChannelSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="create_alert_channel",
        summary="Create an alert channel",
        description="The secret of a webhook is in this answer alone.",
        parameters=[IDEMPOTENCY_KEY],
        request=ChannelInputSerializer,
        responses={201: ChannelSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        given = body_of(request, ChannelInputSerializer)
        now = utc_now()

        def make() -> Created:
            channel, secret = services.create_channel(caller, given, now=now)
            return Created(channel.public_id, _shown(channel, secret))

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class ChannelDetail(APIView):
    throttle_classes = (CallerThrottle, ChannelAddressThrottle)

    @extend_schema(
        operation_id="get_alert_channel", summary="Read an alert channel", responses=ChannelSerializer
    )
    def get(self, request: Request, channel_id: str) -> Response:
        return Response(_shown(selectors.get_channel(caller_of(request), channel_id)))

    @extend_schema(
        operation_id="update_alert_channel",
        summary="Change an alert channel",
        request=ChannelPatchSerializer,
        responses=ChannelSerializer,
    )
    def patch(self, request: Request, channel_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_channel(caller, channel_id)  # not found goes before what is wrong with the body
        given = body_of(request, ChannelPatchSerializer)
        return Response(_shown(services.update_channel(caller, channel_id, given, now=utc_now())))

    @extend_schema(
        operation_id="delete_alert_channel",
        summary="Delete an alert channel",
        description="What is on its way there is not sent any more.",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, channel_id: str) -> Response:
        services.delete_channel(caller_of(request), channel_id)
        return Response(OK)


class ChannelTest(APIView):
    throttle_classes = (CallerThrottle, ChannelTestThrottle)

    @extend_schema(
        operation_id="test_alert_channel",
        summary="Send a test through an alert channel",
        description="One try, by a worker, for which the answer waits.",
        request=None,
        responses={200: ChannelTestSerializer, 409: ErrorSerializer, 503: ErrorSerializer},
    )
    def post(self, request: Request, channel_id: str) -> Response:
        caller = caller_of(request)
        channel = selectors.get_channel(caller, channel_id)
        with waiting_place(caller.account):
            return Response(ChannelTestSerializer(testing.send_test(channel)).data)


class ChannelDeliveries(APIView):
    @extend_schema(
        operation_id="list_alert_channel_deliveries",
        summary="List what was sent through an alert channel, newest first",
        parameters=[
            *page_parameters(default=PAGE),
            OpenApiParameter("state", enum=Delivery.State.values, description="Only such deliveries."),
        ],
        responses=DeliverySerializer(many=True),
    )
    def get(self, request: Request, channel_id: str) -> Response:
        channel = selectors.get_channel(caller_of(request), channel_id)
        limit = limit_of(request) or PAGE
        state = choice_param(request, "state", Delivery.State.values)
        rows = selectors.deliveries_of(channel, limit=limit + 1, state=state, before=_position(request))
        shown = rows[:limit]
        response = Response(DeliverySerializer(shown, many=True).data)
        if len(rows) > limit:
            last = shown[-1]
            return with_next(request, response, (last.created_at - EPOCH) // MICROSECOND, last.pk)
        return response


class DeliveryReplay(APIView):
    @extend_schema(
        operation_id="replay_delivery",
        summary="Try a dead delivery again",
        description="At once, and for 24 hours.",
        request=None,
        responses={200: DeliverySerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, channel_id: str, delivery_id: str) -> Response:
        delivery = deliveries.replay(caller_of(request), channel_id, delivery_id, now=utc_now())
        return Response(DeliverySerializer(delivery).data)


def _position(request: Request) -> tuple[datetime, int] | None:
    """Where the page before ended: (created_at in microseconds, id)."""
    found = cursor_of(request, numbers=2)
    if found is None:
        return None
    at_us, pk = found
    if at_us > MAX_MS * 1000:
        raise ValidationFailed("is not a cursor that a Link header gave.", field="cursor")
    return EPOCH + at_us * MICROSECOND, pk


@csrf_exempt  # a POST needs the token of the link, and nothing of a browser's session
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_address(request: HttpRequest, token: str) -> HttpResponse:
    """Where a confirmation's link leads: GET asks, POST agrees."""
    now = utc_now()
    try:
        channel = confirmation.find_unconfirmed(token, now=now)
        if request.method == "POST":
            confirmation.confirm(token, now=now)
    except NotFound:
        context = {
            "title": "Nothing to confirm",
            "reason": "This link was used, has run out or was replaced by a later one.",
        }
        return _with_headers(render(request, "problem.html", context, status=404))
    page = {"channel": channel, "done": request.method == "POST"}
    return _with_headers(render(request, "alerts/confirm_address.html", page))


def _with_headers(page: HttpResponse) -> HttpResponse:
    for name, value in _PAGE_HEADERS.items():
        page[name] = value
    return page
