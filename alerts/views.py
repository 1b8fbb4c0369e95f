"""Alert channels and their deliveries, and the page that confirms an e-mail address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from alerts import confirmation, selectors, services, testing
from alerts.models import AlertChannel, Delivery
from alerts.serializers import (
    ChannelInputSerializer,
    ChannelPatchSerializer,
    ChannelSerializer,
    ChannelTestSerializer,
    DeliverySerializer,
)
from alerts.transports import KINDS
from core import throttles
from core.api.query import ChoiceParam, Pages, TimePages
from core.api.viewsets import ServiceViewSet, operation
from core.clock import utc_now
from core.errors import ChannelLimit, LimitReached, NotConfirmed, NotDead, NotFound, NoWorker
from core.throttles import ChannelAddressThrottle, ChannelTestThrottle
from core.waiting import limit_waiting
from monitors.selectors import hidden_ids


class ChannelViewSet(ServiceViewSet):
    noun = "alert_channel"
    lookup_url_kwarg = "channel_id"
    serializer_class = ChannelSerializer
    has_etag = True

    def get_object(self, channel_id: str) -> AlertChannel:
        return selectors.get_channel(self.caller, channel_id)

    @operation(pages=Pages(weight=selectors.CHANNEL_BYTES))
    def list(self) -> QuerySet[AlertChannel]:
        """List alert channels."""
        return selectors.list_channels(self.caller)

    @operation(body=ChannelInputSerializer, errors=(ChannelLimit, LimitReached), throttles=(ChannelAddressThrottle,))
    def create(self, data: dict[str, Any]) -> AlertChannel:
        """Create an alert channel.

        Only this response contains the secret of a webhook.
        """
        channel, self.secret = services.create_channel(self.caller, data, now=self.now)
        return channel

    @operation("copy", body=ChannelPatchSerializer, status=201, is_idempotent=True, errors=(ChannelLimit, LimitReached))
    def copy(self, channel_id: str, data: dict[str, Any]) -> AlertChannel:
        """Copy an alert channel.

        Creates a channel with all settings of this one, changed by the body, if there is one: by default enabled, with
        the same name and " (copy)". Deliveries are not copied. Addresses and secrets are copied within the same project
        only, and no longer if the URL or the server changes: enter them again, or 422. The owner of an e-mail address
        has to confirm again, unless it is the caller's sign-in address. Only this response contains a new secret of a
        webhook.
        """
        given = self.body_of_copy(
            ChannelInputSerializer, data, dependent={"monitors": ("scope_project_id", "monitor_ids")}
        )
        channel, self.secret = services.create_channel(self.caller, given, now=self.now, copied_from=channel_id)
        return channel

    def create_once(self, create: Callable[[], Any], serialize: Any) -> Any:
        """Count a copy that asks the owner of an e-mail address, as ChannelAddressThrottle counts other requests."""
        if self.action == "copy" and KINDS[self.found.kind].consent:
            throttles.count_request(ChannelAddressThrottle.scope, self.caller.account)
        return super().create_once(create, serialize)

    @operation()
    def retrieve(self, channel_id: str) -> AlertChannel:
        """Read an alert channel."""
        return self.get_object(channel_id)

    @operation(body=ChannelPatchSerializer, errors=(LimitReached,), throttles=(ChannelAddressThrottle,))
    def partial_update(self, channel_id: str, data: dict[str, Any]) -> AlertChannel:
        """Change an alert channel.

        If `server` changes, the topic has to be given again, or 422, and an access token that is not given again is
        dropped.
        """
        return services.update_channel(self.caller, channel_id, data, now=self.now, if_match=self.if_match)

    @operation()
    def destroy(self, channel_id: str) -> None:
        """Delete an alert channel.

        Queued messages are not sent.
        """
        services.delete_channel(self.caller, channel_id, if_match=self.if_match)

    @operation("test", answer=ChannelTestSerializer, errors=(NotConfirmed, NoWorker), throttles=(ChannelTestThrottle,))
    def test(self, channel_id: str) -> Any:
        """Send a test through an alert channel.

        A worker makes one attempt; the response waits for it.
        """
        channel = self.get_object(channel_id)
        self.caller.require_write(channel)
        with limit_waiting(self.caller.account):
            return testing.send_test(channel)


class DeliveryViewSet(ServiceViewSet):
    noun = "delivery"
    lookup_url_kwarg = "delivery_id"
    serializer_class = DeliverySerializer
    hidden_ids: Mapping[str, str] = MappingProxyType({})

    def get_parent(self, channel_id: str) -> AlertChannel:
        return selectors.get_channel(self.caller, channel_id)

    def serialize(self, rows: Sequence[Any], serializer: Any = None) -> list[Any]:
        keys = {item.payload["monitor_id"] for delivery in rows for item in delivery.items.all()}
        self.hidden_ids = hidden_ids(self.caller, keys - {None})
        return super().serialize(rows, serializer)

    def get_serializer_context(self) -> dict[str, Any]:
        is_viewer = self.found is not None and self.caller.views(self.found)
        return super().get_serializer_context() | {"hidden_ids": self.hidden_ids, "is_viewer": is_viewer}

    @operation(
        id="list_alert_channel_deliveries",
        pages=TimePages(chars=selectors.chars_of),
        params=(ChoiceParam("state", "Only deliveries in this state.", Delivery.State.values),),
    )
    def list(
        self, channel_id: str, state: str | None, limit: int, before: tuple[datetime, int] | None
    ) -> Sequence[Delivery]:
        """List the deliveries of an alert channel, newest first."""
        return selectors.deliveries_of(self.found, limit=limit, state=state, before=before)

    @operation("replay", errors=(NotDead,))
    def replay(self, channel_id: str, delivery_id: str) -> Delivery:
        """Replay a dead delivery.

        It is retried at once, and for 24 hours.
        """
        return services.replay(self.caller, channel_id, delivery_id, now=self.now)


@csrf_exempt  # a POST needs the token of the link, and nothing of a browser's session
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_address(request: HttpRequest, token: str) -> HttpResponse:
    """The page of a confirmation link: GET asks, POST agrees."""
    is_done = request.method == "POST"
    try:
        channel = (confirmation.confirm if is_done else confirmation.find_unconfirmed)(token, now=utc_now())
    except NotFound:
        reason = "This link was already used, has expired or was replaced by a newer one."
        page = render(request, "problem.html", {"title": "Nothing to confirm", "reason": reason}, status=404)
    else:
        page = render(request, "alerts/confirm_address.html", {"channel": channel, "done": is_done})
    # The link is a secret. The policy for all pages is this page's too: it loads nothing from elsewhere.
    page["Referrer-Policy"], page["Cache-Control"] = "no-referrer", "no-store"
    return page
