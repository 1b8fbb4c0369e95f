"""Endpoints of status pages, of what is written on them, of their subscribers, and of badges."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.api.idempotency import Created, create_once
from core.api.pagination import Page, page_parameters
from core.api.parsers import JsonParser
from core.api.schema import IDEMPOTENCY_KEY, ErrorSerializer
from core.api.views import OK, OkSerializer, body_of
from core.clock import utc_now
from core.throttles import CallerThrottle, LogoThrottle
from projects.access import caller_of
from statuspages import badges, selectors, services, subscriptions
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

PAGE = 100


class LogoParser(JsonParser):
    """A picture in Base64, and the braces around it."""

    max_bytes = MAX_ENCODED + 1_024


class PageParser(JsonParser):
    """A thousand monitors with long names are more than any other body."""

    max_bytes = 1024 * 1024


class StatusPageList(APIView):
    parser_classes = (PageParser,)

    @extend_schema(
        operation_id="list_status_pages",
        summary="List status pages",
        parameters=page_parameters(),
        responses=StatusPageSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        page = Page(request, selectors.list_pages(caller_of(request)))
        return page.response(StatusPageSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="create_status_page",
        summary="Create a status page",
        description="It is public at once, unless `published` is false.",
        parameters=[IDEMPOTENCY_KEY],
        request=PageInputSerializer,
        responses={201: StatusPageSerializer, 403: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        caller = caller_of(request)
        given = body_of(request, PageInputSerializer)
        now = utc_now()

        def make() -> Created:
            page = services.create_page(caller, given, now=now)
            return Created(page.public_id, StatusPageSerializer(page).data)

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class StatusPageDetail(APIView):
    parser_classes = (PageParser,)

    @extend_schema(
        operation_id="get_status_page", summary="Read a status page", responses=StatusPageSerializer
    )
    def get(self, request: Request, page_id: str) -> Response:
        return Response(StatusPageSerializer(selectors.get_page(caller_of(request), page_id)).data)

    @extend_schema(
        operation_id="update_status_page",
        summary="Change a status page",
        description="`groups` replace those there are.",
        request=PagePatchSerializer,
        responses=StatusPageSerializer,
    )
    def patch(self, request: Request, page_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_page(caller, page_id)  # not found goes before what is wrong with the body
        given = body_of(request, PagePatchSerializer)
        return Response(StatusPageSerializer(services.update_page(caller, page_id, given)).data)

    @extend_schema(
        operation_id="delete_status_page",
        summary="Delete a status page",
        description="With its notes and its subscribers. Its monitors stay.",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, page_id: str) -> Response:
        services.delete_page(caller_of(request), page_id)
        return Response(OK)


class StatusPageLogo(APIView):
    parser_classes = (LogoParser,)
    throttle_classes = (CallerThrottle, LogoThrottle)

    @extend_schema(
        operation_id="set_status_page_logo",
        summary="Set the logo of a status page",
        description="It is encoded anew, at most 512 pixels a side and without metadata.",
        request=LogoInputSerializer,
        responses=StatusPageSerializer,
    )
    def put(self, request: Request, page_id: str) -> Response:
        caller = caller_of(request)
        selectors.get_page(caller, page_id)
        picture = body_of(request, LogoInputSerializer)["image"]
        return Response(StatusPageSerializer(services.set_logo(caller, page_id, picture)).data)

    @extend_schema(
        operation_id="remove_status_page_logo",
        summary="Remove the logo of a status page",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, page_id: str) -> Response:
        services.remove_logo(caller_of(request), page_id)
        return Response(OK)


class NoteList(APIView):
    @extend_schema(
        operation_id="list_status_page_notes",
        summary="List the notes of a status page, newest first",
        parameters=page_parameters(default=PAGE),
        responses=NoteSerializer(many=True),
    )
    def get(self, request: Request, page_id: str) -> Response:
        found = selectors.list_notes(selectors.get_page(caller_of(request), page_id))
        page = Page(request, found, newest_first=True, default=PAGE)
        return page.response(NoteSerializer(page.rows, many=True).data)

    @extend_schema(
        operation_id="write_status_page_note",
        summary="Write a note on a status page",
        description="Subscribers are told of it.",
        parameters=[IDEMPOTENCY_KEY],
        request=NoteInputSerializer,
        responses={201: NoteSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, page_id: str) -> Response:
        caller, now = caller_of(request), utc_now()
        selectors.get_page(caller, page_id)
        given = body_of(request, NoteInputSerializer)

        def make() -> Created:
            note = services.create_note(caller, page_id, given, now=now)
            return Created(note.public_id, NoteSerializer(note).data)

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class NoteDetail(APIView):
    @extend_schema(
        operation_id="get_status_page_note", summary="Read a note of a status page", responses=NoteSerializer
    )
    def get(self, request: Request, page_id: str, note_id: str) -> Response:
        page = selectors.get_page(caller_of(request), page_id)
        return Response(NoteSerializer(selectors.get_note(page, note_id)).data)

    @extend_schema(
        operation_id="delete_status_page_note",
        summary="Delete a note of a status page",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, page_id: str, note_id: str) -> Response:
        services.delete_note(caller_of(request), page_id, note_id)
        return Response(OK)


class NoteUpdates(APIView):
    @extend_schema(
        operation_id="update_status_page_note",
        summary="Add an update to a note of a status page",
        description="Subscribers are told of it. With `resolved` the note is over, and takes no more.",
        parameters=[IDEMPOTENCY_KEY],
        request=NoteUpdateInputSerializer,
        responses={201: NoteSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, page_id: str, note_id: str) -> Response:
        caller, now = caller_of(request), utc_now()
        selectors.get_note(selectors.get_page(caller, page_id), note_id)
        given = body_of(request, NoteUpdateInputSerializer)

        def make() -> Created:
            note = services.add_update(caller, page_id, note_id, given, now=now)
            return Created(note.public_id, NoteSerializer(note).data)

        return Response(create_once(request, caller, make, now=now).answer, status=201)


class SubscriberList(APIView):
    @extend_schema(
        operation_id="list_status_page_subscribers",
        summary="List the subscribers of a status page",
        description="Those who agreed.",
        parameters=page_parameters(default=PAGE),
        responses=SubscriberSerializer(many=True),
    )
    def get(self, request: Request, page_id: str) -> Response:
        found = selectors.list_subscribers(selectors.get_page(caller_of(request), page_id))
        page = Page(request, found, default=PAGE)
        return page.response(SubscriberSerializer(page.rows, many=True).data)


class SubscriberDetail(APIView):
    @extend_schema(
        operation_id="remove_status_page_subscriber",
        summary="Remove a subscriber of a status page",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, page_id: str, subscriber_id: str) -> Response:
        subscriptions.remove_subscriber(caller_of(request), page_id, subscriber_id)
        return Response(OK)


class MonitorBadge(APIView):
    """A resource of its own: the Monitor of the specification has no field for it."""

    @extend_schema(
        operation_id="get_monitor_badge",
        summary="Read where a monitor's badges are",
        description="404 as long as it has none.",
        responses=BadgeSerializer,
    )
    def get(self, request: Request, monitor_id: str) -> Response:
        return Response(BadgeSerializer(selectors.get_badge(caller_of(request), monitor_id)).data)

    @extend_schema(
        operation_id="give_monitor_badge",
        summary="Give a monitor badges",
        description="Public, under a key that cannot be guessed. Repeating it changes nothing.",
        request=None,
        responses=BadgeSerializer,
    )
    def put(self, request: Request, monitor_id: str) -> Response:
        badge = badges.create_badge(caller_of(request), monitor_id, now=utc_now())
        return Response(BadgeSerializer(badge).data)

    @extend_schema(
        operation_id="take_monitor_badge",
        summary="Take a monitor's badges away",
        responses={200: OkSerializer},
    )
    def delete(self, request: Request, monitor_id: str) -> Response:
        badges.delete_badge(caller_of(request), monitor_id)
        return Response(OK)
