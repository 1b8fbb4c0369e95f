"""The pages of connectors, against providers on loopback."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from connectors.models import Connector
from monitors.models import Monitor
from tests.connectors.conftest import vercel  # noqa: F401  (a fixture)
from tests.connectors.fakes import FakeProject, FakeVercel, project, projects
from tests.connectors.linking import come_back
from tests.factories import ConnectorFactory, MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import flush_broker

HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"
PAGE = "/connectors/vercel"

pytestmark = pytest.mark.django_db(transaction=True)  # requests to providers are sent outside of transactions


@pytest.fixture(name="fake")
def _fake(vercel: FakeVercel) -> FakeVercel:  # noqa: F811
    return vercel


@pytest.fixture
def linked(web: Client, fake: FakeVercel) -> FakeVercel:
    """Link through the provider's page, as a user without scripts."""
    page = web.post(f"{PAGE}/link").content.decode()
    found = re.search(r'href="([^"]+)" rel="noreferrer"', page)
    assert found is not None
    assert come_back(fake.consent(unescape(found[1])), browser=web).status_code == 200
    return fake


def values(page: Any) -> list[str]:
    """Return the values of the checkboxes that can be selected."""
    found = re.findall(r'name="projects" value="([^"]*)"((?: checked| disabled)*)>', page.content.decode())
    return [unescape(value) for value, state in found if "disabled" not in state]


def test_each_provider_says_how_it_is(web: Client, user: User, fake: FakeVercel, settings: Settings) -> None:
    settings.NETLIFY_CLIENT_ID = ""
    text = web.get("/connectors").content.decode()
    assert "Not configured" in text
    assert "Vercel asks you to let" in text
    connector = ConnectorFactory(user=user)
    text = web.get("/connectors").content.decode()
    assert "Shop Ltd" in text
    assert f'href="{PAGE}"' in text
    connector.revoked_at = connector.created_at
    connector.save(update_fields=["revoked_at"])
    text = web.get("/connectors").content.decode()
    assert "Link again" in text
    assert f'href="{PAGE}"' not in text
    assert connector.tokens["access_token"] not in text


def test_a_script_goes_to_the_provider_by_itself(web: Client, fake: FakeVercel) -> None:
    answer = web.post(f"{PAGE}/link", headers={"HX-Request": "true"})
    assert answer.headers["HX-Redirect"].startswith(fake.url)


def test_a_provider_without_keys_is_said_to_be_so(web: Client, fake: FakeVercel, settings: Settings) -> None:
    settings.VERCEL_CLIENT_ID = ""
    page = web.post(f"{PAGE}/link", follow=True)
    assert "This deployment has no credentials for the provider" in page.content.decode()
    assert web.post(f"{PAGE}/link", headers={"HX-Request": "true"}).headers["HX-Redirect"] == "/connectors"


def test_linked_chosen_and_imported(web: Client, user: User, linked: FakeVercel) -> None:
    tills = ProjectFactory(owner=user, name="Tills")
    linked.projects = [
        project(1, domain="shop.example"),
        FakeProject("prj_h", HOSTILE, None, "hostile.example"),
        project(3, address=None),
    ]
    page = web.get(PAGE)
    text = page.content.decode()
    assert "<script>alert" not in text
    assert ESCAPED in text
    assert "Not deployed" in text
    assert len(values(page)) == 2
    chosen = [*values(page), json.dumps(["prj_3", "project-3"]), json.dumps(["prj_gone", "gone"])]
    done = web.post(PAGE, {"projects": chosen, "project_id": tills.public_id}).content.decode()
    assert "2 created, 2 failed." in done
    assert "The project has no address." in done
    assert "It no longer exists." in done
    assert "<script>alert" not in done
    monitors = Monitor.objects.filter(project=tills).order_by("pk")
    assert [monitor.name for monitor in monitors] == ["project-1", HOSTILE]
    assert all(f"/monitors/{monitor.public_id}" in done for monitor in monitors)
    again = web.get(PAGE)
    assert values(again) == []
    assert again.content.decode().count(">Imported<") == 2
    skipped = web.post(PAGE, {"projects": chosen[:1]}).content.decode()
    assert "0 created, 1 already imported." in skipped
    assert "project-1" in skipped


