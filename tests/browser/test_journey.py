"""The journey of a new user, by keyboard only: from signing up to a resolved outage."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.keyboard import Keyboard
from tests.site import Site

EMAIL = "newcomer@example.com"
LONG_PASSWORD = "a mare eats oats"


def test_from_signing_up_to_the_end_of_an_outage(page: Page, app: Application, keyboard: Keyboard) -> None:
    with Site() as site:
        _sign_up(page, app, keyboard)
        _create(page, keyboard, site.url("/ok"))
        monitor = page.url
        expect(_state(page)).to_contain_text("Up")
        axe(page)

        site.stop()
        expect(_state(page)).to_contain_text("Down")
        mail = app.mail_to(EMAIL, about="[DOWN]")
        page.goto(app.link_in(mail, with_="/incidents/"))
        expect(page.get_by_role("heading", level=1)).to_have_text("The shop")
        axe(page)
        keyboard.press(page.get_by_role("button", name="Acknowledge"))
        expect(page.get_by_text(f"Acknowledged by {EMAIL}")).to_be_visible()
        keyboard.fill(page.get_by_role("textbox", name="Comment"), "Looking into it")
        keyboard.press(page.get_by_role("button", name="Comment"))
        expect(page.get_by_text("Looking into it")).to_be_visible()

        site.start()
        expect(page.get_by_text(re.compile("Recovered|Resolved")).first).to_be_visible()
        app.mail_to(EMAIL, about="[RECOVERED]")
        page.goto(monitor)
        expect(_state(page)).to_contain_text("Up")


def _sign_up(page: Page, app: Application, keyboard: Keyboard) -> None:
    page.goto("/")
    axe(page)
    keyboard.press(page.get_by_role("link", name="Sign up"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign up")
    axe(page)
    keyboard.fill(page.get_by_role("textbox", name="E-mail"), EMAIL)
    keyboard.press(page.get_by_role("button", name="Send link"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Check your e-mail")
    axe(page)
    page.goto(app.link_in(app.mail_to(EMAIL)))
    expect(page.get_by_role("heading", level=1)).to_have_text("Choose a password")
    axe(page)
    keyboard.fill(page.get_by_role("textbox", name="Password"), LONG_PASSWORD)
    keyboard.press(page.get_by_role("button", name="Sign up", exact=True))
    expect(page.get_by_role("heading", level=1)).to_have_text("Monitors")
    axe(page)


def _create(page: Page, keyboard: Keyboard, url: str) -> None:
    """A test run first, then the monitor."""
    keyboard.press(page.get_by_role("link", name="Create your first monitor"))
    expect(page.get_by_role("heading", level=1)).to_have_text("New monitor")
    axe(page)
    keyboard.fill(page.get_by_role("textbox", name="Address"), url)
    keyboard.fill(page.get_by_role("textbox", name="Name"), "The shop")
    keyboard.fill(page.get_by_role("textbox", name="Check every"), "1s")
    keyboard.fill(page.get_by_role("spinbutton", name="Failures before down"), "1")
    keyboard.press(page.get_by_role("button", name="Test run"))
    expect(page.get_by_role("region", name="Test run")).to_contain_text("Up")
    axe(page)
    keyboard.press(page.get_by_role("button", name="Create monitor"))
    expect(page.get_by_role("heading", level=1)).to_have_text("The shop")


def _state(page: Page) -> Locator:
    """Not the whole region, whose "Uptime" contains "Up"."""
    return page.get_by_role("region", name="State").locator(".badge.large")
