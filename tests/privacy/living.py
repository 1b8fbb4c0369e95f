"""Somebody who has left behind all that one can."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from social_django.models import UserSocialAuth

from accounts.models import User
from alerts.models import DeliveryItem
from checks.agent_protocol import PROTOCOL
from checks.results.models import PackedReasons, PackedResults
from checks.results.partitions import PACKED, REASONS
from checks.spec import Verdict
from connectors.models import Import, OAuthState
from core.clock import utc_now
from incidents.models import Escalation, FlappingSpell
from incidents.services import acknowledge, comment, declare, resolve
from incidents.windows import create_window
from locations.services import create_location, join
from manifests.models import Upload
from monitors.heartbeats import services as heartbeats
from monitors.models import (
    BulkEdit,
    BulkEditItem,
    DailyUptime,
    Dependency,
    DnsAlert,
    DnsAnswer,
    DnsChange,
    ExpiryWarning,
    LocationFailure,
    MaintenanceSpan,
    Monitor,
    PingExcess,
    ScheduleSlots,
    Verification,
)
from monitors.recording import record
from oncall.models import AcknowledgeLink
from oncall.services import create_policy, create_schedule, set_contact
from projects.access import Caller
from projects.members import add_member
from statuspages.badges import create_badge
from statuspages.models import PageEvent, PageLogo, PageMail
from statuspages.services import create_note
from tests.api.client import Api
from tests.factories import ChannelFactory, ConnectorFactory, DeliveryFactory, MonitorFactory, ProjectFactory
from tests.helpers import PASSWORD, check_record, signal
from tests.second_factor import App
from tests.statuspages.making import make_page, make_subscriber
from tokens.services import sign_in

NEEDLE = "quux"  # of the address, and of the names of all that belongs to this account alone
EMAIL = f"ada.{NEEDLE}@example.com"
OLD = f"old.{NEEDLE}@example.com"


def live(ada: User, friend: User) -> Any:
    """Store a row of each table that belongs to accounts or projects, and what the account did in a friend's project.

    Return the account's project, the friend's, and the incident in the latter.
    """
    now, caller = utc_now(), Caller(ada)
    own, shared = (
        ProjectFactory(owner=ada, name=f"{NEEDLE} shop"),
        ProjectFactory(owner=friend, admin=ada, name="Ours"),
    )
    monitor = MonitorFactory(owner=ada, name=f"{NEEDLE} site", url=f"http://{NEEDLE}.example/", project=own)
    MonitorFactory(owner=ada, name=NEEDLE, request_headers=[{"name": "X-Key", "value": NEEDLE}])
    for claim, verdict in enumerate([Verdict.UP, Verdict.DOWN], start=1):
        record([check_record(monitor, claim=claim, verdict=verdict, at=now)], now=now)
    Import.objects.create(user=ada, provider="vercel", external_ref=NEEDLE, monitor=monitor)
    Upload.objects.create(user=ada, source="gatus", place={}, content={"monitors": [NEEDLE]}, created_at=now)
    edit = BulkEdit.objects.create(user=ada, created_at=now)
    BulkEditItem.objects.create(edit=edit, monitor=monitor, etag="", before={"name": NEEDLE})
    ConnectorFactory(user=ada, provider="netlify")
    OAuthState.objects.create(digest=b"state", user=ada, provider="vercel", expires_at=now, session={"who": NEEDLE})
    UserSocialAuth.objects.create(user=ada, provider="github", uid=NEEDLE)
    channel = ChannelFactory(owner=ada, name=NEEDLE, project=own, monitors="chosen", monitor_ids=[monitor.public_id])
    DeliveryFactory(channel=channel, monitor=monitor)
    heartbeat = MonitorFactory(owner=ada, heartbeat=True)
    assert heartbeats.record(signal(heartbeat.public_id, "fail", now=now, user_agent=NEEDLE, body=f"{NEEDLE} failed"))
    PingExcess.objects.create(monitor=heartbeat, at=now, allowed=60)
    _leave_in_monitor(monitor, now=now)
    here, soon = {"project_id": own.public_id}, now + timedelta(hours=1)
    window = here | {"name": NEEDLE, "starts_at": now, "ends_at": soon, "monitors": "chosen"}
    create_window(caller, window | {"monitor_ids": [monitor.public_id]}, now=now)
    page = make_page(ada, [monitor], **here, name=NEEDLE, slug=NEEDLE)
    PageLogo.objects.create(page=page, image=NEEDLE.encode(), width=1, height=1)
    create_note(caller, page.public_id, {"title": NEEDLE, "status": "investigating", "text": NEEDLE}, now=now)
    subscriber = make_subscriber(page, email=f"reader@{NEEDLE}.example")
    event = PageEvent.objects.create(page=page, kind="note", source=NEEDLE, title=NEEDLE, text=NEEDLE, at=now)
    PageMail.objects.create(event=event, subscriber=subscriber, next_try_at=now, give_up_at=now, last_error=NEEDLE)
    create_badge(caller, monitor.public_id, now=now)
    _, join_token = create_location(caller, here | {"name": NEEDLE}, now=now)
    join(token=join_token, name=NEEDLE, version="1.0", protocol=PROTOCOL, now=now)
    incident = declare(caller, here | {"title": NEEDLE, "text": NEEDLE}, now=now)
    layer = {"user_ids": [ada.public_id], "every": {"unit": "day", "count": 1}, "starts_at": 0}
    schedule = create_schedule(caller, here | {"name": NEEDLE, "layers": [layer]}, now=now)
    targets = [{"type": "user", "id": ada.public_id}, {"type": "schedule", "id": schedule.public_id}]
    steps = [{"after_min": 0, "targets": targets}]
    policy = create_policy(caller, here | {"name": NEEDLE, "steps": steps}, now=now)
    set_contact(caller, [])
    Escalation.objects.create(incident=incident, policy=policy)
    AcknowledgeLink.objects.create(digest=b"link", incident=incident, user=ada, expires_at=now)
    Api.with_token(ada, own)
    _leave_in_account(ada, now=now)

    # In the friend's project.
    there, people = {"project_id": shared.public_id, "name": "Ours"}, [ada.public_id, friend.public_id]
    create_schedule(Caller(friend), there | {"layers": [layer | {"user_ids": people}]}, now=now)
    create_policy(Caller(friend), there | {"steps": [{"after_min": 0, "targets": targets[:1]}]}, now=now)
    theirs = declare(Caller(friend), {"title": "Late", "text": "Late.", "project_id": shared.public_id}, now=now)
    acknowledge(caller, theirs.public_id, now=now)
    comment(caller, theirs.public_id, text="It is the cable.", now=now)
    resolve(caller, theirs.public_id, now=now)
    told = DeliveryFactory(channel=ChannelFactory(owner=friend))
    item = DeliveryItem.objects.get(delivery=told)
    item.payload["by"] = ada.email
    item.save(update_fields=["payload"])
    assert Api.with_token(ada, shared).post("/v1/monitors", {"type": "heartbeat"}).status == 201
    add_member(caller, shared.public_id, email="guest@example.com", role="member", now=now)
    add_member(Caller(friend), ProjectFactory(owner=friend).public_id, email=ada.email, role="member", now=now)
    return own, shared, theirs


def _leave_in_monitor(monitor: Monitor, *, now: datetime) -> None:
    address = f"192.0.2.1 {NEEDLE}"
    day = PACKED.bounds(now)
    with connection.cursor() as cursor:
        for series in (PACKED, REASONS):  # in the caller's transaction, as all else
            name = series.name(*day)
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {series.table} FOR VALUES FROM (%s) TO (%s)", day
            )
    PackedResults.objects.create(monitor_id=monitor.pk, start=day[0], count=1, verdicts=1, data=b"")
    PackedReasons.objects.create(monitor_id=monitor.pk, hour=day[0], reasons=b"")
    DailyUptime.objects.create(monitor=monitor, day=now.date(), observed_ms=5, down_ms=1, outages=1)
    DnsAnswer.objects.create(monitor=monitor, owner_id=monitor.owner_id, config_version=1, since=now, records=[address])
    DnsChange.objects.create(monitor=monitor, at=now, added=[address], removed=[], added_count=1, removed_count=0)
    Dependency.objects.create(child=monitor, parent=monitor, position=0)
    DnsAlert.objects.create(monitor=monitor, records=[address], due_at=now)
    ExpiryWarning.objects.create(monitor=monitor, subject="domain", expires_at=now, threshold_days=7, at=now)
    FlappingSpell.objects.create(monitor=monitor, started_at=now, last_change_at=now)
    MaintenanceSpan.objects.create(monitor=monitor, started_at=now - timedelta(days=1), ended_at=now)
    LocationFailure.objects.create(monitor=monitor, config_version=1, failures=1, since=now, detail=NEEDLE)
    Verification.objects.create(
        monitor=monitor, claim=1, config_version=1, began_at=now, ends_at=now, asked=["default"], outcome={}
    )
    ScheduleSlots.objects.create(monitor=monitor, schedule=NEEDLE, timezone="UTC", tzdata="", since=now, times=[now])


def _leave_in_account(ada: User, *, now: datetime) -> None:
    EmailConfirmation.objects.create(email_address=EmailAddress.objects.get(user=ada), key=NEEDLE)
    UserSession.objects.create(user=ada, ip="192.0.2.7", session_key=f"{NEEDLE} session", user_agent=NEEDLE)
    # Not by Django's cache of types, which would outlive the test.
    content_type, _ = ContentType.objects.get_or_create(app_label="auth", model="group")
    ada.groups.add(Group.objects.create(name="Helpers"))
    ada.user_permissions.add(Permission.objects.create(content_type=content_type, codename="help", name="Can help"))
    LogEntry.objects.create(user=ada, content_type=content_type, object_repr=NEEDLE, action_flag=CHANGE)
    sign_in(email=ada.email, password=PASSWORD, now=now)
    App(ada)
