"""The harness of the browser tests works on real pages, and detects faults."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.application import Application
from tests.browser.axe import COLOR_RULES, axe, violations
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.browser.watching import Watch, without
from tests.processes.client import PASSWORD
from tests.site import Site

POLICY = "default-src 'none'; script-src 'nonce-good'; connect-src *"
BAD = """<!doctype html><html lang="en"><title>Bad</title><main><h1>Bad</h1>
<button id="nameless"></button> <a href="#" id="bare">bare</a> <a href="#" id="skipped" tabindex="-1">skipped</a>
<script nonce="good">
    document.getElementById("bare").style.outline = "none";
    console.error("said");
    fetch("http://203.0.113.1/beacon").catch(() => { throw new Error("thrown") });
</script>
<script>document.title = "Worse"</script>
</main>"""


@pytest.fixture
def bad(browser: Browser, app: Application) -> Page:
    page = browser.new_context(base_url=app.address).new_page()

    def answer(route: Route) -> None:
        headers = {"Content-Type": "text/html", "Content-Security-Policy": POLICY}
        route.fulfill(headers=headers, body=BAD)

    page.route("**/bad", answer)
    return page


def test_docs(page: Page) -> None:
    page.goto("/docs")
    expect(page.get_by_role("heading", name="Pulsekeeper API")).to_be_visible()


def test_a_page_that_is_not_there(page: Page, browse: Browse) -> None:
    browse.allow("status of 404")
    page.goto("/nowhere")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    axe(page)


def test_signing_in_by_keyboard_alone(page: Page, app: Application, keyboard: Keyboard) -> None:
    staff = app.person("staff", staff=True)
    page.goto("/admin/login/")
    axe(page)
    keyboard.fill(page.get_by_role("textbox", name="E-mail"), staff.email)
    keyboard.fill(page.get_by_role("textbox", name="Password"), PASSWORD)
    keyboard.press(page.get_by_role("button", name="Sign in", exact=True))
    expect(page.get_by_role("link", name="Users")).to_be_visible()
    axe(page)


def test_somebody_who_is_signed_in(browse: Browse, app: Application) -> None:
    page = browse(app.person("staff", staff=True))
    page.goto("/admin/")
    expect(page.get_by_role("link", name="Users")).to_be_visible()


def test_workers_check_and_mails_arrive(page: Page, app: Application) -> None:
    somebody = app.person()
    with Site() as site, somebody.client() as client:
        made = client.post("/monitors", {"url": site.url("/ok"), "interval_sec": 1})
        assert made["status"] == "up"
        client.post("/alert-channels", {"kind": "email", "address": "else@example.com"})
    page.goto(app.link_in(app.mail_to("else@example.com")))
    expect(page.get_by_role("heading")).to_be_visible()


def test_faults_are_seen(bad: Page, app: Application) -> None:
    watch = Watch(bad.context, address=app.address)
    with bad.expect_event("pageerror"):
        bad.goto("/bad")
    watch.close()
    for fault in (
        "console: said",
        "console: Executing inline script violates the following Content Security Policy",
        "a request to another host: GET http://203.0.113.1/beacon",
        "uncaught: thrown",
    ):
        assert any(each.startswith(fault) for each in watch.faults), (fault, watch.faults)


def test_violations_are_seen(bad: Page) -> None:
    bad.goto("/bad")
    (found,) = violations(bad)
    assert "critical button-name" in found
    assert "#nameless" in found
    with pytest.raises(AssertionError, match="dark: critical button-name"):
        axe(bad)


def test_all_enabled_rules_of_colors_run_in_both_schemes(bad: Page) -> None:
    bad.goto("/bad")
    violations(bad)
    found = bad.evaluate("axe.getRules(['cat.color']).map(rule => rule.ruleId)")
    assert {*found} == {*COLOR_RULES, "color-contrast-enhanced"}  # which is disabled by default
    bad.evaluate("document.documentElement.style.colorScheme = 'light dark'")
    bad.evaluate("document.body.style.cssText = 'background: light-dark(#fff, #000); color: light-dark(#eee, #fff)'")
    bad.locator("main").evaluate("main => main.append('Hard to read')")
    with pytest.raises(AssertionError, match="light: serious color-contrast"):
        axe(bad)


def test_invisible_and_unreachable_stops_are_reported(bad: Page) -> None:
    bad.goto("/bad")
    keyboard = Keyboard(bad)
    with pytest.raises(AssertionError, match="nothing shows"):
        keyboard.reach(bad.locator("#bare"))
    with pytest.raises(AssertionError, match=r"not reached by Tab. The stops: .*button.*a bare"):
        keyboard.reach(bad.locator("#skipped"))


def test_what_is_allowed_has_to_happen() -> None:
    faults = ["console: status of 404", "uncaught: thrown"]
    assert without(faults, ["404", "never"]) == ["uncaught: thrown", "allowed, and never happened: never"]
