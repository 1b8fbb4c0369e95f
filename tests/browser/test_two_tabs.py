"""A page that was opened before another tab changed the settings."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.clock import to_ms, utc_now
from tests.browser.application import Application, Person
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.test_making import fits

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
HOUR_MS = 3_600_000
HOOK, CHANNEL = "https://hooks.example.com/x", "alert-channels/{}/edit"
LONG = "Nightly backup of " + "averylongnamewithoutablank" * 4


def test_both_values_are_shown_and_chosen(browse: Browse, app: Application) -> None:
    person = app.person()
    with person.client() as client:
        monitor = client.post("/monitors", {"type": "heartbeat", "name": "Backup", "interval_sec": 300})
    path = f"/monitors/{monitor['id']}/edit"
    first, second = browse(person), browse(person, **PHONE, color_scheme="dark")
    for page in (first, second):
        page.goto(path)
    first.locator("#id_name").fill("Nightly backup")
    first.locator("#id_grace_sec").fill("2m")
    first.get_by_role("button", name="Save").click()
    expect(first.get_by_text("Nightly backup is saved.")).to_be_visible()

    second.locator("#id_name").fill("Mine")
    second.locator("#id_interval_sec").fill("10m")
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_role("alert")).to_contain_text("The settings were changed after you opened this form.")
    row = second.get_by_role("row").filter(has_text="Nightly backup")
    expect(row).to_contain_text("Mine")
    axe(second)
    theirs = second.get_by_role("row").filter(has_text="2m").get_by_role("checkbox")
    expect(theirs).to_be_checked()  # only the other tab changed it
    expect(row.get_by_role("checkbox")).not_to_be_checked()
    row.get_by_role("checkbox", name="Use the stored value of Name").check()
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_text("Nightly backup is saved.")).to_be_visible()
    with person.client() as client:
        stored = client.get(f"/monitors/{monitor['id']}")
    assert (stored["name"], stored["interval_sec"], stored["grace_sec"]) == ("Nightly backup", 600, 120)


def _make(person: Person, kind: str) -> tuple[str, str, str]:
    """Return the page of the form, the page with the button that deletes, and the resource in the API."""
    start = to_ms(utc_now()) + HOUR_MS
    times = {"starts_at": start, "ends_at": start + HOUR_MS, "monitors": "all"}
    # The API's path, the body, and the two pages.
    resources: dict[str, tuple[str, dict[str, Any], str, str]] = {
        "monitor": ("monitors", {"type": "heartbeat", "interval_sec": 300}, "monitors/{}/edit", "monitors/{}"),
        "channel": ("alert-channels", {"kind": "webhook", "url": HOOK}, CHANNEL, CHANNEL),
        "window": ("maintenance-windows", times, "maintenance/{}", "maintenance/{}"),
        "page": ("status-pages", {"slug": f"p{start}"}, "status-pages/{}/edit", "status-pages/{}"),
        "project": ("projects", {}, "projects/{}", "projects/{}"),
    }
    path, body, form, shown = resources[kind]
    with person.client() as client:
        made = client.post(f"/{path}", {"name": "First", **body})["id"]
    return f"/{form.format(made)}", f"/{shown.format(made)}", f"/{path}/{made}"


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page", "project"])
@pytest.mark.parametrize("size", [{}, PHONE], ids=["wide", "narrow"])
def test_pages_of_differences(browse: Browse, app: Application, kind: str, size: dict[str, Any]) -> None:
    browse.allow("status of 412")
    person = app.person()
    form, shown, resource = _make(person, kind)
    editing, deleting = browse(person, **size), browse(person, **size)
    editing.goto(form)
    deleting.goto(shown)
    with person.client() as client:
        assert client.send("PATCH", resource, {"name": LONG}).ok

    named = editing.locator("form:has([name=form_etag]):has([name=name])").first
    named.locator("[name=name]").fill("Mine")
    named.locator("[type=submit]:visible:not([name=preview])").last.click()
    expect(editing.get_by_role("alert")).to_contain_text("The settings were changed after you opened this form.")
    expect(editing.get_by_role("row").filter(has_text=LONG)).to_contain_text("Mine")
    _look(editing)

    if kind == "monitor":
        deleting.get_by_label("More").click()
    deleting.get_by_role("button", name="Delete").last.click()
    deleting.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(deleting.get_by_role("alert")).to_contain_text("Nothing was deleted.")
    expect(deleting.get_by_role("row").filter(has_text="Name")).to_contain_text(LONG)
    _look(deleting)
    deleting.get_by_role("button", name="Delete").click()
    expect(deleting.get_by_role("status").filter(has_text="eleted")).to_be_visible()
    with person.client() as client:
        assert client.send("GET", resource).status_code == 404


def _look(page: Page) -> None:
    axe(page)
    assert fits(page), page.evaluate(
        """[...document.querySelectorAll("body *")].filter(each => each.getBoundingClientRect().right > innerWidth)
            .map(each => each.outerHTML.slice(0, 80))"""
    )
