"""The iCalendar feed of a schedule, at a secret address that calendars subscribe to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from core.addresses import client_network
from core.clock import to_ms, utc_now
from core.errors import NotFound, TooManyRequests
from core.packed import Packed, pack, respond
from core.shares import Shares
from core.text import one_line
from core.throttles import count_request
from oncall import rotation, selectors
from oncall.rotation import Shift

BACK, AHEAD = timedelta(days=30), timedelta(days=90)
_MAX_AGE_SEC = 300
_READ_AGAIN = timedelta(hours=1)
_turns = Shares(at_once=1, most_waiting=12, most_present=4, patience_sec=5.0)
"""Hourly turns are thousands of events, which take a second."""


@require_http_methods(["GET", "HEAD"])
def calendar_feed(request: HttpRequest, token: str) -> HttpResponse:
    """The shifts of 30 days back and 90 ahead. 404 at any address but the last one that was created."""
    try:
        network = client_network(request)
        count_request("calendars", network)
        schedule = selectors.schedule_of_calendar(token)
        now = utc_now()
        start, end = (day.replace(hour=0, minute=0, second=0, microsecond=0) for day in (now - BACK, now + AHEAD))
        people = selectors.people_of([schedule], among=set(selectors.named_in(schedule)))[schedule]
        with _turns.turn(network, f"owner:{schedule.owner_id}"):
            shifts = rotation.shifts(selectors.parsed(schedule), start, end, people)
            named = tuple((shift, people[shift.user_id].email) for shift in shifts)
            made_at = now.replace(minute=0, second=0, microsecond=0)
            packed = _pack(schedule.public_id, schedule.name, named, start, made_at)
    except (NotFound, TooManyRequests) as error:
        response = render(
            request, "problem.html", {"title": "No calendar", "reason": error.reason}, status=error.status
        )
        for name, value in error.headers.items():
            response[name] = value
        response["Cache-Control"] = "no-store"
    else:
        response = respond(request, packed)
        response["Cache-Control"] = f"private, max-age={_MAX_AGE_SEC}"
    # The address is a secret.
    response["Referrer-Policy"], response["X-Robots-Tag"] = "no-referrer", "noindex"
    return response


@lru_cache(maxsize=16)
def _pack(
    public_id: str, name: str, shifts: tuple[tuple[Shift, str], ...], start: datetime, made_at: datetime
) -> Packed:
    return pack(to_ical(public_id, name, shifts, start, made_at), "text/calendar; charset=utf-8")


def to_ical(
    public_id: str, name: str, shifts: Sequence[tuple[Shift, str]], start: datetime, made_at: datetime
) -> bytes:
    """Return the calendar of a schedule: an event for each shift, with the name of its person.

    `start` is that of the range. A shift that it cuts is known by its end, others by their beginning: an event keeps
    its id while the range moves on.
    """
    # Imported here, as few installations have such a feed: 3 MiB.
    from icalendar import Calendar, Event, vText

    name = one_line(name, limit=200)
    calendar = Calendar()
    calendar.add("prodid", "-//Pulsekeeper//On call//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", vText(f"On call: {name}"))
    calendar.add("refresh-interval", _READ_AGAIN, parameters={"VALUE": "DURATION"})
    calendar.add("x-published-ttl", "PT1H")
    for shift, person in shifts:
        edge = f"-{to_ms(shift.ends_at)}" if shift.starts_at == start else f"{to_ms(shift.starts_at)}"
        uid = hashlib.sha256(f"{public_id}:{shift.user_id}:{edge}".encode()).hexdigest()[:32]
        event = Event()
        event.add("uid", f"{uid}@pulsekeeper")
        event.add("dtstamp", made_at.astimezone(UTC))
        event.add("dtstart", shift.starts_at.astimezone(UTC))
        event.add("dtend", shift.ends_at.astimezone(UTC))
        event.add("summary", f"{person} on call: {name}")
        event.add("transp", "TRANSPARENT")  # being on call does not make busy
        calendar.add_component(event)
    return bytes(calendar.to_ical())
