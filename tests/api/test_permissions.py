"""Every route and method of /v1 times every kind of caller. A route without a row fails the suite."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import User
from checks.agent_protocol import PROTOCOL
from core import replies
from core.clock import from_ms, to_ms, utc_now
from incidents.services import declare
from incidents.windows import create_window
from locations.services import create_location, issue_join_token, join
from monitors.check_ids import CheckIds
from monitors.services import FIRST_CLAIM
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.models import Project
from statuspages.badges import create_badge
from statuspages.services import create_note
from tests.api.client import Api
from tests.factories import (
    ChannelFactory,
    ConnectorFactory,
    DeliveryFactory,
    MembershipFactory,
    MonitorFactory,
    ProjectFactory,
    UserFactory,
)
from tests.helpers import NOON, PASSWORD
from tests.ownership import all_models, rows_of, untested
from tests.privacy.living import live
from tests.statuspages.making import make_page, make_subscriber, picture
from tokens.models import ProjectToken, Session
from tokens.services import create_token

pytestmark = pytest.mark.django_db

# Callers without a valid credential get 401 except on public routes.
NOBODY = ("no token", "garbage", "expired token", "expired session", "revoked token", "signed out")
# The columns of the table. `token` is a token of the project that everything in it belongs to, `reader` one that only
# reads, `other` one of another project of the same owner; `stranger` is signed in and has no role.
SOMEBODY = ("owner", "admin", "member", "viewer", "stranger", "token", "reader", "other")

ANYBODY = "the public"

# fmt: off
TABLE: dict[tuple[str, str], tuple[int, ...] | tuple[str, int]] = {
    #                                                     owner admin member viewer stranger token reader other
    ("GET",    "/v1/monitors"):                            (200, 200, 200, 200, 200, 200, 200, 200),
    ("PATCH",  "/v1/monitors"):                            (200, 200, 200, 200, 200, 200, 403, 200),  # those they may
    ("POST",   "/v1/monitors"):                            (201, 201, 201, 403, 422, 201, 403, 422),
    ("POST",   "/v1/monitors/test"):                       (503, 503, 503, 403, 422, 503, 403, 422),  # no worker here
    ("GET",    "/v1/monitors/{monitor_id}"):               (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/monitors/{monitor_id}"):               (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/monitors/{monitor_id}/copy"):          (201, 201, 201, 403, 404, 201, 403, 404),
    ("DELETE", "/v1/monitors/{monitor_id}"):               (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/monitors/{monitor_id}/mute"):          (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/monitors/{monitor_id}/checks"):        (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/monitors/{monitor_id}/checks"):        (503, 503, 503, 403, 404, 503, 403, 404),  # no worker here
    ("GET",    "/v1/monitors/{monitor_id}/checks/{check_id}"): (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/monitors/{monitor_id}/backtest"):      (200, 200, 200, 200, 404, 200, 200, 404),  # it only reads
    ("GET",    "/v1/monitors/{monitor_id}/dns-changes"):   (200, 200, 200, 200, 404, 200, 200, 404),
    ("GET",    "/v1/monitors/{monitor_id}/uptime"):        (200, 200, 200, 200, 404, 200, 200, 404),
    ("GET",    "/v1/tags"):                                (200, 200, 200, 200, 200, 200, 200, 200),
    ("GET",    "/v1/schedule-preview"):                    (422, 422, 422, 422, 422, 422, 422, 422),  # no schedule
    ("GET",    "/v1/monitors/{monitor_id}/pings"):         (200, 200, 200, 200, 404, 200, 200, 404),
    ("GET",    "/v1/heartbeats/{monitor_id}/ping"):        (ANYBODY, 200),
    ("POST",   "/v1/heartbeats/{monitor_id}/ping"):        (ANYBODY, 200),
    ("GET",    "/v1/heartbeats/{monitor_id}/ping/{signal}"): (ANYBODY, 200),
    ("POST",   "/v1/heartbeats/{monitor_id}/ping/{signal}"): (ANYBODY, 200),
    ("GET",    "/v1/metrics"):                             (200, 200, 200, 200, 200, 200, 200, 200),
    ("GET",    "/v1/alert-channels"):                      (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/alert-channels"):                      (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/alert-channels/{channel_id}"):         (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/alert-channels/{channel_id}"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/alert-channels/{channel_id}/copy"):    (201, 201, 201, 403, 404, 201, 403, 404),
    ("DELETE", "/v1/alert-channels/{channel_id}"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/alert-channels/{channel_id}/test"):    (503, 503, 503, 403, 404, 503, 403, 404),  # no worker here
    ("GET",    "/v1/alert-channels/{channel_id}/deliveries"):     (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/alert-channels/{channel_id}/deliveries/{delivery_id}/replay"):
                                                            (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/incidents"):                           (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/incidents"):                           (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/incidents/{incident_id}"):             (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/incidents/{incident_id}/acknowledge"): (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/incidents/{incident_id}/unacknowledge"): (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/incidents/{incident_id}/escalate"):    (409, 409, 409, 403, 404, 409, 403, 404),  # it has no policy
    ("POST",   "/v1/incidents/{incident_id}/comments"):    (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/incidents/{incident_id}/resolve"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/maintenance-windows"):                 (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/maintenance-windows"):                 (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/maintenance-windows/{window_id}"):     (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/maintenance-windows/{window_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/maintenance-windows/{window_id}/copy"):(201, 201, 201, 403, 404, 201, 403, 404),
    ("DELETE", "/v1/maintenance-windows/{window_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/on-call-schedules"):                   (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/on-call-schedules"):                   (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/on-call-schedules/{schedule_id}"):     (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/on-call-schedules/{schedule_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("DELETE", "/v1/on-call-schedules/{schedule_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/on-call-schedules/{schedule_id}/shifts"): (200, 200, 200, 200, 404, 200, 200, 404),
    ("GET",    "/v1/on-call-schedules/{schedule_id}/now"): (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/on-call-schedules/{schedule_id}/calendar"): (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/escalation-policies"):                 (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/escalation-policies"):                 (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/escalation-policies/{policy_id}"):     (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/escalation-policies/{policy_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("DELETE", "/v1/escalation-policies/{policy_id}"):     (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/status-pages"):                        (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/status-pages"):                        (201, 201, 201, 403, 422, 201, 403, 422),
    ("GET",    "/v1/status-pages/{page_id}"):              (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/status-pages/{page_id}"):              (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/status-pages/{page_id}/copy"):         (201, 201, 201, 403, 404, 201, 403, 404),
    ("DELETE", "/v1/status-pages/{page_id}"):              (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/status-pages/{page_id}/verify-domain"): (409, 409, 409, 403, 404, 409, 403, 404),
    ("PUT",    "/v1/status-pages/{page_id}/logo"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("DELETE", "/v1/status-pages/{page_id}/logo"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/status-pages/{page_id}/notes"):        (200, 200, 200, 200, 404, 200, 200, 404),
    ("POST",   "/v1/status-pages/{page_id}/notes"):        (201, 201, 201, 403, 404, 201, 403, 404),
    ("GET",    "/v1/status-pages/{page_id}/notes/{note_id}"):    (200, 200, 200, 200, 404, 200, 200, 404),
    ("DELETE", "/v1/status-pages/{page_id}/notes/{note_id}"):    (200, 200, 200, 403, 404, 200, 403, 404),
    ("POST",   "/v1/status-pages/{page_id}/notes/{note_id}/updates"): (201, 201, 201, 403, 404, 201, 403, 404),
    ("GET",    "/v1/status-pages/{page_id}/subscribers"):  (200, 200, 200, 200, 404, 200, 200, 404),
    ("DELETE", "/v1/status-pages/{page_id}/subscribers/{subscriber_id}"): (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/monitors/{monitor_id}/badge"):         (200, 200, 200, 200, 404, 200, 200, 404),
    ("PUT",    "/v1/monitors/{monitor_id}/badge"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("DELETE", "/v1/monitors/{monitor_id}/badge"):         (200, 200, 200, 403, 404, 200, 403, 404),
    ("GET",    "/v1/manifest"):                            (200, 200, 200, 200, 200, 200, 200, 200),
    ("PUT",    "/v1/manifest"):                            (200, 200, 200, 403, 422, 200, 403, 422),  # into the project
    ("POST",   "/v1/imports"):                             (200, 200, 200, 403, 422, 200, 403, 422),
    ("GET",    "/v1/connectors"):                          (200, 200, 200, 200, 200, 403, 403, 403),
    ("DELETE", "/v1/connectors/{provider}"):               (200, 404, 404, 404, 404, 403, 403, 403),
    ("POST",   "/v1/connectors/{provider}/oauth/start"):   (503, 503, 503, 503, 503, 403, 403, 403),  # no keys here
    ("GET",    "/v1/connectors/{provider}/projects"):      (409, 404, 404, 404, 404, 403, 403, 403),  # a revoked grant
    ("POST",   "/v1/connectors/{provider}/import"):        (409, 404, 404, 404, 404, 403, 403, 403),
    ("GET",    "/v1/projects"):                            (200, 200, 200, 200, 200, 403, 403, 403),
    ("POST",   "/v1/projects"):                            (201, 201, 201, 201, 201, 403, 403, 403),
    ("GET",    "/v1/projects/{project_id}"):               (200, 200, 200, 200, 404, 403, 403, 403),
    ("PATCH",  "/v1/projects/{project_id}"):               (200, 200, 403, 403, 404, 403, 403, 403),
    ("DELETE", "/v1/projects/{project_id}"):               (200, 403, 403, 403, 404, 403, 403, 403),
    ("GET",    "/v1/account/audit-log"):                   (200, 200, 200, 200, 200, 403, 403, 403),
    ("GET",    "/v1/projects/{project_id}/audit-log"):     (200, 200, 403, 403, 404, 403, 403, 403),
    ("GET",    "/v1/projects/{project_id}/members"):       (200, 200, 200, 200, 404, 403, 403, 403),
    ("POST",   "/v1/projects/{project_id}/members"):       (201, 201, 403, 403, 404, 403, 403, 403),
    ("PATCH",  "/v1/projects/{project_id}/members/{member_id}"):  (200, 200, 403, 403, 404, 403, 403, 403),
    ("DELETE", "/v1/projects/{project_id}/members/{member_id}"):  (200, 200, 403, 403, 404, 403, 403, 403),
    ("GET",    "/v1/locations"):                           (200, 200, 200, 200, 200, 200, 200, 200),
    ("POST",   "/v1/locations"):                           (201, 201, 403, 403, 422, 403, 403, 403),
    ("GET",    "/v1/locations/{location_id}"):             (200, 200, 200, 200, 404, 200, 200, 404),
    ("PATCH",  "/v1/locations/{location_id}"):             (200, 200, 403, 403, 404, 403, 403, 403),
    ("DELETE", "/v1/locations/{location_id}"):             (200, 200, 403, 403, 404, 403, 403, 403),
    ("POST",   "/v1/locations/{location_id}/join-token"):  (200, 200, 403, 403, 404, 403, 403, 403),
    ("GET",    "/v1/locations/{location_id}/agents"):      (200, 200, 200, 200, 404, 200, 200, 404),
    ("DELETE", "/v1/locations/{location_id}/agents/{agent_id}"): (200, 200, 403, 403, 404, 403, 403, 403),
    ("POST",   "/v1/agent/join"):                          (ANYBODY, 201),
    ("GET",    "/v1/tokens"):                              (200, 200, 200, 200, 200, 403, 403, 403),
    ("POST",   "/v1/tokens"):                              (201, 201, 201, 403, 400, 403, 403, 403),
    ("DELETE", "/v1/tokens/{token_id}"):                   (200, 200, 403, 403, 404, 403, 403, 403),  # the owner's
    ("POST",   "/v1/sessions"):                            (ANYBODY, 201),
    ("GET",    "/v1/sessions"):                            (200, 200, 200, 200, 200, 403, 403, 403),
    ("DELETE", "/v1/sessions/current"):                    (200, 200, 200, 200, 200, 403, 403, 403),
    ("DELETE", "/v1/sessions/{session_id}"):               (200, 404, 404, 404, 404, 403, 403, 403),  # the owner's
    ("GET",    "/v1/account"):                             (200, 200, 200, 200, 200, 403, 403, 403),
    ("GET",    "/v1/account/contact"):                     (200, 200, 200, 200, 200, 403, 403, 403),
    ("PUT",    "/v1/account/contact"):                     (200, 200, 200, 200, 200, 403, 403, 403),
    ("GET",    "/v1/account/export"):                      (200, 200, 200, 200, 200, 403, 403, 403),
    ("PATCH",  "/v1/account"):                             (200, 200, 200, 200, 200, 403, 403, 403),
    ("DELETE", "/v1/account"):                             (409, 200, 200, 200, 200, 403, 403, 403),  # shared
}
# fmt: on

SOON = to_ms(utc_now() + timedelta(days=1))
QUERIES = {("PATCH", "/v1/monitors"): "?enabled=true"}
WINDOW = {"name": "New", "starts_at": SOON, "ends_at": SOON + 60_000, "monitors": "all"}

UPDATE = {"status": "investigating", "text": "New."}
NOTE = UPDATE | {"title": "New"}

CODES = {400: {"project_forbidden"}, 401: {"unauthorized"}, 404: {"not_found"}, 422: {"validation_error"}}
CODES |= {
    403: {"forbidden", "session_required", "read_only"},
    409: {"domain_unverified", "reconnect_required", "projects_shared", "not_escalating"},
}
CODES |= {503: {"no_worker", "provider_not_configured"}}


@dataclass(frozen=True)
class World:
    owner: User
    callers: dict[str, Api]
    ids: dict[str, str]
    heartbeat_id: str
    email: str
    join_token: str

    def path(self, template: str) -> str:
        ids = self.ids | ({"monitor_id": self.heartbeat_id} if "heartbeats" in template else {})
        return template.format(**ids)

    def manifest(self, project_id: str) -> dict[str, Any]:
        project = {"id": project_id, "name": Project.objects.get(public_id=project_id).name}
        monitor = {"name": "New", "url": "http://127.0.0.1:9/", "project": project_id}
        return {"version": 1, "projects": [project], "monitors": [monitor]}

    @property
    def layer(self) -> dict[str, Any]:
        return {"user_ids": [self.owner.public_id], "every": {"unit": "day", "count": 1}, "starts_at": SOON}

    @property
    def step(self) -> dict[str, Any]:
        return {"after_min": 0, "targets": [{"type": "user", "id": self.owner.public_id}]}

    def body(self, method: str, template: str) -> Any:
        project_id = self.ids["project_id"]
        return {
            ("POST", "/v1/monitors"): {"url": "http://127.0.0.1:9/", "project_id": project_id},
            ("POST", "/v1/monitors/test"): {"url": "http://127.0.0.1:9/", "project_id": project_id},
            ("PATCH", "/v1/monitors"): {"name": "New"},
            ("PATCH", "/v1/monitors/{monitor_id}"): {"name": "New"},
            ("POST", "/v1/monitors/{monitor_id}/mute"): {"minutes": 5},
            ("POST", "/v1/monitors/{monitor_id}/backtest"): {"fail_threshold": 5},
            ("POST", "/v1/alert-channels"): {"kind": "webhook", "url": "http://127.0.0.1:9/", "project_id": project_id},
            ("PATCH", "/v1/alert-channels/{channel_id}"): {"name": "New"},
            ("POST", "/v1/incidents"): {"title": "New", "text": "New.", "project_id": project_id},
            ("POST", "/v1/incidents/{incident_id}/comments"): {"text": "New."},
            ("POST", "/v1/maintenance-windows"): WINDOW | {"project_id": project_id},
            ("PATCH", "/v1/maintenance-windows/{window_id}"): {"name": "New"},
            ("POST", "/v1/on-call-schedules"): {"name": "New", "project_id": project_id, "layers": [self.layer]},
            ("PATCH", "/v1/on-call-schedules/{schedule_id}"): {"name": "New"},
            ("POST", "/v1/escalation-policies"): {"name": "New", "project_id": project_id, "steps": [self.step]},
            ("PATCH", "/v1/escalation-policies/{policy_id}"): {"name": "New"},
            ("PUT", "/v1/account/contact"): {"rules": []},
            ("POST", "/v1/status-pages"): {"name": "New", "slug": "new-one", "project_id": project_id},
            ("PATCH", "/v1/status-pages/{page_id}"): {"name": "New"},
            ("PUT", "/v1/status-pages/{page_id}/logo"): {"image": b64encode(picture()).decode()},
            ("POST", "/v1/status-pages/{page_id}/notes"): NOTE,
            ("POST", "/v1/status-pages/{page_id}/notes/{note_id}/updates"): UPDATE,
            ("PUT", "/v1/manifest"): {"manifest": self.manifest(project_id)},
            ("POST", "/v1/imports"): {
                "monitors": [{"name": "New", "body": {"url": "http://127.0.0.1:9/"}}],
                "project_id": project_id,
            },
            ("POST", "/v1/connectors/{provider}/import"): {"external_refs": ["prj_1"]},
            ("POST", "/v1/locations"): {"name": "New", "project_id": project_id},
            ("PATCH", "/v1/locations/{location_id}"): {"name": "New"},
            ("POST", "/v1/agent/join"): {"token": self.join_token, "name": "New", "version": "1.0"},
            ("POST", "/v1/projects"): {"name": "New"},
            ("PATCH", "/v1/projects/{project_id}"): {"name": "New"},
            ("POST", "/v1/projects/{project_id}/members"): {"email": "new@shop.example", "role": "member"},
            ("PATCH", "/v1/projects/{project_id}/members/{member_id}"): {"role": "admin"},
            ("POST", "/v1/tokens"): {"project_id": project_id, "name": "New"},
            ("POST", "/v1/sessions"): {"email": self.email, "password": PASSWORD},
            ("DELETE", "/v1/account"): {"password": PASSWORD},
            ("PATCH", "/v1/account"): {"current_password": PASSWORD, "password": "quite another long one"},
        }.get((method, template))


@pytest.fixture(scope="module")
def world(module_db: None) -> World:
    owner, admin, member, viewer, colleague, stranger = (UserFactory() for _ in range(6))
    project, other = ProjectFactory(owner=owner, admin=admin, member=member), ProjectFactory(owner=owner)
    MembershipFactory(project=project, user=viewer, role="viewer")
    place = MembershipFactory(project=project, user=colleague, role="member", created_at=utc_now())
    monitor = MonitorFactory(owner=owner, up=True, project=project)
    heartbeat = MonitorFactory(owner=owner, heartbeat=True, project=project)
    token, _ = create_token(Caller(owner), project_id=project.public_id, name="t", ttl_seconds=None, now=utc_now())
    people = {"owner": owner, "admin": admin, "member": member, "viewer": viewer, "stranger": stranger}
    callers = {name: Api.signed_in(user) for name, user in people.items()}
    callers |= {"token": Api.with_token(owner, project), "other": Api.with_token(owner, other)}
    callers["reader"] = Api.with_token(owner, project, access="read")
    callers |= {"no token": Api(), "garbage": Api("svc_" + "a" * 68)}
    past = utc_now() - timedelta(seconds=1)

    callers["expired token"] = Api.with_token(owner, project)
    ProjectToken.objects.filter(pk=ProjectToken.objects.latest("pk").pk).update(expires_at=past)
    callers["revoked token"] = Api.with_token(owner, project)
    ProjectToken.objects.latest("pk").delete()
    callers["expired session"] = Api.signed_in(owner)
    Session.objects.filter(pk=Session.objects.latest("pk").pk).update(expires_at=past)
    callers["signed out"] = Api.signed_in(owner)
    Session.objects.latest("pk").delete()
    channel = ChannelFactory(owner=owner, project=project)
    here = {"project_id": project.public_id}
    incident = declare(Caller(owner), here | {"title": "Late", "text": "Orders are late."}, now=utc_now())
    times = {"starts_at": from_ms(SOON), "ends_at": from_ms(SOON + 60_000)}
    window = create_window(Caller(owner), WINDOW | times | here, now=utc_now())
    ConnectorFactory(user=owner, revoked_at=utc_now())
    page = make_page(owner, [monitor], **here)
    create_badge(Caller(owner), monitor.public_id, now=utc_now())
    location, join_token = create_location(Caller(owner), here | {"name": "Office"}, now=utc_now())
    agent, _ = join(token=join_token, name="probe-1", version="1.0", protocol=PROTOCOL, now=utc_now())
    join_token = issue_join_token(Caller(owner), location.public_id, now=utc_now())
    ids = {
        "page_id": page.public_id,
        "note_id": create_note(Caller(owner), page.public_id, NOTE, now=utc_now()).public_id,
        "subscriber_id": make_subscriber(page).public_id,
        "provider": "vercel",
        "channel_id": channel.public_id,
        "delivery_id": DeliveryFactory(channel=channel, dead=True).public_id,
        "incident_id": incident.public_id,
        "window_id": window.public_id,
        "monitor_id": monitor.public_id,
        "signal": "log",
        "check_id": CheckIds(monitor.public_id).encode(FIRST_CLAIM, NOON),
        "project_id": project.public_id,
        "token_id": token.public_id,
        "session_id": Session.objects.filter(user=owner).earliest("pk").public_id,
        "member_id": place.public_id,
        "location_id": location.public_id,
        "agent_id": agent.public_id,
    }
    live(owner, UserFactory())
    world = World(owner, callers, ids, heartbeat.public_id, stranger.email, join_token)
    on_call = create_schedule(Caller(owner), here | {"name": "On call", "layers": [world.layer]}, now=utc_now())
    policy = create_policy(Caller(owner), here | {"name": "On call", "steps": [world.step]}, now=utc_now())
    ids |= {"schedule_id": on_call.public_id, "policy_id": policy.public_id}
    return world


@pytest.mark.parametrize(("method", "template"), TABLE, ids=[f"{method} {template}" for method, template in TABLE])
def test_who_may(world: World, monkeypatch: pytest.MonkeyPatch, method: str, template: str) -> None:
    monkeypatch.setattr(replies, "ask", nobody_answers)
    row = TABLE[method, template]
    public = row[0] == ANYBODY
    statuses = (row[1],) * len(SOMEBODY) if public else row
    expected: dict[str, Any] = dict(zip(SOMEBODY, statuses, strict=True))
    expected |= dict.fromkeys(NOBODY, row[1] if public else 401)
    found = {}
    for name, caller in world.callers.items():
        with undone():
            answer = caller.send(
                method, world.path(template) + QUERIES.get((method, template), ""), world.body(method, template)
            )
        found[name] = answer.status
        if answer.status >= 400:
            assert answer.json["error"] in CODES[answer.status], (name, answer.text)
        if answer.status == 403 and name in {"viewer", "reader"} and method != "GET":
            needs_session = name == "reader" and expected["token"] == 403
            assert answer.json["error"] == ("session_required" if needs_session else "read_only"), (name, answer.text)
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert found == expected


@pytest.mark.parametrize(
    ("method", "template"), [each for each in TABLE if each[0] != "GET" and TABLE[each][0] != ANYBODY]
)
def test_reading_is_refused_before_the_body_is_read(world: World, method: str, template: str) -> None:
    """403 `read_only` comes before what is wrong with the body, and before 405."""
    expected = dict(zip(SOMEBODY, TABLE[method, template], strict=True))
    for name in ("viewer", "reader"):
        if expected[name] != 403 or (name == "reader" and expected["token"] == 403):
            continue
        here: dict[str, Any] = {"project_id": world.ids["project_id"]}
        for body in (here, here | {"nonsense": 1}):
            if name == "viewer" and template == "/v1/manifest":  # it names projects deeper inside
                body = {"manifest": world.manifest(here["project_id"]) | {"monitors": [{"name": 1}]}}
            answer = world.callers[name].send(method, world.path(template), body)
            assert (answer.status, answer.json["error"]) == (403, "read_only"), (name, answer.text)


def test_a_token_that_reads_is_refused_before_anything_else(world: World) -> None:
    reader = world.callers["reader"]
    for method, path in [("POST", "/v1/monitors"), ("PATCH", "/v1/monitors/mon_unknown"), ("DELETE", "/v1/monitors")]:
        answer = reader.send(method, path, "{", content_type="text/plain")
        assert (answer.status, answer.json["error"]) == (403, "read_only"), (method, path)
    assert reader.send("POST", "/v1/projects", "{").json["error"] == "session_required"


def test_nothing_of_the_owner_is_shown_to_others(world: World) -> None:
    """Neither a stranger nor a token of the owner's other project finds an id of the owner's by any GET route."""
    rows = rows_of(world.owner, all_models())
    assert untested(rows) == []
    projects = set(rows.pop("projects.Project").values_list("public_id", flat=True))
    named = [found for found in rows.values() if hasattr(found.model, "public_id")]
    ids = {public_id for found in named for public_id in found.values_list("public_id", flat=True)}

    def shown(caller: str) -> set[str]:
        paths = [world.path(template) for method, template in TABLE if method == "GET"]
        return {word for path in paths for word in re.findall(r"\w+", world.callers[caller].get(path).text)}

    assert shown("owner") > projects
    assert shown("stranger") & (ids | projects) == set()
    assert shown("other") & ids == set()


def nobody_answers(*_: object, **__: object) -> None:
    """Return at once: no worker runs, and the test does not wait for one."""


class undone:  # noqa: N801  (reads as a statement)
    """Roll back the changes of the block: each caller finds the same rows."""

    def __enter__(self) -> None:
        self._block = transaction.atomic()
        self._block.__enter__()

    def __exit__(self, *raised: Any) -> None:
        transaction.set_rollback(True)
        self._block.__exit__(*raised)


def test_the_table_has_a_row_for_every_route() -> None:
    assert set(TABLE) == set(routes())


def test_the_document_has_them_all_too() -> None:
    from tests.api.client import SCHEMA

    paths = json.loads(SCHEMA.read_text())["paths"]
    described = {
        (method.upper(), path) for path, methods in paths.items() for method in methods if path.startswith("/v1")
    }
    assert described == set(TABLE)


def routes() -> Iterator[tuple[str, str]]:
    """Every (method, path) below /v1 that Django would hand to a view; the parameters as {name}."""
    for path, view in _patterns(get_resolver().url_patterns, "/"):
        if path.startswith("/v1/"):
            for method in ("get", "post", "put", "patch", "delete"):
                if method in getattr(view, "actions", ()) or hasattr(view, method):
                    yield method.upper(), path


def _patterns(patterns: list[URLPattern | URLResolver], prefix: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern.url_patterns, path)
        else:
            callback = pattern.callback
            yield path, getattr(callback, "view_class", callback)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT"])
def test_no_other_method_answers(world: World, method: str) -> None:
    answer = world.callers["owner"].send(method, "/v1/monitors")
    assert (answer.status, answer.json["error"]) == (405, "method_not_allowed")
