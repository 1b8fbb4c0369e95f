"""The admin in a browser: its scripts and styles comply with our policy, and its forms work."""

from __future__ import annotations

import re

from django.db import connection, transaction
from playwright.sync_api import Page, expect

from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse


def test_staff_finds_a_monitor_and_mutes_it(app: Application, browse: Browse) -> None:
    owner, other = app.person("customer"), app.person("stranger")
    for person, name in ((owner, "Till"), (other, "Blog")):
        with person.client() as client:
            client.post("/monitors", {"type": "heartbeat", "name": name, "interval_sec": 3600})
    page = browse(app.person("staff", staff=True))
    page.goto("/admin/monitors/monitor/")
    page.locator("form.staff-filter .select2-selection").first.click()
    page.locator(".select2-search__field").fill(owner.email[:12])
    page.get_by_role("option", name=owner.email).click()
    page.get_by_role("button", name="Show").first.click()
    table = page.locator("#result_list")
    expect(table.get_by_text("Till")).to_be_visible()
    expect(table.get_by_text("Blog")).to_have_count(0)
    table.locator("th a").first.click()
    page.get_by_role("button", name="Mute or unmute").click()
    page.get_by_label("Mute").select_option("for a day")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("1 monitor was muted for a day.")).to_be_visible()


def test_system_health(app: Application, browse: Browse) -> None:
    page = browse(app.person("staff", staff=True))
    page.goto("/admin/")
    page.get_by_role("link", name="System health").click()
    expect(page.get_by_role("link", name="System health")).to_have_attribute("aria-current", "page")
    processes = page.get_by_role("region", name="Processes").get_by_role("listitem")
    for kind in ("web", "worker", "interactive", "dispatcher", "beat"):
        expect(processes.filter(has_text=re.compile(rf"^{kind}\s*1$"))).to_be_visible()
    expect(page.get_by_text("No process reports")).to_have_count(0)
    _expect_accessible(page)


def test_system_health_with_a_slow_database(app: Application, browse: Browse) -> None:
    """Also while the navigation of other pages would block, because it counts incidents."""
    page = browse(app.person("staff", staff=True))
    with app.database(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE incidents_incident, statuspages_pagemail IN ACCESS EXCLUSIVE MODE")
        page.goto("/system")
    expect(page.get_by_text("the database did not answer within 2 s")).to_be_visible()
    expect(page.get_by_role("region", name="Queues").get_by_role("listitem").first).to_be_visible()
    _expect_accessible(page)


def test_system_health_is_for_staff(app: Application, browse: Browse) -> None:
    browse.allow("status of 404")
    page = browse(app.person("customer"))
    page.goto("/projects")
    expect(page.get_by_role("link", name="Projects")).to_be_visible()
    expect(page.get_by_role("link", name="System health")).to_have_count(0)
    page.goto("/system")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def _expect_accessible(page: Page) -> None:
    for width, height in ((1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        axe(page)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
