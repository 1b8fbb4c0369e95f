"""An account with every kind of object and setting that a file can contain."""

from __future__ import annotations

from datetime import timedelta

from accounts.models import User
from alerts.services import update_channel
from core.clock import to_ms, utc_now
from incidents.windows import create_window
from monitors.services import update_monitor
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.services import update_project
from statuspages.services import create_page
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory

SECRET = "hunter2-in-a-header"


def make_rich(owner: User | None = None, *, suffix: str = "") -> User:
    owner = owner or UserFactory()
    caller, now = Caller(owner), utc_now()
    shop, blog = ProjectFactory(owner=owner, name="Shop"), ProjectFactory(owner=owner, name="Blog: “ö”")
    checkout = MonitorFactory(
        owner=owner,
        name="Checkout",
        project=shop,
        url="https://shop.example.com/checkout",
        method="POST",
        request_body='{"cart":\n  "$${x}"}\n',
        request_headers=[
            {"name": "Authorization", "value": f"Bearer {SECRET}", "type": "bearer"},
            {"name": "X-Empty", "value": ""},
        ],
        content_rules=[
            {"type": "json_field", "path": "status", "equals": "yes"},
            {"type": "text_absent", "value": "# no: comment"},
        ],
        check_domain=True,
        check_ssl=True,
        expect_status=201,
    )
    MonitorFactory(owner=owner, name="Checkout", project=blog, url="https://blog.example.com/")
    MonitorFactory(owner=owner, name="true", url="https://example.com/?a=%09#b", interval_sec=900)
    backup = MonitorFactory(
        owner=owner,
        name="Backup",
        heartbeat=True,
        schedule="*/30 3 1,15 * MON-FRI",
        timezone="Europe/Berlin",
        grace_sec=0,
        min_duration_sec=60,
        max_duration_sec=3600,
        max_pings_per_hour=4,
    )
    MonitorFactory(
        owner=owner,
        name="Nightly",
        scheduler=True,
        url="https://example.com/run",
        schedule="0 2 * * *",
        timezone="America/New_York",
        missed="once",
    )
    MonitorFactory(
        owner=owner,
        name="API",
        type="api",
        url="https://example.com/api",
        content_rules=[{"type": "json_field", "path": "ok"}],
    )
    paused = MonitorFactory(owner=owner, name="Paused", project=shop, url="https://example.com/p")
    update_monitor(caller, paused.public_id, {"enabled": False}, now=now)
    ChannelFactory(
        owner=owner, name="On call", kind="webhook", url="https://hooks.example.com/T0/secret-path", secret="s" * 20
    )
    mail = ChannelFactory(
        owner=owner,
        name="Team",
        kind="email",
        address="team@example.org",
        topics=["slow", "down"],
        project=shop,
        monitors="chosen",
        monitor_ids=[checkout.public_id, paused.public_id],
        remind_every_hours=1,
        delay_min=5,
        hours=[{"days": [1, 2, 3, 4, 5], "from": "08:00", "to": "18:30"}],
        timezone="Europe/Berlin",
        outside="drop",
        templates={"down": {"title": "{{ monitor.name }}!", "body": "{% if detail %}\n{{ detail }}\n{% endif %}"}},
    )
    update_channel(caller, mail.public_id, {"enabled": False}, now=now)
    ChannelFactory(
        owner=owner,
        name="Chat",
        kind="apprise",
        apprise_url="ntfys://ntfy.example.com/topic",
        monitors="project",
        scope_project_id=blog.public_id,
    )
    starts = now.replace(microsecond=0) + timedelta(days=1)
    window = {"starts_at": starts, "ends_at": starts + timedelta(hours=2)}
    create_window(
        caller,
        {"name": "Weekly", "monitors": "all", "time_zone": "Europe/Berlin", "project_id": shop.public_id}
        | window
        | {"rrule": "FREQ=WEEKLY;COUNT=10"},
        now=now,
    )
    chosen = {"monitors": "chosen", "monitor_ids": [backup.public_id, checkout.public_id]}
    create_window(caller, {"name": "Once"} | chosen | window, now=now)
    here = {"project_id": shop.public_id, "name": "Primary"}
    layer = {"user_ids": [owner.public_id], "every": {"unit": "day", "count": 2}, "starts_at": to_ms(starts)}
    hours = [{"days": [1, 7], "from": "22:00", "to": "06:30"}]
    override = {"user_id": owner.public_id, "starts_at": to_ms(starts), "ends_at": to_ms(starts) + 60_000}
    rotation = {"layers": [layer, layer | {"hours": hours}], "overrides": [override], "timezone": "Asia/Kolkata"}
    schedule = create_schedule(caller, here | rotation, now=now)
    targets = [("user", owner.public_id), ("schedule", schedule.public_id), ("channel", mail.public_id)]
    steps = [
        {"after_min": number, "targets": [{"type": kind, "id": one}]} for number, (kind, one) in enumerate(targets)
    ]
    policy = create_policy(caller, here | {"steps": steps, "repeat": 2, "acknowledge_timeout_min": 60}, now=now)
    create_policy(caller, {"name": "Alone", "steps": steps[:1]}, now=now)
    update_monitor(caller, paused.public_id, {"escalation_policy_id": policy.public_id}, now=now)
    update_project(caller, shop.public_id, {"escalation_policy_id": policy.public_id})
    create_page(
        caller,
        {
            "name": "Shop status",
            "slug": f"shop{suffix}",
            "description": "Two\nlines",
            "accent": "#2f6fed",
            "password": "letters and 8",
            "theme": "dark",
            "groups": [
                {"name": "Shop", "monitors": [{"monitor_id": checkout.public_id, "name": "Buying"}]},
                {"monitors": [{"monitor_id": backup.public_id, "name": "Backups"}]},
            ],
        },
        now=now,
    )
    create_page(caller, {"name": "Draft", "slug": f"draft{suffix}", "published": False}, now=now)
    return owner
