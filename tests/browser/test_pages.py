"""Every page of `make screenshots`: axe-core finds nothing serious, nothing is wider than a telephone.

`browse` fails on errors of the console, on refusals of the policy and on requests to other hosts.
"""

from __future__ import annotations

import pytest
from django.test.utils import override_settings

from tests.browser import scene
from tests.browser.application import Application, Person
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.screenshots import PAGES, Page

OTHERS = {"docs", "admin"}  # Swagger UI's and Django's own


@pytest.fixture(scope="module")
def shown(app: Application) -> scene.Scene:
    with app.database(), override_settings(EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend"):
        return scene.build()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in OTHERS], ids=lambda page: page.name
)
def test_page(app: Application, browse: Browse, shown: scene.Scene, page: Page) -> None:
    person = Person(app, shown.owner) if page.signed_in else None
    path = page.path.format(**shown.places)
    tab = browse(person)
    answer = tab.goto(path)
    assert answer is not None
    assert answer.status == page.status
    if not answer.ok:
        browse.allow(f"status of {answer.status}")
    if page.act is not None:
        page.act(tab)
    axe(tab)
    assert tab.locator("h1").count() == 1
    tab.set_viewport_size({"width": 390, "height": 844})
    # Once what listens to the new size has been called.
    tab.wait_for_function("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
