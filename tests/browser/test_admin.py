"""The admin in a browser: its scripts and styles stand under our policy, and its forms do what they say."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.application import Application
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
    page.get_by_role("button", name="Mute, or end a mute").click()
    page.get_by_label("Mute").select_option("for a day")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_text("1 monitor was muted for a day.")).to_be_visible()


def test_the_health_page_counts_the_processes(app: Application, browse: Browse) -> None:
    page = browse(app.person("staff", staff=True))
    page.goto("/admin/")
    page.get_by_role("link", name="System health").click()
    for kind in ("web", "worker", "interactive", "dispatcher", "beat"):
        expect(page.get_by_role("row", name=f"Processes: {kind} 1")).to_be_visible()
    expect(page.get_by_text("No process reports")).to_have_count(0)
