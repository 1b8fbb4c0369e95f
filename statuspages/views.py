"""Status pages, their notes and subscribers, and the badges of monitors."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from core.api.query import HISTORY_LIMIT, Pages
from core.api.viewsets import ServiceViewSet, operation
from core.errors import DomainUnverified, LimitReached, NoteResolved, NoWorker, StatusPageLimit
from core.throttles import LogoThrottle, ProbeThrottle
from core.waiting import limit_waiting
from statuspages import badges, domains, selectors, services, subscriptions
from statuspages.models import Badge, PageNote, StatusPage, Subscriber
from statuspages.serializers import (
    MAX_ENCODED,
    BadgeSerializer,
    LogoInputSerializer,
    NoteInputSerializer,
    NoteSerializer,
    NoteUpdateInputSerializer,
    PageInputSerializer,
    PagePatchSerializer,
    StatusPageSerializer,
    SubscriberSerializer,
)

MAX_PAGE_BYTES = 1024 * 1024
"""The largest body: a thousand monitors with long names."""
MAX_LOGO_BYTES = MAX_ENCODED + 1_024
"""A picture in Base64, in JSON."""


class StatusPageViewSet(ServiceViewSet):
    noun = "status_page"
    lookup_url_kwarg = "page_id"
    serializer_class = StatusPageSerializer
    has_etag = True

    def get_object(self, page_id: str) -> StatusPage:
        return selectors.get_page(self.caller, page_id)

    @operation(pages=Pages(weight=selectors.PAGE_BYTES))
    def list(self) -> QuerySet[StatusPage]:
        """List status pages."""
        return selectors.list_pages(self.caller)

    @operation(body=PageInputSerializer, max_bytes=MAX_PAGE_BYTES, errors=(StatusPageLimit, LimitReached))
    def create(self, data: dict[str, Any]) -> StatusPage:
        """Create a status page.

        It is public at once, unless `published` is false.
        """
        return services.create_page(self.caller, data, now=self.now)

    @operation(
        "copy",
        body=PagePatchSerializer,
        max_bytes=MAX_PAGE_BYTES,
        status=201,
        is_idempotent=True,
        errors=(StatusPageLimit, LimitReached),
    )
    def copy(self, page_id: str, data: dict[str, Any]) -> StatusPage:
        """Copy a status page.

        Creates a page with all settings of this one and its logo, changed by the body, if there is one: by default with
        the same name and " (copy)", and the same slug and `-copy`. It is public at once if this one is. Subscribers,
        notes and the custom domain are not copied. The password is copied within the same project only: a page that has
        one needs `password` in another project, or 422.
        """
        free = {"slug": services.slug_of_copy(self.found.slug), "custom_domain": None}
        given = self.body_of_copy(PageInputSerializer, free | data, dependent={})
        return services.create_page(self.caller, given, now=self.now, copied_from=page_id)

    @operation()
    def retrieve(self, page_id: str) -> StatusPage:
        """Read a status page."""
        return self.get_object(page_id)

    @operation(body=PagePatchSerializer, max_bytes=MAX_PAGE_BYTES, errors=(LimitReached,))
    def partial_update(self, page_id: str, data: dict[str, Any]) -> StatusPage:
        """Change a status page.

        `groups` replaces the stored ones.
        """
        return services.update_page(self.caller, page_id, data, if_match=self.if_match)

    @operation(
        "verify-domain",
        id="verify_status_page_domain",
        errors=(DomainUnverified, NoWorker),
        throttles=(ProbeThrottle,),
    )
    def verify_domain(self, page_id: str) -> StatusPage:
        """Verify the domain of a status page.

        Looks for `domain_record` at once; Pulsekeeper also does so by itself, at intervals that grow from a minute to
        a day. A domain that another page has verified moves here when its record is gone.
        """
        with limit_waiting(self.caller.account):
            return domains.verify(self.caller, page_id)

    @operation()
    def destroy(self, page_id: str) -> None:
        """Delete a status page.

        Also deletes its notes and subscribers, but no monitors.
        """
        services.delete_page(self.caller, page_id, if_match=self.if_match)


class _OfPage(ServiceViewSet):
    def get_parent(self, page_id: str) -> StatusPage:
        return selectors.get_page(self.caller, page_id)


class LogoViewSet(_OfPage):
    noun = "status_page_logo"
    is_singleton = True
    serializer_class = StatusPageSerializer
    has_etag = True

    @operation(id="set_status_page_logo", body=LogoInputSerializer, max_bytes=MAX_LOGO_BYTES, throttles=(LogoThrottle,))
    def update(self, page_id: str, data: dict[str, Any]) -> StatusPage:
        """Set the logo of a status page.

        It is re-encoded without metadata, with at most 512 pixels a side.
        """
        return services.set_logo(self.caller, page_id, data["image"], if_match=self.if_match)

    @operation(id="remove_status_page_logo")
    def destroy(self, page_id: str) -> StatusPage:
        """Remove the logo of a status page."""
        return services.remove_logo(self.caller, page_id, if_match=self.if_match)


class NoteViewSet(_OfPage):
    noun = "status_page_note"
    lookup_url_kwarg = "note_id"
    serializer_class = NoteSerializer

    def get_object(self, page_id: str, note_id: str) -> PageNote:
        return selectors.get_note(self.get_parent(page_id), note_id)

    @operation(pages=Pages(newest_first=True, default=HISTORY_LIMIT, weight=selectors.NOTE_CHARS))
    def list(self, page_id: str) -> QuerySet[PageNote]:
        """List the notes of a status page, newest first."""
        return selectors.list_notes(self.get_parent(page_id))

    @operation(id="write_status_page_note", body=NoteInputSerializer)
    def create(self, page_id: str, data: dict[str, Any]) -> PageNote:
        """Write a note on a status page.

        Subscribers are notified.
        """
        return services.create_note(self.caller, page_id, data, now=self.now)

    @operation()
    def retrieve(self, page_id: str, note_id: str) -> PageNote:
        """Read a note of a status page."""
        return self.get_object(page_id, note_id)

    @operation()
    def destroy(self, page_id: str, note_id: str) -> None:
        """Delete a note of a status page."""
        services.delete_note(self.caller, page_id, note_id)

    @operation(
        "updates",
        id="update_status_page_note",
        body=NoteUpdateInputSerializer,
        status=201,
        is_idempotent=True,
        errors=(NoteResolved, LimitReached),
    )
    def add_update(self, page_id: str, note_id: str, data: dict[str, Any]) -> PageNote:
        """Add an update to a note of a status page.

        Subscribers are notified. `resolved` ends the note, which then accepts no more updates.
        """
        return services.add_update(self.caller, page_id, note_id, data, now=self.now)


class SubscriberViewSet(_OfPage):
    noun = "status_page_subscriber"
    lookup_url_kwarg = "subscriber_id"
    serializer_class = SubscriberSerializer

    @operation(pages=Pages(default=HISTORY_LIMIT))
    def list(self, page_id: str) -> QuerySet[Subscriber]:
        """List the subscribers of a status page.

        Only those with a confirmed address.
        """
        return selectors.list_subscribers(self.get_parent(page_id))

    @operation(id="remove_status_page_subscriber")
    def destroy(self, page_id: str, subscriber_id: str) -> None:
        """Remove a subscriber of a status page."""
        subscriptions.remove_subscriber(self.caller, page_id, subscriber_id)


class BadgeViewSet(ServiceViewSet):
    """A separate resource, because the Monitor of the specification has no field for it."""

    noun = "monitor_badge"
    is_singleton = True
    serializer_class = BadgeSerializer

    @operation()
    def retrieve(self, monitor_id: str) -> Badge:
        """Read the URLs of a monitor's badges.

        404 if it has none.
        """
        return selectors.get_badge(self.caller, monitor_id)

    @operation(id="give_monitor_badge")
    def update(self, monitor_id: str) -> Badge:
        """Create the badges of a monitor.

        They are public, under a key that cannot be guessed. Repeating it changes nothing.
        """
        return badges.create_badge(self.caller, monitor_id, now=self.now)

    @operation(id="take_monitor_badge")
    def destroy(self, monitor_id: str) -> None:
        """Delete the badges of a monitor."""
        badges.delete_badge(self.caller, monitor_id)
