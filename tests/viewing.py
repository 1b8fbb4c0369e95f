"""A project with everything that may reveal the id of a heartbeat or the destination of a channel, and its viewer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from accounts.models import User
from alerts.events import Topic
from alerts.models import AlertChannel
from checks.spec import ReasonCode
from core.clock import utc_now
from core.ids import derived_id
from incidents.models import Incident, IncidentEvent
from incidents.services import declare
from incidents.windows import create_window
from locations.services import create_location
from monitors.heartbeats import services as heartbeats
from monitors.models import READING_PREFIX, Dependency, Monitor
from monitors.services import update_monitor
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.models import Project
from statuspages.badges import create_badge
from statuspages.models import StatusPage
from statuspages.services import create_note
from tests.factories import (
    ChannelFactory,
    DeliveryFactory,
    IncidentFactory,
    MembershipFactory,
    MonitorFactory,
    ProjectFactory,
    UserFactory,
)
from tests.helpers import signal
from tests.statuspages.making import make_page, make_subscriber

HINT = "o…@"


@dataclass(frozen=True)
class Viewing:
    owner: User
    viewer: User
    project: Project
    heartbeat: Monitor
    site: Monitor
    """It depends on the heartbeat, whose outage holds its alerts."""
    channel: AlertChannel
    own_channel: AlertChannel
    """A personal one of the viewer, with the heartbeat selected."""
    page: StatusPage
    incident: Incident
    deleted: str
    """The id of a heartbeat that was deleted after an outage."""

    def beside(self) -> Project:
        """Return another project of the owner, with the viewer as a member."""
        project = ProjectFactory(owner=self.owner, name="Beside")
        MembershipFactory(project=project, user=self.viewer, role="member")
        return project

    @property
    def deleted_reading_id(self) -> str:
        return derived_id(READING_PREFIX, self.deleted)

    @property
    def secrets(self) -> set[str]:
        return {self.heartbeat.public_id, self.deleted}


def make_viewing() -> Viewing:
    now = utc_now()
    owner, viewer = UserFactory(email="olga@shop.example"), UserFactory()
    project = ProjectFactory(owner=owner)
    MembershipFactory(project=project, user=viewer, role="viewer", created_at=now)
    here = {"project_id": project.public_id}
    heartbeat = MonitorFactory(project=project, heartbeat=True, name="Backup", tags=["nightly"])
    for word in ("start", "fail"):
        assert heartbeats.record(signal(heartbeat.public_id, word, now=now, body="it failed"))
    site = MonitorFactory(project=project, up=True, name="Site", created_at=now)
    Dependency.objects.create(child=site, parent=heartbeat, position=0)
    MonitorFactory(owner=viewer, name="Own site", created_at=now)
    gone = MonitorFactory(project=project, heartbeat=True, name="Old job")
    reason = ReasonCode.HEARTBEAT_MISSED
    past = IncidentFactory(monitor=gone, reason_code=reason, recovered=True)
    Monitor.objects.filter(pk=gone.pk).delete()
    Incident.objects.filter(pk=past.pk).update(monitor=None)
    incident = IncidentFactory(monitor=heartbeat, reason_code=reason, started_at=now)
    IncidentFactory(monitor=site, started_at=now, caused_by=incident, quiet=Incident.Quiet.HELD)
    chosen = {"monitors": "chosen", "monitor_ids": [heartbeat.public_id]}
    channel = ChannelFactory(owner=owner, project=project, kind="email", address=owner.email, **chosen)
    IncidentEvent.objects.create(
        incident=incident,
        type=IncidentEvent.Type.ALERT_SENT,
        at=now,
        text=f"Alert delivered to {channel}.",
        data={"channel_id": channel.public_id},
    )
    topics = [topic.value for topic in Topic]
    own = ChannelFactory(owner=viewer, name="Mine", topics=topics, **chosen)
    for each in (channel, own):
        DeliveryFactory(channel=each, monitor=heartbeat, dead=True, created_at=now)
    times = {"starts_at": now - timedelta(hours=1), "ends_at": now + timedelta(hours=1), "name": "Upgrade"}
    create_window(Caller(owner), times | here | chosen, now=now - timedelta(hours=2))
    layer = {"user_ids": [viewer.public_id], "every": {"unit": "day", "count": 1}, "starts_at": 0}
    schedule = create_schedule(Caller(owner), here | {"name": "Backup", "layers": [layer]}, now=now)
    targets = [{"type": "schedule", "id": schedule.public_id}, {"type": "channel", "id": channel.public_id}]
    steps = [{"after_min": 0, "targets": targets}]
    policy = create_policy(Caller(owner), here | {"name": "Backup", "steps": steps}, now=now)
    update_monitor(Caller(owner), site.public_id, {"escalation_policy_id": policy.public_id}, now=now)
    page = make_page(owner, [heartbeat, site], **here, custom_domain=None)
    create_note(
        Caller(owner), page.public_id, {"title": "Late", "status": "investigating", "text": "We look."}, now=now
    )
    make_subscriber(page)
    create_badge(Caller(owner), heartbeat.public_id, now=now)
    declare(Caller(owner), here | {"title": "Slow", "text": "All is slow."}, now=now)
    create_location(Caller(owner), here | {"name": "Office"}, now=now)
    return Viewing(owner, viewer, project, heartbeat, site, channel, own, page, incident, gone.public_id)
