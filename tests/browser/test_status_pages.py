"""A status page in a browser: creating it, reading it signed out, subscribing, and notifications to subscribers."""

from __future__ import annotations

from django.conf import global_settings
from django.test import override_settings
from playwright.sync_api import Page, expect

from core.ids import random_text
from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.factories import MonitorFactory
from tests.statuspages.making import make_page


def test_from_making_it_to_news_by_mail(page: Page, app: Application, browse: Browse) -> None:
    anna = app.person()
    with app.database():
        MonitorFactory(owner=anna.user, up=True, name="db7 of billing", heartbeat=True, interval_sec=86_400)
    slug = f"shop-{random_text(5)}"
    desk = browse(anna)
    desk.goto("/status-pages")
    axe(desk)
    desk.get_by_role("link", name="New status page").first.click()
    desk.get_by_label("Name", exact=True).fill("Shop status")
    desk.get_by_label("Address").fill(slug)
    desk.get_by_label("db7 of billing").check()
    axe(desk)
    desk.get_by_role("button", name="Create status page").click()
    expect(desk.get_by_text("Status page created.")).to_be_visible()
    axe(desk)
    desk.get_by_role("link", name="Edit").click()
    desk.get_by_label("Name of db7 of billing").fill("Payments")
    axe(desk)
    desk.get_by_role("button", name="Save").click()
    expect(desk.get_by_text("Status page saved.")).to_be_visible()

    page.goto(f"/status/{slug}")
    expect(page.get_by_text("Payments")).to_be_visible()
    expect(page.get_by_text("db7 of billing")).to_have_count(0)
    axe(page)
    reader = f"reader-{random_text(5)}@example.com"
    page.get_by_label("E-mail address").fill(reader)
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", name="Check your e-mail")).to_be_visible()
    axe(page)
    page.goto(app.link_in(app.mail_to(reader, about="Confirm your subscription")))
    axe(page)
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", name="Subscribed")).to_be_visible()

    desk.get_by_label("Title").fill("Orders are late")
    desk.get_by_label("Text").fill("We are looking.")
    desk.get_by_role("button", name="Publish note").click()
    expect(desk.get_by_text("Note published.")).to_be_visible()
    assert app.mail_to(reader, about="Orders are late")["Subject"] == "[Shop status] Investigating: Orders are late"


def test_days_are_read_by_keyboard(page: Page, app: Application, keyboard: Keyboard) -> None:
    anna = app.person()
    slug = f"shop-{random_text(5)}"
    with app.database():
        monitor = MonitorFactory(owner=anna.user, up=True, heartbeat=True, interval_sec=86_400)
        make_page(anna.user, [monitor], slug=slug)
    page.goto(f"/status/{slug}")
    keyboard.press(page.locator("summary", has_text="Shown 1"))
    expect(page.get_by_text("Up on every observed day.")).to_be_visible()
    axe(page)


def test_a_page_with_a_password(page: Page, app: Application, browse: Browse) -> None:
    browse.allow("status of 403")
    anna = app.person()
    slug = f"staff-{random_text(5)}"
    # The application's processes use production hashes only.
    with app.database(), override_settings(PASSWORD_HASHERS=global_settings.PASSWORD_HASHERS):
        make_page(anna.user, [], slug=slug, password="open sesame", name="For staff")
    page.goto(f"/status/{slug}")
    axe(page)
    page.get_by_label("Password").fill("close sesame")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_text("Wrong password.")).to_be_visible()
    axe(page)
    page.get_by_label("Password").fill("open sesame")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_text("For staff").first).to_be_visible()
    for feed in ("json", "atom"):
        assert page.evaluate("path => fetch(path).then(answer => answer.status)", f"/status/{slug}.{feed}") == 200
