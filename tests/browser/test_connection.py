"""Pages that stay open while the server is down, while it hangs, and after the session has ended."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.sessions.models import Session
from playwright.sync_api import BrowserContext, Page, expect

from core.clock import utc_now
from core.ids import random_text
from incidents.services import declare
from projects.access import Caller
from tests.browser.application import Application, Person
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.factories import MonitorFactory
from tests.processes.client import PASSWORD
from tests.statuspages.making import make_page

LOOK_AGAIN = "document.dispatchEvent(new Event('visibilitychange'))"
LOST = re.compile(r"Connection lost, last update \d\d:\d\d:\d\d\.")
ENDED = "Your session has ended."
GREY = "grayscale(1)"
HEARTBEAT: dict[str, Any] = {"type": "heartbeat", "interval_sec": 86_400}


def test_live_pages_say_that_the_server_is_away(browse: Browse, app: Application) -> None:
    """Killed or hanging; afterwards they recover by themselves."""
    browse.allow("net::ERR_")
    somebody = app.person("watcher")
    first = browse(somebody)
    pages = [first, *(first.context.new_page() for _ in range(4))]
    for page, path in zip(pages, _live_paths(app, somebody), strict=True):
        page.goto(path)
        expect(page.locator("[data-live]").first).not_to_have_css("filter", GREY)

    with app.web_stopped():
        for page in pages:
            _expect_lost(page)
        axe(pages[0])
        axe(pages[-1])
    for page in pages:
        expect(page.get_by_text(LOST)).to_be_hidden()
        expect(page.locator("[data-live]").first).not_to_have_css("filter", GREY)

    with app.web_hanging():
        _expect_lost(first)
    expect(first.get_by_text(LOST)).to_be_hidden()


def test_a_page_without_network_says_so_at_once(browse: Browse, app: Application) -> None:
    browse.allow("net::ERR_INTERNET_DISCONNECTED")
    somebody = app.person("traveller")
    page = browse(somebody)
    page.goto(_live_paths(app, somebody)[0])
    page.context.set_offline(True)
    expect(page.get_by_text(LOST)).to_be_visible()
    with page.expect_event("requestfailed"):
        page.evaluate(LOOK_AGAIN)
    page.context.set_offline(False)
    expect(page.get_by_text(LOST)).to_be_hidden()


def test_live_pages_say_that_the_session_has_ended(browse: Browse, app: Application) -> None:
    browse.allow("status of 401")
    somebody = app.person("sleeper")
    first = browse(somebody)
    pages = [first, *(first.context.new_page() for _ in range(3))]
    for page, path in zip(pages, _live_paths(app, somebody), strict=False):
        page.goto(path)
    _end_sessions(app, first.context)
    for page in pages:
        page.evaluate(LOOK_AGAIN)
        expect(page.get_by_text(ENDED)).to_be_visible()
        expect(page.locator("[data-live]").first).to_have_css("filter", GREY)
    axe(first)
    _sign_in_elsewhere(first, somebody)
    for page in pages:
        page.evaluate(LOOK_AGAIN)
        expect(page.get_by_text(ENDED)).to_be_hidden()


def test_a_monitor_that_was_deleted_is_not_shown_as_up(browse: Browse, app: Application) -> None:
    browse.allow("status of 404")
    somebody = app.person("reader")
    page = browse(somebody)
    with app.database():
        monitor = MonitorFactory(owner=somebody.user, up=True, **HEARTBEAT)
    page.goto(f"/monitors/{monitor.public_id}")
    with app.database():
        monitor.delete()
    page.evaluate(LOOK_AGAIN)
    expect(page.get_by_text("This item no longer exists")).to_be_visible()


def test_a_form_outlives_its_session(browse: Browse, app: Application) -> None:
    """Also a form with the CSRF token of the previous session, for its test run and its button."""
    browse.allow("status of 401")
    somebody = app.person("writer")
    page = browse(somebody)
    page.goto("/monitors/new")
    page.get_by_label("Address").fill("https://shop.example/health")
    page.get_by_label("Name", exact=True).first.fill("Checkout")
    _end_sessions(app, page.context)

    page.get_by_role("button", name="Test run").click()
    expect(page.get_by_text(ENDED)).to_be_visible()
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_text("Not sent. What you typed is still here.")).to_be_visible()
    expect(page.get_by_label("Address")).to_have_value("https://shop.example/health")
    axe(page)

    _sign_in_elsewhere(page, somebody)
    page.evaluate(LOOK_AGAIN)
    expect(page.get_by_text(ENDED)).to_be_hidden()
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="Checkout", level=1)).to_be_visible()
    assert "shop.example" not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")


def test_a_form_is_not_sent_as_another_user(browse: Browse, app: Application) -> None:
    somebody, another = app.person("one"), app.person("two")
    page = browse(somebody)
    page.goto("/projects")
    page.get_by_label("Name").fill("Mine")
    _sign_in_elsewhere(page, another)
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_text(f"Sign in as {somebody.email} to continue here.")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("Mine")


def test_a_form_outlives_a_server_that_is_away(browse: Browse, app: Application) -> None:
    browse.allow("net::ERR_")
    page = browse(app.person("patient"))
    page.goto("/projects")
    page.get_by_label("Name").fill("Web shop")
    with app.web_stopped():
        page.get_by_role("button", name="Create project").click()
        expect(page.get_by_text(LOST)).to_be_visible()
        expect(page.get_by_label("Name")).to_have_value("Web shop")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name="Web shop", level=1)).to_be_visible()


def _live_paths(app: Application, somebody: Person) -> list[str]:
    """The list of monitors, a monitor, an incident, the list of incidents, and a public status page."""
    slug = f"shop-{random_text(5)}"
    with app.database():
        monitor = MonitorFactory(owner=somebody.user, up=True, **HEARTBEAT)
        incident = declare(Caller(somebody.user), {"title": "Tills", "text": "Nobody can pay."}, now=utc_now())
        make_page(somebody.user, [monitor], slug=slug)
    return [
        "/monitors",
        f"/monitors/{monitor.public_id}",
        f"/incidents/{incident.public_id}",
        "/incidents",
        f"/status/{slug}",
    ]


def _expect_lost(page: Page) -> None:
    page.evaluate(LOOK_AGAIN)
    expect(page.get_by_text(LOST)).to_be_visible()
    expect(page.locator("[data-live]").first).to_have_css("filter", GREY)


def _end_sessions(app: Application, context: BrowserContext) -> None:
    (key,) = [cookie["value"] for cookie in context.cookies() if cookie["name"] == "sessionid"]
    with app.database():
        assert Session.objects.filter(session_key=key).delete()[0]


def _sign_in_elsewhere(page: Page, somebody: Person) -> None:
    """Sign in in another tab of the same browser."""
    tab = page.context.new_page()
    if any(cookie["name"] == "sessionid" for cookie in page.context.cookies()):
        page.context.clear_cookies(name="sessionid")
    tab.goto("/account/login/")
    tab.get_by_label("E-mail").fill(somebody.email)
    tab.get_by_label("Password").fill(PASSWORD)
    tab.get_by_role("button", name="Sign in", exact=True).click()
    expect(tab.get_by_role("heading", name="Monitors", exact=True)).to_be_visible()
    tab.close()
