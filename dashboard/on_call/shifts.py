"""My shifts: when the user is on call, in all schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django.db.models import Q
from django.http import HttpResponse

from dashboard.pages import PageRequest, page, render_page
from oncall import rotation, selectors
from oncall.models import OnCallSchedule
from oncall.rotation import Shift

AHEAD = timedelta(days=90)
SOON = timedelta(days=8)
"""Looked at first, since many schedules with short shifts may fill the page."""
MOST_SCHEDULES, MOST_SHOWN = 100, 200


class OwnShift(NamedTuple):
    shift: Shift
    schedule: OnCallSchedule
    is_now: bool
    is_cut: bool
    """It may be longer than this page looks ahead."""


@page
@selectors.computing()
def index(request: PageRequest) -> HttpResponse:
    user, now = request.caller.user, request.now
    named = Q(layers__contains=[{"user_ids": [user.public_id]}]) | Q(overrides__contains=[{"user_id": user.public_id}])
    schedules = list(selectors.list_schedules(request.caller).filter(named).order_by("name", "pk")[:MOST_SCHEDULES])
    people = selectors.people_of(schedules, among={one for row in schedules for one in selectors.named_in(row)})
    found: list[OwnShift] = []
    for ahead in (SOON, AHEAD):
        if len(found) > MOST_SHOWN:
            break
        found = [
            OwnShift(shift, schedule, is_now=shift.starts_at <= now, is_cut=shift.ends_at == now + ahead)
            for schedule in schedules
            for shift in rotation.shifts(selectors.parsed(schedule), now, now + ahead, people[schedule])
            if shift.user_id == user.public_id
        ]
    found.sort(key=lambda own: (own.shift.starts_at, own.schedule.pk))
    return render_page(
        request,
        "on_call/shifts",
        shifts=found[:MOST_SHOWN],
        cut=len(found) > MOST_SHOWN,
        schedules=schedules,
        is_reachable=bool(selectors.contact_rules([user])[user]),
        tab="shifts",
    )
