"""Fill the database for benchmarks/strangers.py: what a tenant can store, at its limits.

    python -m benchmarks.straining.account [--small]

`full` is an account of the pro plan with 1,000 monitors whose every field is as long as it may be, 90 days of history,
a day in which each of them changed its status every minute, and as many windows, channels, pages, comments, projects
and tokens as it may have. `roomy` has one of each, so that its requests do not end at a quota. The last line is JSON:
names for paths, by tenant, and credentials.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402

from accounts.models import User  # noqa: E402
from accounts.services import create_account  # noqa: E402
from alerts.models import AlertChannel, Delivery, DeliveryItem  # noqa: E402
from alerts.services import MAX_CHANNELS, create_channel  # noqa: E402
from audit.models import Entry  # noqa: E402
from benchmarks.seeding import seed_history  # noqa: E402
from checks.agent_protocol import PROTOCOL  # noqa: E402
from connectors.models import Connector  # noqa: E402
from core.clock import utc_now  # noqa: E402
from incidents.models import Incident, IncidentEvent, MaintenanceWindow  # noqa: E402
from incidents.services import MAX_COMMENTS  # noqa: E402
from incidents.windows import MAX_WINDOWS, create_window  # noqa: E402
from locations.models import Agent, Location  # noqa: E402
from locations.services import MAX_AGENTS, create_location, issue_join_token, join  # noqa: E402
from monitors.configuration import build, config_columns  # noqa: E402
from monitors.models import DnsChange, Monitor, MonitorState  # noqa: E402
from projects.access import Caller  # noqa: E402
from projects.members import MAX_MEMBERS  # noqa: E402
from projects.models import Membership, Project  # noqa: E402
from projects.placement import MAX_LINKS  # noqa: E402
from projects.services import MAX_PROJECTS, create_project  # noqa: E402
from statuspages.badges import create_badge  # noqa: E402
from statuspages.models import NoteUpdate, PageNote, StatusPage, Subscriber  # noqa: E402
from statuspages.services import MAX_PAGES, MAX_UPDATES, create_page  # noqa: E402
from tokens.models import ProjectToken  # noqa: E402
from tokens.services import MAX_TOKENS, create_token, sign_in  # noqa: E402

PASSWORD = "a fine long password"
SLUG, LOCKED_SLUG = "full", "full-locked"
RULE = "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR,SA,SU"


def costly(length: int) -> str:
    """Return the text of this length that takes most room: six bytes for each character in HTML, four in memory."""
    return "\U0001f600" + '"' * (length - 1)


def fill(*, small: bool) -> dict[str, Any]:
    now, share = utc_now(), 50 if small else 1
    full, roomy = (create_account(email=f"{name}@example.com", password=PASSWORD, plan="pro") for name in NAMES)
    names = {"full": _fill_up(full, now=now, share=share), "roomy": _furnish(roomy, now=now)}
    for name, user in (("full", full), ("roomy", roomy)):
        client = Client()
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        token = create_token(Caller(user), project_id=names[name]["project_id"], name="t", now=now)[1]
        names[name] |= {
            "email": user.email,
            "session": sign_in(email=user.email, password=PASSWORD, now=now)[1],
            "token": token,
            "cookie": client.cookies["sessionid"].value,
            "token_id": ProjectToken.objects.latest("pk").public_id,
            "session_id": user.api_sessions.latest("pk").public_id,
        }
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return names


NAMES = ("full", "roomy")


def _furnish(user: User, *, now: datetime) -> dict[str, str]:
    """Create one of each."""
    caller = Caller(user)
    project = create_project(caller, name="Shop", now=now)
    seed_history(user, monitors=1, days=2, interval_sec=300, now=now)
    monitor = Monitor.objects.get(owner=user)
    return _around(caller, project, monitor, [monitor], now=now)


def _around(
    caller: Caller, project: Project, monitor: Monitor, shown: list[Monitor], *, now: datetime
) -> dict[str, str]:
    """Create one of each thing that belongs to a monitor or an account. Return names for paths."""
    user = caller.user
    heartbeat = Monitor.objects.create(owner=user, created_at=now, **config_columns(build(HEARTBEAT)))
    MonitorState.objects.create(monitor=heartbeat, status="up", status_since=now, last_ping_at=now, fresh=False)
    channel = create_channel(caller, {"kind": "webhook", "url": "https://hooks.example.com/"}, now=now)[0]
    delivery = Delivery.objects.create(
        channel=channel, created_at=now, state="dead", next_try_at=now, give_up_at=now, attempts=3
    )
    window = create_window(caller, WINDOW | {"starts_at": now, "ends_at": now + timedelta(minutes=20)}, now=now)
    incident = Incident.objects.create(owner=user, monitor=monitor, name=monitor.name, started_at=now)
    declared = Incident.objects.create(owner=user, name=costly(200), started_at=now, detail=costly(2_000))
    groups = [
        {
            "name": costly(200),
            "monitors": [{"monitor_id": m.public_id, "name": costly(200)} for m in shown[number::100]],
        }
        for number in range(min(100, len(shown)))
    ]
    slug = user.email.partition("@")[0]
    page = create_page(caller, PAGE | {"slug": slug, "groups": groups}, now=now)
    create_page(caller, PAGE | {"slug": f"{slug}-locked", "groups": groups, "password": PASSWORD}, now=now)
    note = PageNote.objects.create(page=page, title=costly(200), created_at=now)
    NoteUpdate.objects.create(note=note, status="investigating", text=costly(5_000), at=now)
    subscriber = Subscriber.objects.create(
        page=page, created_at=now, confirmed_at=now, address="a@example.com", address_digest=b"d" * 32, hint="a…"
    )
    member = Membership.objects.create(
        project=project, role="member", created_at=now, invited_email="new@example.com", invited_by=user,
        invitation_digest=slug.encode(), invited_until=now + timedelta(days=7),
    )  # fmt: skip
    location, token = create_location(caller, {"name": costly(100), "project_id": project.public_id}, now=now)
    joining: dict[str, Any] = {"name": costly(100), "version": costly(40), "protocol": PROTOCOL, "now": now}
    agent, agent_credential = join(token=token, **joining)
    for provider in ("vercel", "netlify"):
        tokens = {"access_token": "t", "team_id": None}
        Connector.objects.create(user=user, provider=provider, created_at=now, meta="m", tokens=tokens)
    return {
        "monitor_id": monitor.public_id, "heartbeat_id": heartbeat.public_id, "project_id": project.public_id,
        "channel_id": channel.public_id, "delivery_id": delivery.public_id, "window_id": window.public_id,
        "incident_id": incident.public_id, "declared_id": declared.public_id, "page_id": page.public_id,
        "note_id": note.public_id, "subscriber_id": str(subscriber.public_id), "member_id": member.public_id,
        "badge": create_badge(caller, monitor.public_id, now=now).key, "slug": slug,
        "location_id": location.public_id, "agent_id": agent.public_id, "agent_credential": agent_credential,
        "join_token": issue_join_token(caller, location.public_id, now=now),
    }  # fmt: skip


HEARTBEAT = {
    "type": "heartbeat", "name": costly(200), "interval_sec": 60, "schedule": "59 23 29 2 *",
    "timezone": "America/St_Johns",
}  # fmt: skip
WINDOW = {"name": costly(200), "monitors": "all", "time_zone": "America/St_Johns", "rrule": f"{RULE};COUNT=3600"}
PAGE = {"name": costly(200), "description": costly(5_000), "published": True}
HTTP = {
    "interval_sec": 60,
    "name": costly(200),
    "url": "http://a.invalid/?" + "'" * 2_000,
    "method": "POST",
    "request_body": costly(8_192),
    "request_headers": [{"name": "x" * 255 + str(n), "value": '"' * 4_096, "type": "bearer"} for n in range(4)],
    "content_rules": [{"type": "json_field", "path": '"' * 128, "equals": costly(256)}] * 4,
}
DNS = {
    "type": "dns", "interval_sec": 60, "name": costly(200), "url": "dns:a.invalid?type=TXT",
    "records": ['"' + "a" * 4_000 + f'{n:02}"' for n in range(16)],
}  # fmt: skip
# Every minute of the last day each monitor went down and recovered: what a target can do with a threshold of one.
_CHANGES = """
    INSERT INTO monitors_statuschange (monitor_id, kind, at, before, after, claim, reason_code, detail, processed_at)
    SELECT monitor.id, 'status', %(now)s - minute * interval '1 minute',
           CASE WHEN minute %% 2 = 0 THEN 'down' ELSE 'up' END, CASE WHEN minute %% 2 = 0 THEN 'up' ELSE 'down' END,
           1, 'http_failure', 'Answered 500.', now()
      FROM monitors_monitor AS monitor, generate_series(1, %(minutes)s) AS minute
     WHERE monitor.owner_id = %(owner)s
