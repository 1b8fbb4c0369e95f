"""Staff are asked once whether checks may reach private networks."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.test_making import PHONE, fits

QUESTION = "May checks reach private networks?"


def test_staff_are_asked_and_a_router_is_monitored(app: Application, browse: Browse) -> None:
    member = browse(app.person("member"))
    member.goto("/monitors")
    expect(member.get_by_role("heading", name=QUESTION)).to_have_count(0)
    page = browse(app.person("staff", staff=True), viewport=PHONE)
    page.goto("/monitors")
    question = page.get_by_role("region", name=QUESTION)
    expect(question).to_be_visible()
    assert fits(page)
    axe(page)
    try:
        question.get_by_role("button", name="Allow private networks").click()
        expect(page.locator("[data-messages]")).to_contain_text("Checks may reach private networks.")
        expect(question).to_have_count(0)
        page.goto("/monitors/new?type=ping")
        page.get_by_label("Address").fill("icmp://192.168.255.254")
        page.get_by_role("button", name="Create monitor").click()
        expect(page.get_by_role("heading", name="192.168.255.254", level=1)).to_be_visible()
    finally:
        page.goto("/private-networks")
        axe(page)
        page.get_by_role("button", name="Do not allow").click()
        expect(page.locator("[data-messages]")).to_contain_text("Checks may not reach private networks.")
    page.goto("/monitors/new?type=ping")
    page.get_by_label("Address").fill("icmp://192.168.255.254")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.locator("main")).to_contain_text("/private-networks allows private networks.")
