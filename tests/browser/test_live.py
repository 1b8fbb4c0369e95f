"""Open pages show changes at once, by one stream for all tabs of a browser, and without it by polling."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import requests
from playwright.sync_api import Page, expect

from core.clock import utc_now
from tests.browser.application import Application
from tests.browser.browsing import PATIENCE_MS, Browse
from tests.processes.client import Client
from tests.processes.waiting import until

LIVE = "**/monitors/live?*"
STREAMS_SEC = 30  # the figure is reported each second, and /metrics is cached for 5 s


def heartbeat(client: Client) -> dict[str, Any]:
    made: dict[str, Any] = client.post("/monitors", {"type": "heartbeat", "interval_sec": 3600, "name": "Backup"})
    client.post(f"/heartbeats/{made['id']}/ping")
    return made


def open_list(page: Page) -> None:
    """Open the list, and wait until its stream is open and it has asked once."""
    with page.expect_request(LIVE):
        page.goto("/monitors")
    expect(page.get_by_role("row", name="Backup")).to_contain_text("Up")


def stop_timers(page: Page) -> None:
    """Stop the timers of the page, whose clock is installed, so that it does not poll."""
    page.clock.pause_at(utc_now() + timedelta(seconds=1))


def streams(app: Application) -> int:
    text = requests.get(f"{app.address}/metrics", timeout=30).text
    found = re.search(r"^pulsekeeper_change_streams (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_change_is_on_the_list_without_polling(browse: Browse, app: Application) -> None:
    somebody = app.person("watcher")
    page = browse(somebody)
    page.context.clock.install()
    with somebody.client() as client:
        monitor = heartbeat(client)
        open_list(page)
        stop_timers(page)
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        expect(page.get_by_role("row", name="Backup")).to_contain_text("Down")
        expect(page).to_have_title(re.compile("^1 down"))


def test_many_tabs_share_one_stream(browse: Browse, app: Application) -> None:
    """A browser opens up to six connections to a host: with one stream per tab, the seventh tab would never load."""
    somebody = app.person("collector")
    first = browse(somebody)
    first.context.clock.install()
    until(lambda: streams(app) == 0, STREAMS_SEC, "no other test has a stream")
    with somebody.client() as client:
        monitor = heartbeat(client)
        open_list(first)
        pages = [first, *(first.context.new_page() for _ in range(7))]
        for page in pages[1:]:
            page.goto(f"/monitors/{monitor['id']}")
        for page in pages:
            stop_timers(page)
        until(lambda: streams(app) == 1, STREAMS_SEC, "there is one stream")
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        expect(first.get_by_role("row", name="Backup")).to_contain_text("Down")
        for page in pages[1:]:
            expect(page.locator("#state")).to_contain_text("down since")


def test_without_locks_a_visible_page_has_its_own_stream(browse: Browse, app: Application) -> None:
    somebody = app.person("mobile")
    page = browse(somebody)
    page.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
    page.context.clock.install()
    with somebody.client() as client:
        monitor = heartbeat(client)
        open_list(page)
        stop_timers(page)
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        expect(page.get_by_role("row", name="Backup")).to_contain_text("Down")
        until(lambda: streams(app) == 1, STREAMS_SEC, "there is one stream")
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        until(lambda: streams(app) == 0, STREAMS_SEC, "a hidden page has none")


def test_pages_follow_again_after_a_restart(browse: Browse, app: Application) -> None:
    """A stream does not delay the shutdown of the process."""
    somebody = app.person("operator")
    page = browse(somebody)
    page.context.clock.install()
    with somebody.client() as client:
        monitor = heartbeat(client)
        open_list(page)
        stop_timers(page)
        until(lambda: streams(app) == 1, STREAMS_SEC, "there is one stream")
        assert app.restart_web()

        def is_open_again() -> bool:
            page.clock.run_for(1_000)  # a browser opens a lost stream again by itself, and the page a refused one
            return streams(app) == 1

        until(is_open_again, STREAMS_SEC, "there is one again")
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        expect(page.get_by_role("row", name="Backup")).to_contain_text("Down")


def test_without_a_stream_the_list_polls(browse: Browse, app: Application) -> None:
    browse.allow("net::ERR_FAILED")
    somebody = app.person("behind-a-proxy")
    page = browse(somebody)
    page.context.clock.install()
    page.route("**/changes", lambda route: route.abort())
    with somebody.client() as client:
        monitor = heartbeat(client)
        with page.expect_request("**/changes"):
            page.goto("/monitors")
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        page.clock.fast_forward(15_000)
        expect(page.get_by_role("row", name="Backup")).to_contain_text("Down", timeout=PATIENCE_MS)