def test_what_the_plan_has_no_room_for_is_said(web: Client, user: User, linked: FakeVercel) -> None:
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    MonitorFactory(owner=user)
    linked.projects = projects(3)
    done = web.post(PAGE, {"projects": values(web.get(PAGE))}).content.decode()
    assert "1 created, 2 failed." in done
    assert done.count("The plan&#x27;s limit of monitors is reached.") == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "Select at least one project."),
        (["nonsense"], "nonsense is not one of the available choices"),
        (['["prj_1"]'], "is not one of the available choices"),
        (['["a\\u0000", "b"]'], "is not one of the available choices"),
        (['["a", "\\ud800"]'], "is not one of the available choices"),
        (["[" * 3000], "is not one of the available choices"),
        ([json.dumps(["x" * 201, "x"])], "is not one of the available choices"),
        ([json.dumps([f"prj_{n}", "x"]) for n in range(1001)], "Import at most 1000 at a time."),
    ],
)
def test_an_odd_choice_is_refused_and_imports_nothing(
    web: Client, linked: FakeVercel, given: list[str], reason: str
) -> None:
    page = web.post(PAGE, {"projects": given, "project_id": ""})
    assert page.status_code == 200
    assert reason in page.content.decode()
    assert len(values(page)) == 3, "and there is what can be chosen"
    assert not Monitor.objects.exists()


def test_what_was_chosen_stays_chosen_where_it_is_refused(web: Client, linked: FakeVercel) -> None:
    chosen = values(web.get(PAGE))[:1]
    page = web.post(PAGE, {"projects": chosen, "project_id": "prj_of_others"}).content.decode()
    assert "Select a valid choice." in page
    assert page.count(" checked>") == 1


@pytest.mark.parametrize("mode", ["500", "429", "down", "wrong_json", "wrong_types"])
def test_a_provider_that_fails_is_no_error_page(web: Client, linked: FakeVercel, mode: Any) -> None:
    chosen = values(web.get(PAGE))
    linked.mode = mode
    for page in (web.get(PAGE), web.post(PAGE, {"projects": chosen})):
        assert page.status_code == 200
        assert "Try again" in page.content.decode()
    assert not Monitor.objects.exists()


def test_a_grant_that_ended_leads_to_linking_again(web: Client, linked: FakeVercel) -> None:
    linked.revoke()
    text = web.get(PAGE).content.decode()
    assert "Vercel revoked our access." in text
    assert f'hx-post="{PAGE}/link"' in text
    assert "Link again" in web.get("/connectors").content.decode()


def test_asking_counts_as_the_api_s_does(web: Client, linked: FakeVercel, settings: Settings) -> None:
    chosen = values(web.get(PAGE))
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, "ask-provider": (1, 60), "create-and-test": (1, 60)}
    assert "Try again" not in web.get(PAGE).content.decode()
    assert "Too many requests; try again later." in web.get(PAGE).content.decode()
    assert "1 created" in web.post(PAGE, {"projects": chosen[:1]}).content.decode()
    assert "Too many requests" in web.post(PAGE, {"projects": chosen[1:]}).content.decode()
    assert Monitor.objects.count() == 1


def test_disconnected_and_its_monitors_stay(web: Client, linked: FakeVercel) -> None:
    web.post(PAGE, {"projects": values(web.get(PAGE))})
    page = web.post(f"{PAGE}/disconnect", follow=True)
    assert "Vercel disconnected. Its monitors stay." in page.content.decode()
    assert not Connector.objects.exists()
    assert Monitor.objects.count() == 3
    assert web.get(PAGE).status_code == 404


def test_the_list_takes_few_queries(web: Client, user: User, linked: FakeVercel) -> None:
    linked.projects = projects(40)
    counts = []
    for address in ("/connectors", PAGE):
        with CaptureQueriesContext(connection) as queries:
            web.get(address)
        counts.append(len(queries))
    assert max(counts) <= 7, counts


def test_what_is_not_linked_or_not_there_is_404(web: Client, fake: FakeVercel) -> None:
    ConnectorFactory(user=UserFactory())
    assert web.get(PAGE).status_code == 404
    assert web.post(PAGE, {"projects": ['["a", "b"]']}).status_code == 404
    assert web.post(f"{PAGE}/disconnect").status_code == 404
    for path in ("", "/link", "/disconnect"):
        assert web.post(f"/connectors/unknown{path}").status_code == 404
    assert Connector.objects.count() == 1


def test_forms_without_their_token_are_refused(user: User) -> None:
    ConnectorFactory(user=user)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    for path in ("", "/link", "/disconnect"):
        assert strict.post(f"{PAGE}{path}").status_code == 403
