"""Copies of alert channels, maintenance windows and status pages by their forms, which are filled in.

test_monitor_pages.py has those of monitors.
"""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from accounts.models import User
from alerts.models import AlertChannel
from core.clock import utc_now
from incidents.models import MaintenanceWindow
from incidents.windows import create_window
from projects.access import Caller
from statuspages.models import PageLogo, StatusPage
from statuspages.services import create_page, set_logo
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.statuspages.making import make_page, make_subscriber, picture

pytestmark = pytest.mark.usefixtures("template_contexts")


def filled_in(page: str) -> dict[str, Any]:
    """Return what a browser sends of the form of the page if nothing is changed."""
    found: dict[str, list[str]] = {}
    form = page[page.index('<form class="card form"') :]
    form = form[: form.index("</form>")]
    select = ""
    for part in re.finditer(r"<select[^>]*>|<(?:input|textarea|option)\b[^>]*>[^<]*", form):
        tag = part[0]
        name = re.search(r' name="([\w-]+)"', tag)
        if tag.startswith("<select"):
            select = name[1] if name else ""
            continue
        key = select if tag.startswith("<option") else name[1] if name else ""
        if not key or re.search(r' type="(?:checkbox|radio)"(?!.* checked)', tag):
            continue
        if tag.startswith("<option") and " selected" not in tag:
            continue
        value = re.search(r' value="([^"]*)"', tag)
        text = tag.partition(">")[2].strip("\n") if tag.startswith("<textarea") else value[1] if value else ""
        text = "on" if "checkbox" in tag and not value else text
        found.setdefault(key, []).append(unescape(text))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def copied(web: Client, path: str, **changed: Any) -> tuple[str, str]:
    """Return the page of a copy's form, and what follows when it is sent with these changes."""
    page = web.get(path).content.decode()
    return page, web.post(path, filled_in(page) | changed, follow=True).content.decode()


def test_a_channel_is_copied_with_secrets_that_are_not_shown(web: Client, user: User) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user, name="Blog")
    monitor = MonitorFactory(project=project)
    channel = ChannelFactory(
        project=project,
        name="On call",
        url="https://hooks.example/s3cret-path",
        secret="s" * 20,
        topics=["slow", "down"],
        remind_every_hours=5,
        monitors="chosen",
        monitor_ids=[monitor.public_id],
    )
    path = f"/alert-channels/new?from={channel.public_id}"
    assert path in web.get(f"/alert-channels/{channel.public_id}").content.decode()
    page, done = copied(web, path)
    assert "s3cret-path" not in page + done
    assert "s" * 20 not in page + done
    assert "Channel created." in done
    made = AlertChannel.objects.latest("pk")
    assert (made.name, made.config, made.project) == ("On call (copy)", channel.config, project)
    assert (sorted(made.topics), made.remind_every_hours, made.chosen) == (["down", "slow"], 5, [monitor])
    _, done = copied(web, path, url="https://hooks.example/other")
    assert AlertChannel.objects.latest("pk").config["secret"] in done, "a new secret is shown once"
    _, refused = copied(web, path, project_id=other.public_id, monitors="all")
    assert "Is not copied to another project or server; enter it." in refused
    assert AlertChannel.objects.filter(project__isnull=False).count() == 3


def test_a_copied_address_is_asked_again(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user, kind="email", address="team@example.org")
    AlertChannel.objects.filter(pk=channel.pk).update(confirmed_at=utc_now(), confirmation_digest=None)
    mail.outbox.clear()
    page, done = copied(web, f"/alert-channels/new?from={channel.public_id}")
    assert "team@" not in page
    assert "has to confirm again" in page
    assert "A confirmation request was sent" in done
    made = AlertChannel.objects.latest("pk")
    assert (made.hint, made.confirmed_at) == ("t…@example.org", None)


@pytest.mark.parametrize("kind", ["ntfy", "apprise"])
def test_other_kinds_are_copied_too(web: Client, user: User, kind: str) -> None:
    given = {
        "ntfy": {"topic": "shop-alerts", "server": "https://ntfy.example", "priority": "high"},
        "apprise": {"apprise_url": "ntfys://ntfy.example/topic"},
    }
    channel = ChannelFactory(owner=user, kind=kind, **given[kind])
    copied(web, f"/alert-channels/new?from={channel.public_id}")
    assert AlertChannel.objects.latest("pk").config == channel.config
    assert AlertChannel.objects.latest("pk").pk != channel.pk


