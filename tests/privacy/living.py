"""Somebody who has left behind all that one can."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from social_django.models import UserSocialAuth

from accounts.models import User
from alerts.models import DeliveryItem
from checks.spec import Verdict
from connectors.models import Import, OAuthState
from core.clock import utc_now
from incidents.services import acknowledge, comment, declare, resolve
from incidents.windows import create_window
from manifests.models import Upload
from monitors.heartbeats import signals
from monitors.models import DnsChange, PingExcess
from monitors.recording import record
from projects.access import Caller
from projects.members import add_member
from statuspages.badges import create_badge
from statuspages.services import create_note
from tests.api.client import Api
from tests.factories import ChannelFactory, ConnectorFactory, DeliveryFactory, MonitorFactory, ProjectFactory
from tests.helpers import check_record, signal
from tests.second_factor import App
from tests.statuspages.making import make_page, make_subscriber

NEEDLE = "quux"  # of her address, and of the names of all that is hers alone
EMAIL = f"ada.{NEEDLE}@example.com"
OLD = f"old.{NEEDLE}@example.com"


def live(ada: User, friend: User) -> Any:
    """All that somebody can leave behind, in her own place and in a friend's project; the project."""
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
    ConnectorFactory(user=ada, provider="netlify")
    OAuthState.objects.create(digest=b"state", user=ada, provider="vercel", expires_at=now, session={"who": NEEDLE})
    UserSocialAuth.objects.create(user=ada, provider="github", uid=NEEDLE)
    channel = ChannelFactory(owner=ada, name=NEEDLE)
    DeliveryFactory(channel=channel, monitor=monitor)
    DnsChange.objects.create(
        monitor=monitor, at=now, added=[f"192.0.2.1 {NEEDLE}"], removed=[], added_count=1, removed_count=0
    )
    heartbeat = MonitorFactory(owner=ada, heartbeat=True)
    assert signals.record(signal(heartbeat.public_id, "fail", now=now, user_agent=NEEDLE, body=f"{NEEDLE} failed"))
    PingExcess.objects.create(monitor=heartbeat, at=now, allowed=60)
    window = {"name": NEEDLE, "starts_at": now, "ends_at": now + timedelta(hours=1), "monitors": "all"}
    create_window(caller, window, now=now)
    page = make_page(ada, [monitor], name=NEEDLE, slug=NEEDLE)
    create_note(caller, page.public_id, {"title": NEEDLE, "status": "investigating", "text": NEEDLE}, now=now)
    make_subscriber(page, email=f"reader@{NEEDLE}.example")
    create_badge(caller, monitor.public_id, now=now)
    declare(caller, {"title": NEEDLE, "text": NEEDLE, "project_id": own.public_id}, now=now)
    App(ada)

    # In the friend's project.
    theirs = declare(Caller(friend), {"title": "Late", "text": "Late.", "project_id": shared.public_id}, now=now)
    acknowledge(caller, theirs.public_id, now=now)
    comment(caller, theirs.public_id, text="It is the cable.", now=now)
    resolve(caller, theirs.public_id, now=now)
    told = DeliveryFactory(channel=ChannelFactory(owner=friend))
    item = DeliveryItem.objects.get(delivery=told)
    item.payload["by"] = EMAIL
    item.save(update_fields=["payload"])
    assert Api.with_token(ada, shared).post("/v1/monitors", {"type": "heartbeat"}).status == 201
    add_member(caller, shared.public_id, email="guest@example.com", role="member", now=now)
    add_member(Caller(friend), ProjectFactory(owner=friend).public_id, email=EMAIL, role="member", now=now)
    return own, shared, theirs
