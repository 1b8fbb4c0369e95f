"""An account with something of everything that a file can say."""

from __future__ import annotations

from datetime import timedelta

from accounts.models import User
from alerts.services import update_channel
from core.clock import utc_now
from incidents.windows import create_window
from monitors.services import update_monitor
from projects.access import Caller
from statuspages.services import create_page
from tests.makers import make_channel, make_monitor, make_project, make_user

SECRET = "hunter2-in-a-header"


def make_rich(owner: User | None = None, *, suffix: str = "") -> User:
    owner = owner or make_user()
    caller, now = Caller(owner), utc_now()
    shop, blog = make_project(owner, name="Shop"), make_project(owner, name="Blog: “ö”")
    checkout = make_monitor(
        owner,
        name="Checkout",
        project_id=shop.public_id,
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
    make_monitor(owner, name="Checkout", project_id=blog.public_id, url="https://blog.example.com/")
    make_monitor(owner, name="true", url="https://example.com/?a=%09#b", interval_sec=900)
    backup = make_monitor(owner, name="Backup", type="heartbeat", url="", interval_sec=86_400, grace_sec=0)
    make_monitor(owner, name="Nightly", type="scheduler", url="https://example.com/run", interval_sec=3600)
    make_monitor(
        owner,
        name="API",
        type="api",
        url="https://example.com/api",
        content_rules=[{"type": "json_field", "path": "ok"}],
    )
    paused = make_monitor(owner, name="Paused", project_id=shop.public_id, url="https://example.com/p")
    update_monitor(caller, paused.public_id, {"enabled": False}, now=now)
    make_channel(
        owner, name="On call", kind="webhook", url="https://hooks.example.com/T0/secret-path", secret="s" * 20
    )
    mail = make_channel(
        owner,
        name="Team",
        kind="email",
        address="team@example.org",
        topics=["slow", "down"],
        project_id=shop.public_id,
        monitors="chosen",
        monitor_ids=[checkout.public_id, paused.public_id],
        remind_every_hours=1,
    )
    update_channel(caller, mail.public_id, {"enabled": False}, now=now)
    make_channel(
        owner,
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