def test_a_window_is_copied_in_its_zone(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(project=project)
    starts = utc_now().replace(second=0, microsecond=0) + timedelta(days=2)
    given = {
        "name": "Weekly",
        "starts_at": starts,
        "ends_at": starts + timedelta(hours=2),
        "time_zone": "Europe/Berlin",
        "rrule": "FREQ=MONTHLY;COUNT=9",
        "monitors": "chosen",
        "monitor_ids": [monitor.public_id],
        "project_id": project.public_id,
    }
    window = create_window(Caller(user), given, now=utc_now())
    path = f"/maintenance/new?from={window.public_id}"
    assert path in web.get(f"/maintenance/{window.public_id}").content.decode()
    page, done = copied(web, path)
    assert "data-own-zone" not in page
    assert "Maintenance scheduled." in done
    made = MaintenanceWindow.objects.latest("pk")
    assert (made.name, made.project, made.chosen) == ("Weekly (copy)", project, [monitor])
    names = ("starts_at", "ends_at", "time_zone", "rrule", "all_monitors", "current_starts_at", "current_ends_at")
    assert [getattr(made, name) for name in names] == [getattr(window, name) for name in names]


def test_a_page_is_copied_with_its_monitors(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitors = [MonitorFactory(project=project, name=f"Private {number}") for number in range(3)]
    page = make_page(
        user,
        monitors[:2],
        project_id=project.public_id,
        slug="shop",
        description="All\nof it",
        password="letters and 8",
        theme="dark",
        published=False,
        show_locations=True,
    )
    set_logo(Caller(user), page.public_id, picture())
    make_subscriber(page)
    path = f"/status-pages/new?from={page.public_id}"
    assert path in web.get(f"/status-pages/{page.public_id}").content.decode()
    shown, done = copied(web, path, add=[monitors[2].public_id], add_to="More")
    assert "with the monitors that it shows and its logo" in shown
    assert "Status page created." in done
    made = StatusPage.objects.latest("pk")
    assert (made.name, made.slug, made.project) == ("Shop status (copy)", "shop-copy", project)
    assert made.password_hash == StatusPage.objects.get(pk=page.pk).password_hash
    assert (made.theme, made.published, made.show_locations) == ("dark", False, True)
    assert made.description.splitlines() == ["All", "of it"]
    groups = [(group.name, [item.name for item in group.monitors.all()]) for group in made.groups.order_by("pk")]
    assert groups == [("Shop", ["Shown 1", "Shown 2"]), ("More", ["Private 2"])]
    assert (PageLogo.objects.count(), made.subscribers.count()) == (2, 0)
    _, done = copied(web, path, remove_password="on")
    assert not StatusPage.objects.latest("pk").is_protected
    assert StatusPage.objects.latest("pk").slug == "shop-copy-2"


def test_tags_that_select_monitors_are_copied(web: Client, user: User) -> None:
    tags = ["web", "Größe ü"]
    channel = ChannelFactory(owner=user, monitors="chosen", monitor_tags=tags)
    start = utc_now() + timedelta(days=1)
    given = {"starts_at": start, "ends_at": start + timedelta(hours=1), "monitors": "chosen", "monitor_tags": tags}
    window = create_window(Caller(user), {"name": "Weekly", **given}, now=utc_now())
    named = [{"monitor_id": MonitorFactory(owner=user).public_id, "name": "Home"}]
    groups = [
        {"name": "Shop", "monitors": [], "monitor_tags": tags},
        {"name": "", "monitors": named, "monitor_tags": ["db"]},
    ]
    page = create_page(Caller(user), {"name": "Status", "slug": "shop", "groups": groups}, now=utc_now())
    copied(web, f"/alert-channels/new?from={channel.public_id}")
    assert AlertChannel.objects.latest("pk").monitor_tags == tags
    copied(web, f"/maintenance/new?from={window.public_id}")
    assert MaintenanceWindow.objects.latest("pk").monitor_tags == tags
    copied(web, f"/status-pages/new?from={page.public_id}", add_tags="more")
    made = StatusPage.objects.latest("pk")
    found = {
        group.name: (group.monitor_tags, [item.name for item in group.monitors.all()]) for group in made.groups.all()
    }
    assert (made.pk != page.pk, found) == (True, {"Shop": (tags, []), "": (["db", "more"], ["Home"])})


def test_a_copy_that_is_sent_twice_is_one(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user)
    path = f"/alert-channels/new?from={channel.public_id}"
    given = filled_in(web.get(path).content.decode())
    for _ in range(2):
        assert web.post(path, given, follow=True).status_code == 200
    assert AlertChannel.objects.filter(name__endswith=" (copy)").count() == 1


def test_what_is_not_there_cannot_be_copied(web: Client) -> None:
    other = UserFactory()
    start = utc_now() + timedelta(days=1)
    window = {"name": "Deploy", "starts_at": start, "ends_at": start + timedelta(hours=1), "monitors": "all"}
    rows = {
        "alert-channels": ChannelFactory(owner=other).public_id,
        "maintenance": create_window(Caller(other), window, now=utc_now()).public_id,
        "status-pages": make_page(other, []).public_id,
    }
    for section, alien in rows.items():
        for public_id in (alien, "nothing", "", "%00"):
            path = f"/{section}/new?from={public_id}"
            assert (web.get(path).status_code, web.post(path, {"name": "x"}).status_code) == (404, 404), path
