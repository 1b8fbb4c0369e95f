"""The list of monitors and the page of a monitor: what live updates change, and what they leave alone."""

from __future__ import annotations

import re
from datetime import timedelta

import requests
from playwright.sync_api import Locator, Route, expect

from checks.results.models import CheckResult
from core.clock import utc_now
from monitors.services import update_monitor
from projects.access import Caller
from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.browser.test_making import PHONE, fits
from tests.factories import MonitorFactory
from tests.site import Site

LOOKED_AT_AGAIN = "document.dispatchEvent(new Event('visibilitychange'))"
HEARTBEAT = {"type": "heartbeat", "interval_sec": 3600}


def test_a_choice_outlives_what_changes_around_it(browse: Browse, app: Application) -> None:
    somebody = app.person("watcher")
    page = browse(somebody)
    with somebody.client() as client:
        made = {name: client.post("/monitors", HEARTBEAT | {"name": name}) for name in ("Backup", "Report")}
        page.goto("/monitors")
        keyboard = Keyboard(page)
        keyboard.press(page.get_by_role("checkbox", name="Backup"), "Space")
        with app.database():
            update_monitor(Caller(somebody.user), made["Report"]["id"], {"enabled": False}, now=utc_now())
        page.evaluate(LOOKED_AT_AGAIN)
        expect(page.get_by_role("row", name="Report")).to_contain_text("Paused")
        expect(page.get_by_role("checkbox", name="Backup")).to_be_checked()
        expect(page.get_by_text("The order has changed")).to_be_visible()
        axe(page)
        keyboard.press(page.get_by_role("button", name="Pause", exact=True))
        expect(page.get_by_text("Paused 1 monitor.")).to_be_visible()
        expect(page.get_by_role("row", name="Backup")).to_contain_text("Paused")