"""
_DNS_CHANGES = """
    INSERT INTO monitors_dnschange (monitor_id, at, added, removed, added_count, removed_count)
    SELECT monitor_id, at - number * interval '1 minute', added, removed, added_count, removed_count
      FROM monitors_dnschange, generate_series(1, %s) AS number
"""
_PINGS = """
    INSERT INTO monitors_ping (id, monitor_id, at, kind, method, rid, remote_addr, user_agent, body)
    SELECT number, %(monitor)s, %(now)s - number * interval '30 seconds',
           CASE WHEN number %% 2 = 0 THEN 'start' ELSE 'log' END, 'POST', gen_random_uuid(), '192.0.2.1',
           repeat('"', 200), CASE WHEN number <= 500 THEN repeat(%(part)s, 2500) END
      FROM generate_series(1, %(count)s) AS number
"""


def _fill_up(user: User, *, now: datetime, share: int) -> dict[str, str]:
    caller = Caller(user)
    projects = Project.objects.bulk_create(
        Project(name=costly(200), created_at=now) for _ in range(MAX_PROJECTS // share)
    )
    Membership.objects.bulk_create(Membership(project=project, user=user, role="owner") for project in projects)
    shop = projects[0]
    monitors = 990 // share
    seed_history(user, monitors=monitors, days=30 if share == 1 else 3, interval_sec=21_600, now=now)
    rows = list(Monitor.objects.filter(owner=user).order_by("pk"))
    for given, chosen in ((DNS, rows[1::20]), (HTTP, [row for number, row in enumerate(rows) if number % 20 != 1])):
        Monitor.objects.filter(pk__in=[row.pk for row in chosen]).update(**config_columns(build(given)))
    for number, project in enumerate(projects[:20]):
        Monitor.objects.filter(pk__in=[row.pk for row in rows[number::20]]).update(project=project)
    rows = list(Monitor.objects.filter(owner=user).order_by("pk"))
    with connection.cursor() as cursor:
        cursor.execute(_CHANGES, {"now": now, "minutes": 1_440 // share, "owner": user.pk})
    names = _around(caller, shop, rows[0], rows, now=now)
    heartbeat = Monitor.objects.get(public_id=names["heartbeat_id"])
    with connection.cursor() as cursor:
        part = '"\U0001f600\\\t'
        cursor.execute(_PINGS, {"monitor": heartbeat.pk, "now": now, "count": 10_000 // share, "part": part})
    _incidents(user, rows[0], names, now=now, share=share)
    _notify(caller, rows, names, now=now, share=share)
    _share(user, shop, names, now=now, share=share)
    return names


def _incidents(user: User, monitor: Monitor, names: dict[str, str], *, now: datetime, share: int) -> None:
    Incident.objects.bulk_create(
        Incident(
            owner=user, monitor=monitor, name=costly(200), detail=costly(2_000), resolution="recovered",
            started_at=now - timedelta(minutes=number), resolved_at=now - timedelta(minutes=number - 1),
        )
        for number in range(2, 2_000 // share)
    )  # fmt: skip
    incident = Incident.objects.get(public_id=names["incident_id"])
    IncidentEvent.objects.bulk_create(
        IncidentEvent(incident=incident, type="commented", at=now, text=costly(2_000), data={"by": user.email})
        for _ in range(MAX_COMMENTS // share)
    )
    records = [costly(300)] * 16
    DnsChange.objects.create(monitor=monitor, at=now, added=records, removed=records, added_count=16, removed_count=16)
    with connection.cursor() as cursor:
        cursor.execute(_DNS_CHANGES, [300 // share])


def _notify(caller: Caller, rows: list[Monitor], names: dict[str, str], *, now: datetime, share: int) -> None:
    given = WINDOW | {"starts_at": now, "ends_at": now + timedelta(minutes=20)}
    some = MAX_LINKS // 2 // (MAX_WINDOWS + MAX_CHANNELS)  # the pages have the other half
    template = create_window(caller, given, now=now)
    copies = [MaintenanceWindow.objects.get(pk=template.pk) for _ in range(MAX_WINDOWS // share - 2)]
    for copy in copies:
        copy.pk, copy.public_id, copy.all_monitors = None, MaintenanceWindow().public_id, False
    for copy in MaintenanceWindow.objects.bulk_create(copies):
        copy.monitors.set(rows[:some])
    channel = {"kind": "webhook", "url": "https://hooks.example.com/" + "a" * 1_900, "monitors": "chosen"}
    for number in range(MAX_CHANNELS // share - 2):
        chosen = [monitor.public_id for monitor in rows[:some]]
        create_channel(caller, channel | {"name": f"{number}", "monitor_ids": chosen}, now=now)
    AlertChannel.objects.filter(owner=caller.user).update(name=costly(200))
    channel_row = AlertChannel.objects.get(public_id=names["channel_id"])
    deliveries = Delivery.objects.bulk_create(
        Delivery(
            channel=channel_row, created_at=now - timedelta(minutes=number), state="dead", next_try_at=now,
            give_up_at=now, last_error=costly(500),
        )
        for number in range(1_000 // share)
    )  # fmt: skip
    payload = {"event_type": "down", "at": 0, "monitor_id": "mon_x", "monitor": costly(200)}
    DeliveryItem.objects.bulk_create(
        DeliveryItem(delivery=each, channel=channel_row, source=f"{each.pk} {item}", at=now, payload=payload)
        for each in deliveries
        for item in range(10)
    )
    shown = [{"monitor_id": row.public_id, "name": costly(200)} for row in rows]
    for number in range(MAX_PAGES // share - 2):
        page = PAGE | {"slug": f"full-{number}", "groups": [{"name": "", "monitors": shown if number < 3 else []}]}
        create_page(caller, page, now=now)


def _share(user: User, project: Project, names: dict[str, str], *, now: datetime, share: int) -> None:
    limit = user.plan.location_limit or 0
    locations = Location.objects.bulk_create(
        Location(name=costly(100), owner=user, project=project, created_at=now) for _ in range(limit // share - 1)
    )
    Agent.objects.bulk_create(
        Agent(
            location=location, name=costly(100), version=costly(40), protocol=PROTOCOL, created_at=now,
            last_seen_at=now, lookup=f"{location.pk} {number}", digest=b"",
        )
        for location in locations
        for number in range(MAX_AGENTS)
    )  # fmt: skip
    page = StatusPage.objects.get(public_id=names["page_id"])
    note = PageNote.objects.get(public_id=names["note_id"])
    NoteUpdate.objects.bulk_create(
        NoteUpdate(note=note, status="investigating", text=costly(5_000), at=now) for _ in range(MAX_UPDATES // share)
    )
    notes = PageNote.objects.bulk_create(
        PageNote(page=page, title=costly(200), created_at=now) for _ in range(1_000 // share)
    )
    NoteUpdate.objects.bulk_create(
        NoteUpdate(note=each, status="investigating", text=costly(5_000), at=now) for each in notes
    )
    Subscriber.objects.bulk_create(
        Subscriber(
            page=page, created_at=now, confirmed_at=now, address=f"{n}@example.com", hint="☃" * 50,
            address_digest=n.to_bytes(32, "big"),
        )
        for n in range(5_000 // share)
    )  # fmt: skip
    Membership.objects.bulk_create(
        Membership(
            project=project, role="member", created_at=now, invited_email=f"{n}@{'x' * 200}.example", invited_by=user,
            invitation_digest=n.to_bytes(32, "big"), invited_until=now + timedelta(days=7),
        )
        for n in range(MAX_MEMBERS // share)
    )  # fmt: skip
    ProjectToken.objects.bulk_create(
        ProjectToken(project=project, created_by=user, name=costly(200), lookup=f"x{n}", digest=b"", created_at=now)
        for n in range(MAX_TOKENS // share - 1)  # one is created later
    )
    Entry.objects.bulk_create(
        Entry(
            at=now, action="monitor.released", actor_type="user", actor_id=user.pk, actor_email=user.email,
            project_id=project.pk, target_name=costly(200), user_agent='"' * 200,
            details={"before": costly(200), "after": costly(200)},
        )
        for n in range(5_000 // share)
    )  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(fill(small="--small" in sys.argv)))
