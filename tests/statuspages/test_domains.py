"""Custom domains: which page gets one, proved by records of a real name server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from pytest_django.fixtures import Settings

from audit.models import Entry
from config.celery import app
from config.gateway import Gateway
from core.clock import utc_now
from monitors.checking import runner
from projects.access import Caller
from statuspages import domains
from statuspages.models import StatusPage
from statuspages.services import update_page
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import flush_broker, run_concurrently
from tests.serving import serving
from tests.statuspages.making import look, make_page
from tests.targets.names import Fault, Name
from tests.targets.server import TargetServer

DOMAIN = "status.shop.example"
RECORD = f"_pulsekeeper-challenge.{DOMAIN}"
Claim = tuple[Api, dict[str, Any]]

pytestmark = pytest.mark.django_db(transaction=True)


class Zone(dict[str, Name]):
    """The zone of the domain."""

    def publish(self, *claims: Claim) -> None:
        values = tuple(f'"{page["domain_record"]["value"]}"' for _, page in claims)
        self[RECORD] = Name(txt=('"v=spf1 -all"', *values))


@pytest.fixture(autouse=True)
def _domains(settings: Settings) -> None:
    settings.STATUS_PAGE_DOMAINS = [".shop.example"]
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def zone(settings: Settings) -> Iterator[Zone]:
    """Yield the zone, served by the name server of a worker in threads of this process."""
    zone = Zone()
    runner.drain(grace_sec=0)
    runner.shared_engine.cache_clear()  # a resolver with this name server
    with TargetServer() as targets:
        settings.DNS_SERVERS = [targets.serve_names(zone).address]
        flush_broker()
        with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, queues=["interactive"]):
            yield zone
        runner.drain(grace_sec=0)
    runner.shared_engine.cache_clear()


@pytest.fixture
def claims() -> list[Claim]:
    """Pages of two accounts that claim the domain."""
    made = []
    for _ in range(2):
        user = UserFactory()
        page = make_page(user, [], custom_domain=DOMAIN)
        api = Api.signed_in(user)
        made.append((api, api.get(f"/v1/status-pages/{page.public_id}").json))
    return made


def verify(claim: Claim) -> Any:
    api, page = claim
    return api.post(f"/v1/status-pages/{page['id']}/verify-domain")


def is_served() -> bool:
    return bool(look("/", host=DOMAIN).status_code == 200)


def test_a_page_is_on_its_domain_once_the_record_is_found(zone: Zone, claims: list[Claim]) -> None:
    claim, other = claims
    record = claim[1]["domain_record"]
    assert record["name"] == RECORD
    missing = verify(claim)
    assert (missing.status, missing.json["error"]) == (409, "domain_unverified")
    assert record["value"] in missing.json["reason"]
    zone.publish(other)
    assert verify(claim).status == 409, "the record of another page proves nothing"
    assert not is_served()
    zone.publish(claim)
    answer = verify(claim)
    assert (answer.status, answer.json["domain_verified"]) == (200, True)
    assert answer.json["url"] == f"http://{DOMAIN}/"
    assert is_served()
    assert verify(claim).status == 200
    entry = Entry.objects.get(action="domain.verified")
    assert (entry.target_id, entry.details) == (claim[1]["id"], {"domain": DOMAIN})


def test_the_dashboard_shows_the_records_and_what_was_found(zone: Zone, claims: list[Claim]) -> None:
    claim, _ = claims
    page = StatusPage.objects.get(public_id=claim[1]["id"])
    web = Client()
    web.force_login(page.owner)
    address = f"/status-pages/{page.public_id}"
    text = web.get(address).content.decode()
    record = claim[1]["domain_record"]
    for shown in (f"{RECORD}. TXT &quot;{record['value']}&quot;", f"{DOMAIN}. CNAME", f"server_name {DOMAIN};"):
        assert shown.replace("&quot;", '"') in text
    assert page.built_in_url in text

    def press() -> str:
        return str(web.post(f"{address}/verify-domain", follow=True).content.decode())

    assert "was not found" in press()
    zone.publish(claim)
    assert f"Domain verified. http://{DOMAIN}/ does not show this page yet: " in press()
    assert look(f"/status/{page.slug}").status_code == 200, "the built-in URL keeps working"
    assert "Check again" in web.get(address).content.decode()


@pytest.mark.parametrize("given", [{}, {"password": "letters and 8"}], ids=["open", "password"])
def test_the_check_finds_the_page_on_its_domain(zone: Zone, given: dict[str, str]) -> None:
    """A custom domain has no port: a web server answers at port 80 of an address that only this test uses."""
    user = UserFactory()
    page = make_page(user, [], name="Shop & Söhne", custom_domain=DOMAIN, **given)
    claim = Api.signed_in(user), Api.signed_in(user).get(f"/v1/status-pages/{page.public_id}").json
    zone.publish(claim)
    address = f"127.80.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
    zone[DOMAIN] = Name((address,))
    web = Client()
    web.force_login(user)

    def press() -> str:
        return unescape(web.post(f"/status-pages/{page.public_id}/verify-domain", follow=True).content.decode())

    try:
        with serving(Gateway(WSGIHandler()), address=address, port=80):
            assert f"Domain verified. http://{DOMAIN}/ shows this page." in press()
            update_page(Caller(user), page.public_id, {"published": False})
            assert "does not show this page yet: The page is not published." in press()
    except PermissionError:
        pytest.skip("no right to listen on port 80")
    update_page(Caller(user), page.public_id, {"published": True})
    assert f"http://{DOMAIN}/ does not show this page yet: " in press()


def test_the_first_that_proves_it_has_it_until_only_the_record_of_another_is_left(
    zone: Zone, claims: list[Claim]
) -> None:
    first, second = claims
    zone.publish(first)
    assert verify(first).status == 200
    assert verify(second).status == 409
    zone.publish(first, second)
    refused = verify(second)
    assert refused.json["error"] == "domain_unverified"
    assert "Another status page has verified this domain" in refused.json["reason"]
    assert first[1]["domain_record"]["value"] not in refused.json["reason"]
    zone.publish(second)
    assert verify(second).status == 200
    assert first[0].get(f"/v1/status-pages/{first[1]['id']}").json["domain_verified"] is False
    assert verify(first).status == 409
    assert Entry.objects.get(action="domain.lost").target_id == first[1]["id"]


def test_of_two_that_prove_it_at_the_same_time_one_has_it(zone: Zone, claims: list[Claim]) -> None:
    zone.publish(*claims)
    answers: list[Any] = run_concurrently(lambda: verify(claims[0]), lambda: verify(claims[1]))
    assert sorted(answer.status for answer in answers) == [200, 409]
    assert StatusPage.objects.exclude(domain_verified_at=None).count() == 1


def test_another_domain_has_to_be_proved_again_and_no_other_change(zone: Zone, claims: list[Claim]) -> None:
    claim, _ = claims
    zone.publish(claim)
    verify(claim)
    address = f"/v1/status-pages/{claim[1]['id']}"
    assert claim[0].patch(address, {"name": "Renamed", "custom_domain": DOMAIN}).json["domain_verified"] is True
    assert claim[0].patch(address, {"custom_domain": "other.shop.example"}).json["domain_verified"] is False
    assert not is_served()
    without = claim[0].patch(address, {"custom_domain": None}).json
    assert (without["domain_verified"], without["domain_record"]) == (False, None)
    assert verify(claim).json["reason"] == "The page has no custom domain."


def test_records_are_looked_up_less_and_less_often_until_they_are_found(zone: Zone, claims: list[Claim]) -> None:
    now = utc_now()
    zone[RECORD] = Name(txt=Fault.SERVFAIL)
    rows = StatusPage.objects.filter(custom_domain=DOMAIN)
    domains.verify_due(now)
    domains.verify_due(now)
    assert {row.domain_failures for row in rows.all()} == {1}, "not before the next time"
    for _ in range(3):
        rows.update(domain_check_at=now)
        domains.verify_due(now)
    assert rows.filter(domain_check_at__gt=utc_now() + timedelta(minutes=5)).count() == 2
    zone.publish(claims[0])
    rows.update(domain_check_at=now)
    domains.verify_due(now)
    assert [row.public_id for row in rows.exclude(domain_verified_at=None)] == [claims[0][1]["id"]]
    assert rows.get(public_id=claims[0][1]["id"]).domain_check_at is None


@pytest.mark.usefixtures("no_worker")
def test_without_a_worker_nothing_is_decided(claims: list[Claim]) -> None:
    flush_broker()
    answer = verify(claims[0])
    assert (answer.status, answer.json["error"]) == (503, "no_worker")
    domains.verify_due(utc_now())
    assert {row.domain_failures for row in StatusPage.objects.all()} == {0}


def test_a_domain_that_changed_during_the_look_up_is_not_verified(
    claims: list[Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, _ = claims

    def change(*_: Any) -> None:
        stored = StatusPage.objects.get(public_id=claim[1]["id"])
        update_page(Caller(stored.owner), stored.public_id, {"custom_domain": "other.shop.example"})

    monkeypatch.setattr(domains, "_problem", change)
    assert verify(claim).status == 404
    assert not StatusPage.objects.exclude(domain_verified_at=None).exists()


def test_domains_of_the_version_before_stay_and_it_can_come_back() -> None:
    user = UserFactory()
    MigrationExecutor(connection).migrate([("statuspages", "0001_initial")])
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO statuspages_statuspage (public_id, created_at, version, name, slug, description,"
                " published, theme, password_hash, custom_domain, show_window_names, owner_id)"
                " VALUES ('pag_1', now(), 1, 'A', 'a', '', true, 'auto', '', %s, false, %s)",
                [DOMAIN, user.pk],
            )
    finally:
        migrate_forward()
    assert StatusPage.objects.get().served_domain == DOMAIN
    make_page(user, [], custom_domain=DOMAIN)
    MigrationExecutor(connection).migrate([("statuspages", "0001_initial")])
    migrate_forward()
    assert {page.custom_domain for page in StatusPage.objects.all()} == {None, DOMAIN}


def migrate_forward() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