def test_a_search_is_an_address_that_one_can_go_back_from(browse: Browse, app: Application) -> None:
    somebody = app.person("seeker")
    page = browse(somebody)
    with somebody.client() as client:
        for name in ("Backup", "Report"):
            client.post("/monitors", HEARTBEAT | {"name": name})
    page.goto("/monitors")
    page.get_by_role("searchbox").fill("back")
    expect(page.get_by_role("link", name="Report")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/monitors\?q=back$"))
    page.go_back()
    expect(page.get_by_role("link", name="Report")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_value("")


def test_the_page_of_a_monitor_follows_its_state(browse: Browse, app: Application) -> None:
    somebody = app.person("reader")
    page = browse(somebody)
    with somebody.client() as client:
        monitor = client.post("/monitors", HEARTBEAT | {"name": "Backup"})
        page.goto(f"/monitors/{monitor['id']}")
        expect(page.locator("#state")).to_contain_text("Waiting")
        client.post(f"/heartbeats/{monitor['id']}/ping")
        page.evaluate(LOOKED_AT_AGAIN)
        expect(page.locator("#state .badge.large")).to_have_text("Up")
        expect(page.locator("#signals")).to_contain_text("Success")
        axe(page)


def test_a_countdown_is_right_though_the_viewers_clock_is_not(browse: Browse, app: Application) -> None:
    somebody = app.person("late")
    page = browse(somebody)
    page.clock.install(time=utc_now() - timedelta(hours=5))
    with somebody.client() as client:
        monitor = client.post("/monitors", HEARTBEAT | {"name": "Backup"})
        page.goto(f"/monitors/{monitor['id']}")
        expect(page.locator("#state")).to_contain_text("waiting for the first ping")
        client.post(f"/heartbeats/{monitor['id']}/ping")
        page.evaluate(LOOKED_AT_AGAIN)
        timer = page.get_by_role("timer")
        expect(timer).to_have_text(re.compile("^in (1 h|60 min|59 min)"))
        held: list[Route] = []
        page.route("**/live?*", lambda route: route.continue_() if held else held.append(route))
        with page.expect_request("**/live?*"):
            page.clock.pause_at(utc_now() - timedelta(hours=3))
        expect(timer).to_have_text("overdue")
        with app.database():
            update_monitor(Caller(somebody.user), monitor["id"], {"enabled": False}, now=utc_now())
        page.evaluate(LOOKED_AT_AGAIN)
        held[0].fulfill(status=204)  # the page asks again: this answer is older than the change
        expect(page.locator("#state")).to_contain_text(re.compile(r"Next deadline\s*paused"))


def test_the_signals_of_a_job(browse: Browse, app: Application) -> None:
    somebody = app.person("operator")
    page = browse(somebody)
    hostile = "<script>document.title = 'hacked'</script> \u202eelif evil\U0001f4a5 " + "x" * 9_900
    with somebody.client() as client:
        monitor = client.post("/monitors", HEARTBEAT | {"name": "Backup"})
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.goto(f"/monitors/{monitor['id']}")
        expect(page.locator("#state")).to_contain_text("waiting for the first ping")
        assert fits(page)
        page.set_viewport_size({"width": 1280, "height": 800})
        for word, body in (("start", ""), ("7", hostile), ("start", ""), ("", "backup of 3 tables"), ("start", "")):
            address = f"{app.address}/v1/heartbeats/{monitor['id']}/ping/{word}".rstrip("/")
            requests.post(address, data=body.encode(), timeout=30).raise_for_status()
        page.goto(f"/monitors/{monitor['id']}")
        expect(page.get_by_role("img", name="1 succeeded, 1 failed, 1 still running")).to_be_visible()
        page.locator("#signals summary", has_text="Fail").click()
        expect(page.get_by_role("region", name="Body")).to_contain_text("<script>document.title = 'hacked'</script>")
        axe(page)
        page.get_by_role("link", name="Search all of them").click()
        page.get_by_role("searchbox").fill("TABLES")
        page.keyboard.press("Enter")
        expect(page.locator(".checks > li")).to_have_count(1)
        expect(page).to_have_title(re.compile("^Signals of Backup"))
        page.locator(".checks summary").click()
        axe(page)
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert fits(page)
        page.goto(f"/monitors/{monitor['id']}")
        page.locator("#signals summary", has_text="Fail").click()
        assert fits(page)
        axe(page)
        client.post(f"/heartbeats/{monitor['id']}/ping/fail")
        page.reload()
        expect(page.locator("#state")).to_contain_text("down since")
        assert fits(page)


def test_check_now_shows_its_result_on_the_page(browse: Browse, app: Application) -> None:
    somebody = app.person("curious")
    page = browse(somebody)
    with Site() as site, somebody.client() as client:
        monitor = client.post("/monitors", {"url": site.url("/ok"), "name": "Shop", "interval_sec": 3600})
        page.goto(f"/monitors/{monitor['id']}")
        page.evaluate("window.isTheSamePage = true")
        result, button = page.locator("#checked"), page.get_by_role("button", name="Check now")
        button.click()
        expect(result).to_contain_text(re.compile(r"Checked .*: Up, HTTP 200"))
        expect(page.locator("#checks li")).to_have_count(2)
        axe(page)
        site.stop()
        button.click()
        expect(result).to_contain_text(re.compile(r"Checked .*: Down"))
        page.locator("#checks summary").first.click()  # stays open; the state above it is updated
        site.start()
        button.click()
        expect(result).to_contain_text(re.compile(r"Checked .*: Up"))
        expect(page.locator("#checks details[open]")).to_have_count(1)
        with app.database():
            update_monitor(Caller(somebody.user), monitor["id"], {"enabled": False}, now=utc_now())
        browse.allow("409 ")
        button.click()
        expect(page.locator("#announcements")).to_have_text("The monitor is paused; resume it to check it.")
        axe(page)
        assert page.evaluate("window.isTheSamePage")


def test_the_first_result_appears_without_a_reload(browse: Browse, app: Application) -> None:
    """The page polls for it each second, more often than for other changes."""
    page = browse(app.person("creator"))
    with Site() as site:
        page.goto("/monitors/new")
        page.get_by_label("Address").fill(site.url("/hang"))
        page.get_by_label("Name", exact=True).first.fill("Shop")
        page.get_by_role("button", name="Create monitor").click()
        expect(page.locator("#checked")).to_contain_text("Checking…")
        for _ in range(2):
            with page.expect_request(re.compile("/live.*checking=")):
                pass
    expect(page.locator("#checked")).to_contain_text(re.compile(r"Checked .*: Down"))
    expect(page.locator("#checks li")).to_have_count(1)
    axe(page)
    expect(page.locator("#poll")).not_to_have_attribute("data-poll", re.compile("checking="))


def test_the_list_shows_reasons_and_may_be_compact(browse: Browse, app: Application) -> None:
    somebody = app.person("operator")
    page = browse(somebody)
    with app.database():
        given = {"owner": somebody.user, "interval_sec": 86_400, "created_at": utc_now()}
        made = [MonitorFactory(name=f"Shop {number}", down=True, **given) for number in range(3)]
        results = CheckResult.objects.filter(monitor_id__in=[monitor.pk for monitor in made])
        results.update(detail=f"Answered <b>500</b> to {'very ' * 30}long requests.")
        results.filter(monitor_id=made[0].pk).update(detail="The certificate expired 3 days ago, on 2026-11-21.")
    page.goto("/monitors")
    row = page.get_by_role("row", name="Shop 1")
    expect(row).to_contain_text("Answered <b>500</b> to very very")
    axe(page)
    usual = _height(row)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    Keyboard(page).press(page.get_by_role("checkbox", name="Compact rows"), "Space")
    assert _height(row) < usual * 0.7
    axe(page)
    assert not [url for url in asked if "/live" not in url], "the list is not fetched again"
    page.reload()
    expect(page.get_by_role("checkbox", name="Compact rows")).to_be_checked()
    assert _height(row) < usual * 0.7
    for size in (PHONE, {"width": 1280, "height": 800}):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert fits(page)
        axe(page)
        reason = page.get_by_role("row", name="Shop 0").locator(".why")
        assert reason.evaluate(
            """reason => {
                const [inner, outer] = [reason, reason.closest("td")].map((each) => each.getBoundingClientRect());
                return reason.scrollHeight <= reason.clientHeight && inner.right <= outer.right;
            }"""
        ), "the whole reason is shown"
    page.get_by_role("searchbox").fill("Shop 1")
    expect(page.get_by_role("row", name="Shop 2")).to_be_hidden()
    page.go_back()
    expect(page.get_by_role("row", name="Shop 2")).to_be_visible()
    expect(page.get_by_role("checkbox", name="Compact rows")).to_be_checked()
    page.get_by_role("checkbox", name="Compact rows").uncheck()
    page.reload()
    expect(page.get_by_role("checkbox", name="Compact rows")).not_to_be_checked()


def test_tags_are_completed_and_narrow_the_list(browse: Browse, app: Application) -> None:
    somebody = app.person("tagger")
    page = browse(somebody)
    with somebody.client() as client:
        tags = [f"tag {number}" for number in range(12)]
        client.post("/monitors", HEARTBEAT | {"name": "Backup", "tags": ["production", "db", *tags]})
        client.post("/monitors", HEARTBEAT | {"name": "Report", "tags": ["production"]})
        client.post("/monitors", HEARTBEAT | {"name": "Draft"})
    page.goto("/monitors/new")
    page.get_by_label("Tags").press_sequentially("production, d")
    offered = page.locator("#tag-names option").evaluate_all("options => options.map(option => option.value)")
    assert offered[0] == "production, db"
    assert "production, production" not in offered
    page.goto("/monitors")
    axe(page)
    page.locator("summary", has_text="Tags").click()
    page.get_by_role("checkbox", name="production").check()
    expect(page.get_by_role("link", name="Draft")).to_be_hidden()
    expect(page.get_by_role("link", name="Report")).to_be_visible()
    page.get_by_role("checkbox", name="db 1").check()
    expect(page.get_by_role("link", name="Report")).to_be_hidden()
    expect(page).to_have_url(re.compile(r"/monitors\?tag=production&tag=db$|/monitors\?tag=db&tag=production$"))
    axe(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page), "the open menu is on the screen"
    for tag in ("production", "db"):
        assert page.get_by_role("link", name=f"Remove the filter {tag}").locator(".icon").bounding_box()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Remove the filter db").click()
    expect(page.get_by_role("link", name="Report")).to_be_visible()
    page.get_by_role("link", name="Backup", exact=True).click()
    expect(page.get_by_role("link", name="tag 11")).to_be_visible()
    axe(page)


def _height(row: Locator) -> float:
    box = row.bounding_box()
    assert box is not None
    return box["height"]


def test_parents_are_searched_chosen_and_follow_the_project(browse: Browse, app: Application) -> None:
    somebody = app.person("network")
    page = browse(somebody)
    with somebody.client() as client:
        made = {name: client.post("/monitors", HEARTBEAT | {"name": name}) for name in ("Router", "Switch", "Web")}
        client.post("/projects", {"name": "Shop"})
        page.goto(f"/monitors/{made['Web']['id']}/edit")
        page.get_by_text("Dependencies").click()
        picker = page.get_by_role("group", name="Depends on")
        expect(picker.get_by_text("None selected")).to_be_visible()
        picker.get_by_role("searchbox").fill("rout")
        expect(picker.get_by_role("checkbox", name="Switch")).to_be_hidden()
        picker.get_by_role("checkbox", name="Router").check()
        expect(picker.get_by_text("1 selected")).to_be_visible()
        axe(page)
        with page.expect_response(re.compile("/monitors/parents")):
            page.get_by_label("Project").select_option("Shop")
        expect(picker.get_by_role("checkbox", name="Router")).to_be_checked()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Web is saved.")).to_be_visible()
        page.get_by_role("link", name="Router").click()
        page.get_by_role("link", name="1 monitor depends on it").click()
        expect(page.get_by_role("link", name="Web", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="Switch", exact=True)).to_be_hidden()
        axe(page)
        page.get_by_role("link", name="Remove the filter: depends on Router").click()
        expect(page.get_by_role("link", name="Switch", exact=True)).to_be_visible()
