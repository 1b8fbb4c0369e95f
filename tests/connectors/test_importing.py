"""Concurrent imports, and large ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from connectors.importing import Imported, import_projects
from connectors.models import Connector, Import
from core.clock import utc_now
from monitors.models import Monitor, MonitorState
from monitors.scheduling import claim_due
from projects.access import Caller
from tests.api.client import Api
from tests.connectors.fakes import projects
from tests.connectors.linking import Place, come_back, place
from tests.factories import PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently

COUNT = 20


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def user(transactional_db: None) -> User:
    """Commit rows: the code never waits for the network inside a transaction, so not in a test's either."""
    return UserFactory()


@pytest.fixture
def api(user: User) -> Api:
    return Api.signed_in(user)


@pytest.fixture
def vercel(settings: Settings) -> Iterator[Place]:
    with place(settings, "vercel") as there:
        yield there


def importer(user: User, refs: list[str], **into: Any) -> Any:
    return lambda: import_projects(Caller(user), "vercel", refs, place=into, now=utc_now())


def outcomes(*actions: Any) -> list[Imported]:
    found = run_concurrently(*actions)
    assert all(isinstance(result, Imported) for result in found), found
    return found  # type: ignore[return-value]


def test_two_imports_at_once_create_each_monitor_once(vercel: Place, api: Api, user: User) -> None:
    """Into two places, so that they do not wait for each other at the lock of a project."""
    vercel.fake.projects = projects(COUNT)
    vercel.link(api)
    refs = vercel.refs()
    shop = ProjectFactory(owner=user)
    results = outcomes(
        importer(user, refs), importer(user, refs[::-1]), importer(user, refs, project_id=shop.public_id)
    )
    created = [monitor.name for result in results for monitor in result.created]
    assert sorted(created) == sorted(p.name for p in vercel.fake.projects)
    assert Monitor.objects.count() == Import.objects.count() == COUNT
    assert MonitorState.objects.count() == COUNT
    for result in results:
        assert result.failed == {}
        assert len(result.created) + len(result.skipped) == COUNT


def test_two_imports_at_once_under_a_cap(vercel: Place, api: Api, user: User) -> None:
    """The later import skips monitors beyond the limit, which is not exceeded."""
    vercel.fake.projects = projects(COUNT)
    vercel.link(api)
    user.plan = PlanFactory(monitor_limit=COUNT)
    user.save(update_fields=["plan"])
    refs = vercel.refs()
    results = outcomes(importer(user, refs), importer(user, refs[::-1]))
    assert Monitor.objects.count() == COUNT
    for result in results:
        assert result.failed == {}
        assert len(result.created) + len(result.skipped) == COUNT


def test_the_cap_holds_for_different_refs_at_once(vercel: Place, api: Api, user: User) -> None:
    vercel.fake.projects = projects(COUNT)
    vercel.link(api)
    user.plan = PlanFactory(monitor_limit=7)
    user.save(update_fields=["plan"])
    refs = vercel.refs()
    results = outcomes(importer(user, refs[:10]), importer(user, refs[10:]))
    assert Monitor.objects.count() == Import.objects.count() == 7
    failures = [error for result in results for error in result.failed.values()]
    assert set(failures) == {"monitor_limit"}
    assert len(failures) == COUNT - 7


def test_two_hundred_in_one_request(vercel: Place, api: Api) -> None:
    vercel.fake.projects = projects(400)
    vercel.link(api)
    api.get("/v1/account")  # notes the session's use

    def take(refs: list[str]) -> int:
        with CaptureQueriesContext(connection) as captured:
            answer = api.post("/v1/connectors/vercel/import", {"external_refs": refs})
        assert len(answer.json["created"]) == len(refs), answer.text[:500]
        return len(captured)

    refs = vercel.refs()
    one, two = take(refs[:1]), take(refs[1:3])
    before = time.thread_time()  # excludes other work of this machine
    many = take(refs[100:300])
    took = time.thread_time() - before
    each = two - one
    named = "the transaction, the plan's cap, the locations, the three rows, the log of the creation, the first claim"
    assert each <= 12, f"of {named}"
    assert many == one + 199 * each
    assert took < 10


def test_first_checks_are_due_at_once(vercel: Place, api: Api) -> None:
    vercel.link(api)
    api.post("/v1/connectors/vercel/import", {"external_refs": vercel.refs()})
    due = {claim.monitor_id for claim in claim_due(utc_now(), limit=10)}
    assert due == set(Monitor.objects.values_list("pk", flat=True))


def test_ten_thousand_projects(vercel: Place, api: Api) -> None:
    vercel.fake.projects = projects(10_000)
    vercel.link(api)
    listed = api.get("/v1/connectors/vercel/projects")
    if listed.status == 200:
        assert len({p["external_ref"] for p in listed.json["projects"]}) == 10_000
    else:
        assert (listed.status, listed.json["error"]) == (502, "provider_error")


def test_a_project_on_two_pages_is_one(vercel: Place, api: Api) -> None:
    vercel.fake.projects = [*projects(100), *projects(101)[99:]]
    vercel.link(api)
    assert len(api.get("/v1/connectors/vercel/projects").json["projects"]) == 101


def test_two_links_at_once_are_one_connector(vercel: Place, api: Api) -> None:
    backs = [vercel.fake.consent(vercel.begin(api)) for _ in range(4)]
    pages = run_concurrently(*[lambda back=back: come_back(back).status_code for back in backs])
    assert pages == [200] * 4
    assert Connector.objects.count() == 1
    assert api.get("/v1/connectors/vercel/projects").status == 200


def test_one_callback_twice_at_once_links_once(vercel: Place, api: Api) -> None:
    back = vercel.fake.consent(vercel.begin(api))
    pages = run_concurrently(*[lambda: come_back(back).status_code for _ in range(3)])
    assert sorted(pages) == [200, 400, 400]  # type: ignore[type-var]
    assert vercel.fake.calls.count("/v2/oauth/access_token") == 1
