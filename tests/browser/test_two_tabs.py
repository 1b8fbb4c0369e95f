"""A form that was opened before another tab changed the settings."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse


def test_both_values_are_shown_and_chosen(browse: Browse, app: Application) -> None:
    person = app.person()
    with person.client() as client:
        monitor = client.post("/monitors", {"type": "heartbeat", "name": "Backup", "interval_sec": 300})
    path = f"/monitors/{monitor['id']}/edit"
    narrow = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    first, second = browse(person), browse(person, **narrow)
    for page in (first, second):
        page.goto(path)
    first.locator("#id_name").fill("Nightly backup")
    first.get_by_role("button", name="Save").click()
    expect(first.get_by_text("Nightly backup is saved.")).to_be_visible()

    second.locator("#id_interval_sec").fill("10m")
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_role("alert")).to_contain_text("The settings were changed after you opened this form.")
    row = second.get_by_role("row").filter(has_text="Nightly backup")
    expect(row).to_contain_text("Backup")
    axe(second)
    row.get_by_role("checkbox", name="Use the stored value of Name").check()
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_text("Nightly backup is saved.")).to_be_visible()
    with person.client() as client:
        stored = client.get(f"/monitors/{monitor['id']}")
    assert (stored["name"], stored["interval_sec"]) == ("Nightly backup", 600)
