from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from django.db import connection
from playwright.sync_api import Browser, Page, expect
from pytest_django import DjangoDbBlocker

from devserver.session import Servers, embedded_servers
from tests.browser.application import Application, application
from tests.browser.browsing import PATIENCE_MS, Browse
from tests.browser.chromium import MISSING, chromium, find_chromium
from tests.browser.keyboard import Keyboard

DATABASES_OF_OTHERS = 32

_failed = pytest.StashKey[bool]()


@pytest.fixture(scope="package")
def app(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker, migrated_database: str
) -> Iterator[Application]:
    """One application for all browser tests of this process, which create their own accounts."""
    if find_chromium() is None:
        _refuse()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    number = DATABASES_OF_OTHERS + int(re.sub(r"\D", "", worker))
    database = f"browser_{worker}"
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{database}"')
        cursor.execute(f'CREATE DATABASE "{database}" TEMPLATE "{migrated_database}"')
    with embedded_servers(Path(os.environ["DATA_DIR"]), database=database) as found:
        servers = Servers(found.database_url, re.sub(r"/\d+$", f"/{number}", found.redis_url))
        folder = tmp_path_factory.mktemp("browser")
        with application(folder, servers, unblock=django_db_blocker.unblock) as app:
            yield app


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all browser tests only: Playwright's event loop would disturb others."""
    executable = find_chromium() or _refuse()
    expect.set_options(timeout=PATIENCE_MS)
    with chromium(executable) as browser:
        yield browser


@pytest.fixture
def browse(request: pytest.FixtureRequest, app: Application, browser: Browser) -> Iterator[Browse]:
    """For pages of several users, or in other sizes; `page` is enough for most tests."""
    browse = Browse(app.address, browser)
    yield browse
    if request.node.stash.get(_failed, False):
        for page in browse.pages:
            print(f"{page.url}\n{page.locator('body').aria_snapshot()}")  # noqa: T201  (pytest shows it)
    faults = browse.close()
    assert not faults, "\n".join(faults)


@pytest.fixture
def page(browse: Browse) -> Page:
    """A page without a signed-in account."""
    return browse()


@pytest.fixture
def keyboard(page: Page) -> Keyboard:
    return Keyboard(page)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


def _refuse() -> NoReturn:
    """Skip tests without Chromium, and fail them in CI."""
    if os.environ.get("CI"):
        pytest.fail(MISSING)
    pytest.skip(MISSING)
