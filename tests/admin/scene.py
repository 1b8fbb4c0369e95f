"""Some rows of every model that the admin shows, and the secrets in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group
from social_django.models import UserSocialAuth

from accounts.models import User
from alerts.models import AlertChannel
from audit.actions import Action
from audit.services import record
from checks.agent_protocol import PROTOCOL
from checks.results.models import CheckResult
from connectors.models import Connector, Import
from core.credentials import issue
from core.crypto import encrypt
from incidents.models import Escalation, FlappingSpell, Incident, IncidentEvent, MaintenanceWindow
from locations.models import JoinToken
from locations.services import create_location, join
from monitors.models import DnsChange, DomainRegistration, ExpiryWarning, Monitor
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from projects.access import Caller
from projects.models import Membership, Project
from statuspages.models import Badge, NoteUpdate, PageEvent, PageMail, PageNote, StatusPage, Subscriber
from tests.encrypted import stored_secrets
from tests.factories import (
    ChannelFactory,
    ConnectorFactory,
    DeliveryFactory,
    IncidentFactory,
    MonitorFactory,
    PingGapFactory,
    ProjectFactory,
    SchedulerGapFactory,
    StatusChangeFactory,
    UserFactory,
)
from tests.helpers import NOON
from tokens.models import Session
from tokens.services import create_token

SECRET = "a secret that is never shown"
BODY = "what is sent to the customer"


def furnish(count: int) -> list[str]:
    """Create `count` rows of each model. Return the secrets that no page may show."""
    hidden: list[str] = [SECRET, SECRET.replace(" ", "-"), BODY]
    for number in range(count):
        hidden += _one_of_each(number)
    return hidden + [stored.token for stored in stored_secrets()]


def _one_of_each(number: int) -> list[str]:
    owner = UserFactory()
    project = ProjectFactory(owner=owner, name=f"Shop {number}")
    given: dict[str, Any] = {"request_headers": [{"name": "Authorization", "value": SECRET}], "request_body": BODY}
    monitor = MonitorFactory(owner=owner, down=True, project=project, method="POST", name=f"Till {number}", **given)
    heartbeat = MonitorFactory(owner=owner, heartbeat=True, name=f"Backup {number}", interval_sec=300)
    token, plaintext = create_token(Caller(owner), project_id=project.public_id, name="CI", ttl_seconds=None, now=NOON)
    session_token, columns = issue("ses_")
    session = Session.objects.create(
        user=owner, password_hash="hash of a password", **columns,
        created_at=NOON, expires_at=NOON + timedelta(days=14),
    )  # fmt: skip
    browser = UserSession.objects.create(
        user=owner, ip="192.0.2.7", session_key=f"{number:03}sessionkeyofabrowser{number:03}", user_agent="Firefox"
    )
    Authenticator.objects.create(user=owner, type="totp", data={"secret": encrypt(SECRET)})
    social = UserSocialAuth.objects.create(user=owner, provider="github", uid=f"77{number}")
    incident = IncidentFactory(monitor=heartbeat, project=project, evidence={"body": SECRET})
    for _ in range(3):
        IncidentEvent.objects.create(incident=incident, type="confirmed", at=NOON, text="It is confirmed.")
    _around(owner, project, heartbeat, incident, number)
    location, join_token = create_location(Caller(owner), {"name": f"Office {number}"}, now=NOON)
    agent, credential = join(token=join_token, name=f"probe {number}", version="1.0", protocol=PROTOCOL, now=NOON)
    join_tokens = JoinToken.objects.filter(location=location).values_list("lookup", flat=True)
    badge = Badge.objects.create(monitor=monitor, key=f"bdg_key{number:03}", created_at=NOON)
    LogEntry.objects.log_actions(owner.pk, [monitor], CHANGE, change_message="Looked at.")
    record(Action.SIGN_IN_SUCCEEDED, actor=owner)
    Group.objects.create(name=f"Helpers {number}")
    assert social.pk
    return [
        plaintext, session_token, token.lookup, session.lookup, session.password_hash, browser.session_key,
        heartbeat.public_id, badge.key, owner.password, join_token, credential, agent.lookup, *join_tokens,
    ]  # fmt: skip


def _around(owner: User, project: Project, monitor: Monitor, incident: Incident, number: int) -> None:
    """Create the rows that belong to an account, a project, a monitor and its incident."""
    StatusChangeFactory(monitor=monitor, processed_at=NOON)
    ExpiryWarning.objects.create(
        monitor=monitor, subject="domain", expires_at=NOON, threshold_days=7, at=NOON, processed_at=NOON
    )
    DnsChange.objects.create(monitor=monitor, at=NOON, added=["192.0.2.1"], removed=[], added_count=1, removed_count=0)
    DomainRegistration.objects.create(name=f"shop{number}.example.com", next_lookup_at=NOON)
    SchedulerGapFactory()
    PingGapFactory()
    FlappingSpell.objects.create(monitor=monitor, started_at=NOON, last_change_at=NOON, ended_at=NOON)
    OnCallSchedule.objects.create(
        owner=owner, project=project, created_at=NOON, name=f"Backend {number}", time_zone="UTC", layers=[],
        calendar_digest=f"calendar {number:03}".encode(),
    )  # fmt: skip
    policy = EscalationPolicy.objects.create(
        owner=owner, project=project, created_at=NOON, name=f"Backend {number}", steps=[]
    )
    Contact.objects.create(user=owner, rules=[])
    Escalation.objects.create(incident=incident, policy=policy, next_at=NOON)
    window = MaintenanceWindow.objects.create(
        owner=owner, project=project, created_at=NOON, name="Update", starts_at=NOON, ends_at=NOON,
        all_monitors=False,
    )  # fmt: skip
    window.monitors.add(monitor)
    Membership.objects.create(
        project=project, role="member", created_at=NOON, invited_email=f"new{number}@example.com",
        invited_by=owner, invitation_digest=f"digest {number:03}".encode(), invited_until=NOON,
    )  # fmt: skip
    channel: AlertChannel = ChannelFactory(
        owner=owner, kind="webhook", url=f"https://hooks.example.com/{SECRET.replace(' ', '-')}", secret=SECRET,
        project=project, monitors="all",
    )  # fmt: skip
    DeliveryFactory(channel=channel, items=2, monitor=monitor).items.update(incident=incident)
    DeliveryFactory(channel=channel, dead=True)
    connector: Connector = ConnectorFactory(user=owner)
    Import.objects.create(user=connector.user, provider="vercel", external_ref=f"prj_{number}", monitor=monitor)
    page = StatusPage.objects.create(
        owner=owner, created_at=NOON, name="Shop", slug=f"shop-{number}", password_hash=SECRET
    )
    note = PageNote.objects.create(page=page, title="We look into it", created_at=NOON)
    NoteUpdate.objects.create(note=note, status="investigating", text="Soon more.", at=NOON)
    event = PageEvent.objects.create(page=page, kind="note", source="note 1", title="News", text="Soon more.", at=NOON)
    subscriber = Subscriber.objects.create(
        page=page, created_at=NOON, address=SECRET, address_digest=b"d" * 32, hint="a…@example.com"
    )
    PageMail.objects.create(event=event, subscriber=subscriber, state="dead", next_try_at=NOON, give_up_at=NOON)
    assert CheckResult.objects.exists()
