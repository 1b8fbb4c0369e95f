"""Members, tokens and channels, by keyboard only."""

from __future__ import annotations

import re

import requests
from playwright.sync_api import Page, expect

from core.ids import random_text
from tests.alerts.receiver import Receiver
from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.processes.client import PASSWORD


def test_a_project_its_people_and_a_token(browse: Browse, app: Application) -> None:
    owner, friend = app.person("owner"), app.person("friend")
    page = browse(owner)
    keyboard = Keyboard(page)
    _make_project(page, keyboard, "Web shop")

    _add_member(page, keyboard, friend.email)
    _add_member(page, keyboard, "stranger@example.com")
    invitation = app.link_in(app.mail_to("stranger@example.com"), with_="/invitations/")
    theirs = browse(friend)
    theirs.goto("/projects")
    expect(theirs.get_by_role("link", name="Web shop")).to_be_visible()
    stranger = browse()
    stranger.goto(invitation)
    expect(stranger.locator("main")).to_contain_text("Web shop")
    axe(stranger)

    keyboard.press(page.get_by_role("link", name="New token"))
    keyboard.fill(page.get_by_role("textbox", name="Name"), "deploys")
    axe(page)
    keyboard.press(page.get_by_role("button", name=re.compile("Create")))
    expect(page.get_by_role("heading", name="Copy the token now")).to_be_visible()
    axe(page)
    token = page.locator("#token").inner_text()
    headers = {"Authorization": f"Bearer {token}"}
    assert requests.get(f"{app.address}/v1/monitors", headers=headers, timeout=10).json() == []
    keyboard.press(page.get_by_role("link", name="Done"))
    expect(page.locator("main")).not_to_contain_text(token)
    keyboard.press(page.get_by_role("button", name="Revoke"))
    keyboard.press(page.get_by_role("dialog").get_by_role("button", name="Revoke"))
    expect(page.get_by_text("deploys")).to_have_count(0)
    assert requests.get(f"{app.address}/v1/monitors", headers=headers, timeout=10).status_code == 401


def test_an_invitation_link_is_copied_and_proves_no_address(browse: Browse, app: Application) -> None:
    """Anyone who opens it can sign up, and joins the project once the invited address is confirmed."""
    email = f"invited-{random_text(5)}@example.com"
    page = browse(app.person("owner"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    _make_project(page, Keyboard(page), "Web shop")
    _add_member(page, Keyboard(page), email)
    page.get_by_role("button", name=f"Copy the invitation link of {email}").click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
    axe(page)
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{app.address}/invitations/mbr_")

    invited = browse()
    invited.goto(link)
    axe(invited)
    invited.get_by_role("link", name="Sign up").click()
    invited.get_by_role("textbox", name="E-mail address").fill(email)
    invited.get_by_role("button", name="Send link").click()
    expect(invited.get_by_role("heading", level=1)).to_have_text("Check your e-mail")
    invited.goto(app.link_in(app.mail_to(email, about="Sign up for Pul"), with_="/account/signup/"))
    invited.get_by_label("Password").fill(PASSWORD)
    invited.get_by_role("button", name="Sign up", exact=True).click()
    expect(invited.get_by_role("heading", level=1)).to_have_text("Monitors")
    invited.goto("/projects")
    expect(invited.get_by_role("link", name="Web shop")).to_be_visible()


def test_copying_works_without_tls_and_says_when_it_does_not(browse: Browse, app: Application) -> None:
    somebody = app.person("copier")
    page = browse(somebody)
    # As on a page loaded over plain HTTP from another machine.
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    with somebody.client() as client:
        made = client.post("/monitors", {"type": "heartbeat", "interval_sec": 3600, "name": "Backup"})
    page.goto(f"/monitors/{made['id']}")
    page.get_by_role("button", name="Copy the ping address").click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
    page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Copy the ping address").click()
    expect(page.get_by_text("Could not copy. Select the text and copy it yourself.")).to_be_visible()
    assert page.evaluate("getSelection().toString()").strip().endswith("/ping")


def test_a_webhook_is_made_and_tried(browse: Browse, app: Application) -> None:
    page = browse(app.person())
    keyboard = Keyboard(page)
    with Receiver() as receiver:
        page.goto("/alert-channels")
        keyboard.press(page.get_by_role("link", name=re.compile("Add|New")).first)
        keyboard.press(page.get_by_role("link", name="Webhook", exact=True))
        axe(page)
        keyboard.fill(page.get_by_role("textbox", name="URL"), f"{receiver.url}/hook")
        keyboard.fill(page.get_by_role("textbox", name="Name"), "On call")
        keyboard.press(page.get_by_role("button", name=re.compile("Add|Create|Save")))
        expect(page.get_by_role("heading", name="Webhook secret")).to_be_visible()
        axe(page)
        keyboard.press(page.get_by_role("link", name="I have copied it"))
        keyboard.press(page.get_by_role("button", name=re.compile("test", re.IGNORECASE)))
        expect(page.get_by_text("Delivered.")).to_be_visible()
        axe(page)
        assert len(receiver.calls) == 1


def _make_project(page: Page, keyboard: Keyboard, name: str) -> None:
    page.goto("/projects")
    keyboard.fill(page.get_by_role("textbox", name="Name"), name)
    keyboard.press(page.get_by_role("button", name=re.compile("Create")))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def _add_member(page: Page, keyboard: Keyboard, email: str) -> None:
    keyboard.fill(page.get_by_role("textbox", name="E-mail"), email)
    keyboard.press(page.get_by_role("button", name="Add"))
    expect(page.get_by_role("main").get_by_role("listitem").filter(has_text=email)).to_be_visible()
