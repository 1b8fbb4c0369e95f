"""People, tokens and channels, by keyboard alone."""

from __future__ import annotations

import re

import requests
from playwright.sync_api import Page, expect

from tests.alerts.receiver import Receiver
from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard


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


def test_a_webhook_is_made_and_tried(browse: Browse, app: Application) -> None:
    page = browse(app.person())
    keyboard = Keyboard(page)
    with Receiver() as receiver:
        page.goto("/alert-channels")
        keyboard.press(page.get_by_role("link", name=re.compile("Add|New")).first)
        keyboard.press(page.get_by_role("link", name="Use a webhook"))
        axe(page)
        keyboard.fill(page.get_by_role("textbox", name="URL"), f"{receiver.url}/hook")
        keyboard.fill(page.get_by_role("textbox", name="Name"), "On call")
        keyboard.press(page.get_by_role("button", name=re.compile("Add|Create|Save")))
        expect(page.get_by_role("heading", name="The secret of this webhook")).to_be_visible()
        axe(page)
        keyboard.press(page.get_by_role("link", name="I have copied it"))
        keyboard.press(page.get_by_role("button", name=re.compile("test", re.IGNORECASE)))
        expect(page.get_by_text("It arrived.")).to_be_visible()
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
