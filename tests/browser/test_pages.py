"""Every page of `make screenshots`: axe-core finds no serious violation, and nothing is wider than a phone.

`browse` fails on console errors, violations of the policy and requests to other hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test.utils import override_settings
from playwright.sync_api import Browser

from tests.browser import scene
from tests.browser.application import HASHERS, Application, Person
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.screenshots import PAGES, Page
from tests.processes.waiting import until

OTHERS = {"docs", "admin"}  # Swagger UI's and Django's own


@pytest.fixture(scope="module")
def shown(app: Application) -> scene.Scene:
    settings = {"EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend", "PASSWORD_HASHERS": HASHERS}
    with app.database(), override_settings(**settings):
        return scene.build()


@pytest.fixture(scope="module")
def tabs(app: Application, browser: Browser, shown: scene.Scene) -> Iterator[Browse]:
    """Two tabs for all pages, one signed in and one signed out: a new tab for each page would take twice the time."""
    tabs = Browse(app.address, browser)
    tabs(Person(app, shown.owner))
    tabs()
    yield tabs
    assert not tabs.close()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OTHERS], ids=lambda page: page.name)
def test_page(tabs: Browse, shown: scene.Scene, page: Page) -> None:
    tab = tabs.pages[0 if page.signed_in else 1]
    tabs.faults()  # of a page that failed
    tab.set_viewport_size({"width": 1280, "height": 720})
    answer = tab.goto(page.path.format(**shown.places))
    assert answer is not None
    assert answer.status == page.status
    if not answer.ok:
        tabs.allow(f"status of {answer.status}")
    if page.act is not None:
        if page.act_status >= 400:
            tabs.allow(f"status of {page.act_status}")
        page.act(tab)
    axe(tab)
    assert tab.locator("h1").count() == 1
    tab.set_viewport_size({"width": 390, "height": 844})
    # After the listeners of the new size have run. Chromium's own wait would evaluate text, which the page's policy
    # forbids from the second time on.
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    until(lambda: tab.evaluate(fits), 10, "a page as wide as a telephone")
    tab.goto("about:blank")
    faults = tabs.faults()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ["monitor-down", "incident", "incidents", "channel", "windows", "status"])
def test_times_are_in_the_language_of_the_page(app: Application, browse: Browse, shown: scene.Scene, name: str) -> None:
    """In any language of the browser, and in the same format with and without scripts; in logs with seconds."""
    (page,) = (page for page in PAGES if page.name == name)
    person = Person(app, shown.owner) if page.signed_in else None
    read = []
    for options in ({"java_script_enabled": False}, {"locale": "de-DE", "timezone_id": "UTC"}):
        tab = browse(person, **options)
        tab.goto(page.path.format(**shown.places))
        times = tab.locator("main time[data-time]:not([data-time=ago])")
        read.append([text.removesuffix(" UTC") for text in times.all_inner_texts()])
        log = tab.locator("main time[data-time=log]").all_inner_texts()
    assert read[0] == read[1] != []
    assert all(re.fullmatch(r"\d{1,2} [A-Z][a-z]{2} \d{4}, \d\d:\d\d:\d\d", text) for text in log)
    assert bool(log) == (name in {"monitor-down", "incident", "incidents", "channel"})
