"""Stored windows: which monitors they cover, how they advance, and concurrent changes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import utc_now
from core.errors import ApiError, NotFound, ValidationFailed, WindowLimit
from incidents import windows
from incidents.models import MaintenanceWindow
from incidents.windows import covered, create_window, delete_window, note_maintenance, roll_forward, update_window
from monitors.models import MaintenanceSpan, Monitor
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership, Project
from projects.services import delete_project
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, minutes, run_concurrently

HOUR = timedelta(hours=1)


def make_window(
    owner: User,
    *,
    project: Project | None = None,
    chosen: list[Monitor] | None = None,
    now: datetime = NOON,
    **given: Any,
) -> MaintenanceWindow:
    """Create a window, by default once from NOON to 13:00 over all monitors."""
    fields = {"name": "Update", "starts_at": NOON, "ends_at": NOON + HOUR} | given
    fields |= {"monitors": "all" if chosen is None else "chosen"}
    fields |= {"monitor_ids": [monitor.public_id for monitor in chosen or ()]}
    fields |= {"project_id": project.public_id if project else None}
    return create_window(Caller(owner), fields, now=now)


def noted(monitor: Monitor) -> list[tuple[datetime, datetime]]:
    spans = MaintenanceSpan.objects.filter(monitor=monitor).order_by("started_at")
    return list(spans.values_list("started_at", "ended_at"))


def is_covered(monitor: Monitor, at: datetime = NOON) -> bool:
    return covered([monitor.pk], at) == {monitor.pk}


@pytest.mark.django_db
class TestCover:
    def test_from_the_first_moment_until_before_the_last(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        make_window(owner, now=NOON - HOUR)
        moment = timedelta(milliseconds=1)
        assert [
            is_covered(monitor, at) for at in (NOON - moment, NOON, NOON + HOUR - moment, NOON + HOUR, NOON + 2 * HOUR)
        ] == [False, True, True, False, False]

    def test_a_personal_window_over_all_covers_what_its_owner_owns(self) -> None:
        owner, friend = UserFactory(), UserFactory()
        project, theirs = (ProjectFactory(owner=owner, member=friend), ProjectFactory(owner=friend, member=owner))
        mine, ours = MonitorFactory(owner=owner), MonitorFactory(owner=owner, project=project)
        foreign = MonitorFactory(owner=friend), MonitorFactory(owner=friend, project=theirs)
        make_window(owner)
        assert covered([m.pk for m in (mine, ours, *foreign)], NOON) == {mine.pk, ours.pk}
        assert covered([mine.pk], NOON) == {mine.pk}, "of those that are asked for"
        assert covered([], NOON) == set()

    def test_a_window_of_a_project_covers_what_is_in_it(self) -> None:
        owner = UserFactory()
        project, other = ProjectFactory(owner=owner), ProjectFactory(owner=owner)
        inside = MonitorFactory(owner=owner, project=project)
        outside = MonitorFactory(owner=owner), MonitorFactory(owner=owner, project=other)
        make_window(owner, project=project)
        assert covered([m.pk for m in (inside, *outside)], NOON) == {inside.pk}
        update_monitor(Caller(owner), inside.public_id, {"project_id": other.public_id}, now=NOON)
        update_monitor(Caller(owner), outside[0].public_id, {"project_id": project.public_id}, now=NOON)
        assert covered([m.pk for m in (inside, *outside)], NOON) == {outside[0].pk}

    def test_chosen_ones_of_a_project_while_they_are_in_it(self) -> None:
        owner = UserFactory()
        project = ProjectFactory(owner=owner)
        chosen = MonitorFactory(owner=owner, project=project)
        rest = MonitorFactory(owner=owner, project=project)
        make_window(owner, project=project, chosen=[chosen])
        assert covered([chosen.pk, rest.pk], NOON) == {chosen.pk}
        update_monitor(Caller(owner), chosen.public_id, {"project_id": None}, now=NOON)
        assert not is_covered(chosen)

    def test_chosen_ones_of_a_person_while_he_has_access(self) -> None:
        owner, friend = UserFactory(), UserFactory()
        project = ProjectFactory(owner=owner, member=friend)
        own, shared = MonitorFactory(owner=friend), MonitorFactory(owner=owner, project=project)
        make_window(friend, chosen=[own, shared])
        assert covered([own.pk, shared.pk], NOON) == {own.pk, shared.pk}
        Membership.objects.get(project=project, user=friend).delete()
        assert covered([own.pk, shared.pk], NOON) == {own.pk}
        update_monitor(Caller(owner), shared.public_id, {"project_id": None}, now=NOON)
        assert covered([own.pk, shared.pk], NOON) == {own.pk}

    def test_one_query_however_many(self) -> None:
        owner = UserFactory()
        project = ProjectFactory(owner=owner)
        monitors = [MonitorFactory(owner=owner, project=project) for _ in range(5)]
        for monitor in monitors:
            make_window(owner, chosen=[monitor])
            make_window(owner, project=project)
        with CaptureQueriesContext(connection) as captured:
            assert covered([m.pk for m in monitors], NOON) == {m.pk for m in monitors}
        assert len(captured) == 1


@pytest.mark.django_db
class TestLeftOut:
    """Daily uptime excludes the monitors that were covered at that time."""

    def test_each_monitor_once_and_no_longer_than_its_window(self) -> None:
        owner = UserFactory()
        monitor, other, foreign = (MonitorFactory(owner=owner), MonitorFactory(owner=owner), MonitorFactory())
        everything = make_window(owner, now=NOON - HOUR)
        make_window(owner, chosen=[monitor], now=NOON - HOUR, ends_at=NOON + 3 * HOUR)
        for minute in (-1, 0, 1, 20):
            note_maintenance(NOON + minutes(minute))
        assert noted(other) == [(NOON, NOON + HOUR)]
        assert noted(monitor) == [(NOON, NOON + 3 * HOUR)]
        assert noted(foreign) == []
        longer = {"ends_at": NOON + 4 * HOUR}
        update_window(Caller(owner), everything.public_id, longer, now=NOON + minutes(30))
        note_maintenance(NOON + minutes(31))
        assert noted(monitor) == noted(other) == [(NOON, NOON + 4 * HOUR)]
        delete_window(Caller(owner), everything.public_id)
        note_maintenance(NOON + 2 * HOUR)
        assert noted(other) == [(NOON, NOON + 2 * HOUR)], "it was under maintenance until the window was deleted"
        assert noted(monitor) == [(NOON, NOON + 3 * HOUR)]

    def test_what_is_over_stays(self) -> None:
        owner = UserFactory()
        monitor, project = MonitorFactory(owner=owner), ProjectFactory(owner=owner)
        window = make_window(owner, now=NOON - HOUR, rrule="FREQ=DAILY;COUNT=3")
        for day in range(2):
            at = NOON + timedelta(days=day)
            roll_forward(at)
            note_maintenance(at + minutes(1))
            note_maintenance(at + HOUR)
        both = [(NOON + timedelta(days=day), NOON + timedelta(days=day) + HOUR) for day in range(2)]
        assert noted(monitor) == both
        later = NOON + timedelta(days=1, hours=2)
        update_monitor(Caller(owner), monitor.public_id, {"project_id": project.public_id}, now=later)
        delete_window(Caller(owner), window.public_id)
        note_maintenance(later)
        assert noted(monitor) == both

    def test_as_many_queries_however_many_monitors_and_nothing_written_twice(self) -> None:
        owner = UserFactory()
        make_window(owner, now=NOON - HOUR)

        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                note_maintenance(NOON)
            return len(captured)

        for _ in range(3):
            MonitorFactory(owner=owner)
        first = queries()
        again = queries()
        for _ in range(9):
            MonitorFactory(owner=owner)
        assert (queries(), queries()) == (first, again)
        assert again == first - 1, "what is noted already is not written again"


@pytest.mark.django_db
class TestRolling:
    def test_to_the_next_one_and_at_last_to_none(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        window = make_window(owner, rrule="FREQ=DAILY;COUNT=3")
        day, seen = timedelta(days=1), []
        for at in (NOON, NOON + HOUR, NOON + day, NOON + day + HOUR, NOON + 2 * day, NOON + 2 * day + HOUR):
            rolled = roll_forward(at)
            window.refresh_from_db()
            seen.append((rolled, window.current_starts_at, is_covered(monitor, at)))
        assert seen == [
            (0, NOON, True),
            (1, NOON + day, False),
            (0, NOON + day, True),
            (1, NOON + 2 * day, False),
            (0, NOON + 2 * day, True),
            (1, None, False),
        ]
        assert window.current_ends_at is None
        assert roll_forward(NOON + 9 * day) == 0

    def test_one_that_does_not_end_years_later(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        window = make_window(owner, rrule="FREQ=WEEKLY")
        at = NOON + timedelta(weeks=52 * 30)
        assert (roll_forward(at), is_covered(monitor, at)) == (1, True)
        assert roll_forward(at + HOUR) == 1
        window.refresh_from_db()
        assert window.current_starts_at == at + timedelta(weeks=1)
        coming = list(windows.upcoming(window, now=at + HOUR, until=at + timedelta(weeks=3)))
        assert [found.starts_at for found in coming] == [at + timedelta(weeks=1), at + timedelta(weeks=2)]

    def test_late_by_days_in_the_midst_of_another_occurrence(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        make_window(owner, rrule="FREQ=DAILY;COUNT=30")
        at = NOON + timedelta(days=20, minutes=30)
        assert not is_covered(monitor, at), "the occurrence that is over says nothing of now"
        assert roll_forward(at) == 1
        assert is_covered(monitor, at)

    def test_one_that_begins_when_the_one_before_ends(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        make_window(owner, ends_at=NOON + timedelta(days=1), rrule="FREQ=DAILY;COUNT=3")
        at = NOON + timedelta(days=1)
        assert (roll_forward(at), is_covered(monitor, at)) == (1, True)
        assert is_covered(monitor, at - timedelta.resolution), "for a process with an older time"

    def test_by_the_clock_over_a_switch(self) -> None:
        owner = UserFactory()
        monitor = MonitorFactory(owner=owner)
        start = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)  # 02:30 in Berlin
        make_window(owner, starts_at=start, ends_at=start + HOUR, rrule="FREQ=DAILY;COUNT=3", time_zone="Europe/Berlin")
        on = []
        for quarter in range(3 * 24 * 4):
            at = start + timedelta(minutes=15 * quarter)
            roll_forward(at)
            if is_covered(monitor, at):
                on.append(f"{at:%d %H:%M}")
        assert on == [
            *("28 01:30", "28 01:45", "28 02:00", "28 02:15"),
            *("29 01:30", "29 01:45", "29 02:00", "29 02:15"),
            *("30 00:30", "30 00:45", "30 01:00", "30 01:15"),
        ]

    def test_more_than_one_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "ROLLED_AT_ONCE", 2)
        owner = UserFactory()
        for _ in range(5):
            make_window(owner)
        assert roll_forward(NOON + HOUR) == 5
        assert not MaintenanceWindow.objects.exclude(current_ends_at=None).exists()

    def test_one_that_can_no_longer_be_read_does_not_stop_the_rest(self, caplog: pytest.LogCaptureFixture) -> None:
        owner = UserFactory()
        odd, gone, fine = (make_window(owner, rrule="FREQ=DAILY;COUNT=3") for _ in range(3))
        MaintenanceWindow.objects.filter(pk=odd.pk).update(rrule="FREQ=OFTEN")
        MaintenanceWindow.objects.filter(pk=gone.pk).update(time_zone="Europe/Atlantis")
        with caplog.at_level(logging.ERROR):
            assert roll_forward(NOON + HOUR) == 3
        assert (odd.public_id in caplog.text, gone.public_id in caplog.text) == (True, True)
        fine.refresh_from_db()
        assert fine.current_starts_at == NOON + timedelta(days=1)


@pytest.mark.django_db
def test_what_is_over_may_be_renamed_but_not_moved_into_the_past() -> None:
    owner = UserFactory()
    window, later = make_window(owner), NOON + timedelta(days=3)
    renamed = update_window(Caller(owner), window.public_id, {"name": "New"}, now=later)
    assert renamed.name == "New"
    with pytest.raises(ValidationFailed, match="ends_at: is in the past"):
        update_window(Caller(owner), window.public_id, {"ends_at": NOON + 2 * HOUR}, now=later)
    moved = update_window(Caller(owner), window.public_id, {"ends_at": later + HOUR}, now=later)
    assert (moved.current_starts_at, moved.current_ends_at) == (NOON, later + HOUR)


@pytest.mark.django_db(transaction=True)
def test_the_cap_holds_under_concurrent_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOWS", 3)
    owner = UserFactory()
    outcomes = run_concurrently(*[lambda: make_window(owner)] * 6)
    assert sum(isinstance(outcome, MaintenanceWindow) for outcome in outcomes) == 3
    refused = [outcome for outcome in outcomes if isinstance(outcome, WindowLimit)]
    assert [error.limit for error in refused] == [3, 3, 3]


@pytest.mark.django_db(transaction=True)
def test_a_project_or_a_monitor_deleted_while_windows_are_made_over_it() -> None:
    owner = UserFactory()
    caller = Caller(owner)

    def race() -> None:
        project = ProjectFactory(owner=owner)
        monitor = MonitorFactory(owner=owner, project=project)
        doomed = MonitorFactory(owner=owner, project=project)
        there = make_window(owner, project=project, chosen=[monitor, doomed])
        patch = {"name": "New", "monitor_ids": [doomed.public_id]}
        outcomes = run_concurrently(
            lambda: delete_project(caller, project.public_id),
            lambda: delete_monitor(caller, doomed.public_id),
            lambda: make_window(owner, project=project, chosen=[monitor, doomed]),
            lambda: make_window(owner, chosen=[doomed]),
            lambda: update_window(caller, there.public_id, patch, now=NOON),
            lambda: delete_window(caller, there.public_id),
            lambda: roll_forward(NOON + HOUR),
        )
        assert outcomes[:2] == [None, None]
        for outcome in outcomes[2:]:
            if isinstance(outcome, ApiError):
                assert isinstance(outcome, ValidationFailed | NotFound), outcome
        assert not MaintenanceWindow.objects.filter(project__isnull=False).exists()
        assert not MaintenanceWindow.objects.filter(monitors=doomed.pk).exists()

    for _ in range(8):
        race()


@pytest.mark.django_db(transaction=True)
def test_a_member_removed_while_he_makes_a_window() -> None:
    owner, friend = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner)

    def race() -> None:
        place = MembershipFactory(project=project, user=friend, role="member")
        made, removed = run_concurrently(
            lambda: make_window(friend, project=project),
            lambda: remove_member(Caller(owner), project.public_id, place.public_id, now=utc_now()),
        )
        assert removed is None
        assert isinstance(made, MaintenanceWindow | ValidationFailed)
        assert not MaintenanceWindow.objects.filter(owner=friend).exists(), "it is the owner's account"

    for _ in range(4):
        race()


@pytest.mark.django_db(transaction=True)
def test_two_who_move_windows_on_at_once_both_find_them_moved() -> None:
    owner = UserFactory()
    monitor = MonitorFactory(owner=owner)
    make_window(owner, ends_at=NOON + timedelta(days=1), rrule="FREQ=DAILY;COUNT=30")
    for day in range(1, 12):
        at = NOON + timedelta(days=day)

        def roll_and_look(at: datetime = at) -> set[int]:
            roll_forward(at)
            return covered([monitor.pk], at)

        assert run_concurrently(*[roll_and_look] * 4) == [{monitor.pk}] * 4
