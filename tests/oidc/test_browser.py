"""Signing in with a real browser: it applies the Content-Security-Policy, cookies and the page in between."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from tests.browser.chromium import MISSING, chromium, find_chromium
from tests.factories import ProjectFactory, UserFactory
from tests.oidc.provider import EMAIL, Provider


@pytest.mark.parametrize("script", [True, False], ids=["with scripts", "without"])
def test_signing_in(live_server: LiveServer, settings: Settings, script: bool) -> None:
    executable = find_chromium()
    if executable is None:
        pytest.skip(MISSING)
    url = live_server.url.replace("localhost", "127.0.0.1")  # the only host that the browser finds
    settings.BASE_URL, settings.OIDC_ONLY = url, True
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    project = ProjectFactory(owner=UserFactory())
    settings.OIDC_PROJECT_ROLES = (("ops", project.public_id, "admin"),)
    with Provider(f"{url}/account/with/oidc/callback") as provider, chromium(executable) as browser:
        provider.configure(settings)
        provider.person(groups=["ops"])
        page = browser.new_page(java_script_enabled=script)
        page.goto(f"{url}/projects/{project.public_id}")
        page.get_by_role("button", name="Sign in with Acme").click()
        page.wait_for_url(f"{url}/projects/{project.public_id}")
        assert page.get_by_role("heading", name=project.name).is_visible()
        page.close()
        # Stay on the page in between.
        page = browser.new_page(java_script_enabled=script)
        page.route(f"{provider.issuer}/**", lambda route: route.fulfill(status=204))
        page.goto(f"{url}/account/login/")
        page.get_by_role("button", name="Sign in with Acme").click(no_wait_after=True)
        page.get_by_role("heading", name="Continue to Acme").wait_for()
        page.close()
    assert User.objects.filter(email=EMAIL).exists()
