"""Admin actions on selected rows: they call services, notify, are logged, run once, and check permissions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from celery import current_app
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session as BrowserSession
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from kombu.exceptions import OperationalError
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import Plan, User
from accounts.services import create_account
from alerts.models import Delivery
from audit.models import Entry
from core.clock import utc_now
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.scheduling.backlog import queued
from monitors.services import create_monitor
from projects.access import Caller
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, PASSWORD, flush_broker, run_concurrently, state_of
from tokens.models import ProjectToken, Session
from tokens.services import caller_for, create_token, sign_in


def act(client: Client, model: type[Model], action: str, *rows: Model, **given: Any) -> str:
    """Run an action on rows. Return the message of the page, or nothing if the page asks for confirmation."""
    listing = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    client.cookies.pop("messages", None)  # messages that no page has shown yet
    answer = client.post(listing, {"action": action, "_selected_action": [row.pk for row in rows]} | given)
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))


def noted(model: type[Model]) -> list[tuple[str | None, int, str]]:
    rows = LogEntry.objects.filter(content_type__model=model._meta.model_name).order_by("pk")
    return list(rows.values_list("object_id", "action_flag", "change_message"))


def test_pausing_and_resuming(staff: Client) -> None:
    owner = UserFactory()
    running = [MonitorFactory(owner=owner, up=True) for _ in range(2)]
    paused = MonitorFactory(owner=owner, up=True)
    assert act(staff, Monitor, "pause", paused) == "1 monitor was paused."
    told = act(staff, Monitor, "pause", *running, paused)
    assert told == "2 monitors were paused. Not changed: 1 is already paused."
    assert set(Monitor.objects.values_list("enabled", "config_version")) == {(False, 2)}
    recorded = Entry.objects.filter(action="monitor.paused").values_list("actor_type", "subject_id", "details")
    pause = {"changes": [{"field": "enabled", "before": True, "after": False}]}
    assert list(recorded) == [("staff", owner.pk, pause)] * 3
    assert not MonitorState.objects.exclude(next_due_at=None).exists()
    assert StatusChange.objects.filter(kind="paused").count() == 3
    assert noted(Monitor) == [(str(row.pk), CHANGE, "Paused.") for row in (paused, *running)]
    assert act(staff, Monitor, "resume", *running) == "2 monitors were resumed."
    for monitor in running:
        state = state_of(monitor)
        assert (state.fresh, state.claimed_at) == (True, None)
        assert state.next_due_at is not None
        assert state.next_due_at <= utc_now()


def test_muting_asks_for_how_long(staff: Client) -> None:
    monitor = MonitorFactory()
    body = {"action": "mute", "_selected_action": [monitor.pk]}
    page = staff.post(reverse("admin:monitors_monitor_changelist"), body).content.decode()
    assert "for a day" in page
    assert monitor.name in page
    assert act(staff, Monitor, "mute", monitor, _asked=1, minutes=7) == ""
    assert act(staff, Monitor, "mute", monitor, _asked=1, minutes=60) == "1 monitor was muted for an hour."
    monitor.refresh_from_db()
    assert monitor.muted_until is not None
    assert timedelta(minutes=59) < monitor.muted_until - utc_now() <= timedelta(hours=1)
    assert act(staff, Monitor, "mute", monitor, _asked=1, minutes=0) == "1 monitor was unmuted."
    again = act(staff, Monitor, "mute", monitor, _asked=1, minutes=0)
    assert again == "0 monitors were unmuted. Not changed: 1 is not muted."


def test_checking_now(staff: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> None:
    flush_broker()
    owner = UserFactory()
    wanted = MonitorFactory(owner=owner, up=True)
    others = [MonitorFactory(owner=owner, type=kind, up=True) for kind in ("heartbeat", "scheduler")]
    paused = MonitorFactory(owner=owner, up=True)
    act(staff, Monitor, "pause", paused)
    before = state_of(wanted).claim
    with django_capture_on_commit_callbacks(execute=True):
        told = act(staff, Monitor, "check_now", wanted, paused, *others)
    assert told == (
        "1 monitor was scheduled for a check. Not changed: 1 is a heartbeat, which is not checked on demand; "
        "1 is a scheduler, which is not checked on demand; 1 is paused."
    )
    assert state_of(wanted).claim == before + 1
    assert queued("interactive") == 1
    with django_capture_on_commit_callbacks(execute=True):
        assert "1 is being checked already" in act(staff, Monitor, "check_now", wanted)
    assert queued("interactive") == 1
    flush_broker()


def test_checks_that_no_broker_takes_are_due(
    staff: Client, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any, **options: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(current_app, "send_task", gone)
    monitor = MonitorFactory(up=True)
    with django_capture_on_commit_callbacks(execute=True):
        act(staff, Monitor, "check_now", monitor)
    state = state_of(monitor)
    assert state.claimed_at is None
    assert state.next_due_at is not None
    assert state.next_due_at <= utc_now()


@pytest.mark.parametrize("action", ["pause", "resume", "check_now"])
def test_many_monitors_take_no_query_each(staff: Client, action: str) -> None:
    owner = UserFactory()
    monitors = [MonitorFactory(owner=owner, up=True) for _ in range(12)]
    if action == "resume":
        act(staff, Monitor, "pause", *monitors)

    def queries(*rows: Monitor) -> int:
        with CaptureQueriesContext(connection) as captured:
            act(staff, Monitor, action, *rows)
        return len(captured)

    queries(monitors[0])
    assert queries(*monitors[4:]) == queries(*monitors[1:3])


def test_tokens_and_sessions_end_and_say_nothing_of_themselves(staff: Client) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner)
    now = utc_now()
    token, plaintext = create_token(Caller(owner), project_id=project.public_id, name="CI", ttl_seconds=None, now=now)
    session, secret = sign_in(email=owner.email, password=PASSWORD, now=now)
    assert act(staff, ProjectToken, "revoke", token) == "1 project token was revoked."
    assert act(staff, Session, "end", session) == "1 session was ended."
    assert caller_for(plaintext, now=now) is None
    assert caller_for(secret, now=now) is None
    for entry in LogEntry.objects.all():
        assert token.lookup not in entry.object_repr
        assert session.lookup not in entry.object_repr
    assert noted(ProjectToken) == [(str(token.pk), DELETION, "Revoked.")]
    recorded = Entry.objects.filter(actor_type="staff").values_list("action", "subject_id", "target_id")
    assert set(recorded) == {
        ("token.revoked", owner.pk, token.public_id),
        ("session.revoked", owner.pk, session.public_id),
    }


def test_a_browser_is_signed_out(staff: Client) -> None:
    owner = UserFactory()
    browser = Client()
    browser.force_login(owner)
    row = UserSession.objects.create(
        user=owner, ip="192.0.2.7", session_key=browser.session.session_key, user_agent="Firefox"
    )
    assert act(staff, UserSession, "end", row) == "1 user session was ended."
    assert not UserSession.objects.filter(pk=row.pk).exists()
    assert not BrowserSession.objects.filter(session_key=row.session_key).exists()
    assert LogEntry.objects.get().object_repr == f"a browser of {owner.public_id}", "without its address"


def test_dead_deliveries_go_out_again_once(staff: Client) -> None:
    channel = ChannelFactory()
    dead = DeliveryFactory(channel=channel, dead=True)
    sent = DeliveryFactory(channel=channel, sent=True)
    told = act(staff, Delivery, "replay", dead, sent)
    assert told == "1 delivery was queued again. Not changed: 1 is sent or still being retried."
    assert act(staff, Delivery, "replay", dead).startswith("0 ")
    dead.refresh_from_db()
    assert dead.state == Delivery.State.WAITING


def test_another_plan_slows_down_what_is_too_fast_for_it(staff: Client) -> None:
    owner, other = UserFactory(), UserFactory(plan__name="free")
    fast = MonitorFactory(owner=owner, up=True, interval_sec=60)
    slow = MonitorFactory(owner=owner, up=True, interval_sec=3600)
    heartbeat = MonitorFactory(owner=owner, heartbeat=True, interval_sec=60, grace_sec=30)
    MonitorState.objects.filter(pk=heartbeat.pk).update(
        last_ping_at=NOON, status="up", fresh=False, next_due_at=NOON + timedelta(seconds=90)
    )
    free = Plan.objects.get(name="free")
    Plan.objects.filter(pk=free.pk).update(monitor_limit=2)
    told = act(staff, User, "put_on_plan", owner, other, _asked=1, plan=free.pk)
    assert told == (
        "1 user was moved to plan free. Not changed: 1 is already on plan free. "
        "Over the limit of 2 monitors of plan free: 1. Their monitors stay."
    )
    intervals = dict(Monitor.objects.values_list("pk", "interval_sec"))
    assert intervals == {fast.pk: 300, slow.pk: 3600, heartbeat.pk: 300}
    assert state_of(heartbeat).next_due_at == NOON + timedelta(seconds=330)
    assert noted(User) == [(str(owner.pk), CHANGE, "Moved to plan free.")]
    assert Entry.objects.filter(action="plan.changed", subject_id=owner.pk).count() == 1


def test_the_form_of_an_account_changes_the_plan_in_the_same_way(staff: Client) -> None:
    owner = UserFactory()
    monitor = MonitorFactory(owner=owner, interval_sec=60)
    free = Plan.objects.get_or_create(name="free", defaults={"min_interval_sec": 300, "monitor_limit": 50})[0]
    body = {"email": owner.email, "plan": free.pk, "is_active": "on"}
    assert staff.post(reverse("admin:accounts_user_change", args=[owner.pk]), body).status_code == 302
    owner.refresh_from_db()
    monitor.refresh_from_db()
    assert (owner.plan, monitor.interval_sec) == (free, 300)
    assert owner.check_password(PASSWORD)


def test_staff_who_may_only_view_have_no_actions(with_rights: Callable[..., Client]) -> None:
    monitor = MonitorFactory(up=True)
    looking = with_rights("monitors.view_monitor")
    page = looking.get(reverse("admin:monitors_monitor_change", args=[monitor.pk])).content.decode()
    assert monitor.name in page
    assert 'value="pause"' not in page
    act(looking, Monitor, "pause", monitor)
    monitor.refresh_from_db()
    assert monitor.enabled
    acting = with_rights("monitors.view_monitor", "monitors.change_monitor")
    assert act(acting, Monitor, "pause", monitor) == "1 monitor was paused."


def test_rights_are_given_by_superusers_alone(with_rights: Callable[..., Client]) -> None:
    helping = with_rights("accounts.view_user", "accounts.change_user")
    boss = create_account(email="boss@example.com", password=PASSWORD, is_staff=True, is_superuser=True)
    customer = UserFactory()
    body = {"email": customer.email, "plan": customer.plan_id, "is_active": "on", "is_superuser": "on"}
    address = reverse("admin:accounts_user_change", args=[customer.pk])
    assert helping.post(address, body | {"is_staff": "on"}).status_code == 302
    customer.refresh_from_db()
    assert (customer.is_staff, customer.is_superuser) == (False, False)
    for name in ("admin:accounts_user_change", "admin:auth_user_password_change"):
        taken = helping.post(reverse(name, args=[boss.pk]), {"email": "mine@example.com", "plan": boss.plan_id})
        assert taken.status_code == 403


def test_too_many_at_once_are_refused(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from core import staff as core_staff

    monkeypatch.setattr(core_staff, "MOST_LISTED", 2)
    owner = UserFactory()
    monitors = [MonitorFactory(owner=owner) for _ in range(3)]
    told = act(staff, Monitor, "pause", monitors[0], select_across=1)
    assert "Nothing was done" in told
    assert not Monitor.objects.filter(enabled=False).exists()


@pytest.mark.django_db(transaction=True)
def test_no_monitor_slips_past_a_change_of_plan() -> None:
    from accounts.services import change_plan

    owner = UserFactory()
    UserFactory(plan__name="free")
    free = Plan.objects.get(name="free")
    caller = Caller(User.objects.select_related("plan").get(pk=owner.pk))
    given = {"url": "http://127.0.0.1:9/", "interval_sec": 60}
    run_concurrently(
        lambda: change_plan([owner.pk], free),
        *[lambda: create_monitor(caller, dict(given), now=utc_now()) for _ in range(4)],
    )
    assert set(Monitor.objects.values_list("interval_sec", flat=True)) <= {300}
