"""Importing from another product, by upload and by paste."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.browser.test_making import PHONE, fits

KUMA = json.dumps(
    {
        "monitorList": [
            {"id": 1, "type": "group", "name": "Shop"},
            {"name": "Home", "type": "http", "url": "https://x.example/", "parent": 1, "tags": [{"name": "prod"}]},
            {"name": "Cart", "type": "http", "url": "https://x.example/cart", "parent": 1, "tags": [{"name": "prod"}]},
            {"name": "Backup", "type": "push", "interval": 3600},
            {"name": "Router", "type": "ping", "hostname": "192.168.1.1"},
            {"name": "Closed", "type": "port", "hostname": "x.example", "port": 23, "upsideDown": True},
        ]
    }
)


def test_an_export_is_uploaded_chosen_imported_and_undone(app: Application, browse: Browse) -> None:
    page = browse(app.person())
    page.goto("/monitors")
    page.get_by_role("link", name="Import from another product").click()
    page.get_by_role("radio", name="Uptime Kuma").check()
    file = {"name": "kuma.json", "mimeType": "application/json", "buffer": KUMA.encode()}
    page.get_by_label("File").set_input_files(file)  # type: ignore[arg-type]
    axe(page)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("3 to create, 0 existing, 2 to skip.")
    expect(page.locator("main")).to_contain_text("1 in private networks.")
    expect(page.get_by_text("3 selected")).to_be_visible()
    axe(page)
    page.get_by_role("checkbox", name="Cart").uncheck()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("status").last).to_have_text("2 created, 0 existing, 0 skipped.")
    expect(page.locator("main")).to_contain_text("New ping URL")
    axe(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    page.get_by_role("button", name="Undo import").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(page.locator("main")).to_contain_text("2 monitors removed.")
    axe(page)


def test_text_is_pasted_by_keyboard_on_a_phone(app: Application, browse: Browse) -> None:
    page = browse(app.person(), viewport=PHONE)
    keyboard = Keyboard(page)
    page.goto("/monitors/import")
    assert fits(page)
    page.get_by_role("radio", name="Healthchecks").check()
    text = page.get_by_label("Or paste the text")
    keyboard.fill(text, "no JSON")
    keyboard.press(page.get_by_role("button", name="Preview"))
    expect(page.get_by_role("alert")).to_contain_text("The file is not JSON.")
    expect(text).to_have_value("no JSON")
    text.fill(json.dumps({"checks": [{"name": "Backup", "timeout": 3600, "grace": 60}]}))
    keyboard.press(page.get_by_role("button", name="Preview"))
    expect(page.get_by_role("checkbox", name="Backup")).to_be_checked()
    assert fits(page)
    axe(page)


def test_a_large_text_is_refused_before_it_is_sent(app: Application, browse: Browse) -> None:
    page = browse(app.person())
    page.goto("/monitors/import")
    page.get_by_role("radio", name="Gatus").check()
    text = page.get_by_label("Or paste the text")
    text.fill("a" * 200_001)
    page.get_by_role("button", name="Preview").click()
    assert text.evaluate("field => field.validationMessage") == "Longer than 200 KB: upload it as a file."
    text.fill("a")
    assert text.evaluate("field => field.validationMessage") == ""
