"""Registrations: one lookup per domain for all its monitors, rate limits, and keeping the last known expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django.fixtures import DjangoAssertNumQueries, Settings

from accounts.models import User
from checks.rdap import DEFAULT_WAIT
from core.clock import utc_now
from monitors.expiry.registrations import (
    INTERVAL,
    JITTER,
    LEASE,
    UNSUPPORTED_RETRY,
    claim_lookup,
    jittered,
    lock_registrations,
    put_off,
    record_expiry,
    record_failure,
    remove_unused,
    retry_delay,
)
from monitors.models import DomainRegistration, Monitor, MonitorState
from monitors.services import delete_monitor, update_monitor
from monitors.tasks import LOOKUPS_PER_RUN, refresh_registrations
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, run_concurrently, state_of
from tests.registry import Registry
from tests.targets.server import answer

EXPIRY = datetime.fromisoformat("2027-08-13T04:00:00Z")
LATER = EXPIRY + timedelta(days=365)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

pytestmark = pytest.mark.django_db


@pytest.fixture
def registry(settings: Settings) -> Iterator[Registry]:
    with Registry.serving() as registry:
        settings.RDAP_BOOTSTRAP_URL = registry.bootstrap_url
        registry.expires("example.com", "2027-08-13T04:00:00Z")
        yield registry


@pytest.fixture
def user() -> User:
    return UserFactory()


def watching(user: User, url: str = "https://www.example.com/", **given: Any) -> Monitor:
    return MonitorFactory(owner=user, url=url, check_domain=True, **given)


def row(name: str = "example.com") -> DomainRegistration:
    return DomainRegistration.objects.get(name=name)


def names() -> list[str]:
    return list(DomainRegistration.objects.order_by("name").values_list("name", flat=True))


def claimed(now: datetime = NOON) -> DomainRegistration:
    lookup = claim_lookup(now)
    assert lookup is not None
    return lookup


def shown(monitor: Monitor) -> datetime | None:
    return state_of(monitor).domain_expires_at


def known(monitor: Monitor, expires_at: datetime = EXPIRY) -> None:
    """Record a lookup of its registration at NOON."""
    record_expiry(claimed(), expires_at, now=NOON)
    assert shown(monitor) == expires_at


def patch(user: User, monitor: Monitor, *, now: datetime = NOON, **given: Any) -> Monitor:
    return update_monitor(Caller(user), monitor.public_id, given, now=now)


def about(moment: datetime | None, start: datetime, delay: timedelta) -> bool:
    return moment is not None and abs(moment - start - delay) <= delay * JITTER


# Which monitors use which domain


@pytest.mark.parametrize(
    ("given", "domain"),
    [
        ({"url": "https://a.b.example.co.uk/x"}, "example.co.uk"),
        ({"url": "https://bücher.de/"}, "xn--bcher-kva.de"),
        ({"url": "https://example.com", "type": "scheduler"}, "example.com"),
        ({"url": "http://127.0.0.1/"}, None),
        ({"url": "http://localhost/"}, None),
        ({"url": "https://example.com", "type": "heartbeat"}, None),
        ({"url": "https://example.com", "check_domain": False}, None),
    ],
)
def test_a_new_monitor_watches_the_registrable_domain_of_its_url(
    given: dict[str, Any], domain: str | None, user: User
) -> None:
    monitor = MonitorFactory(owner=user, **{"check_domain": True} | given)
    registration = Monitor.objects.get(pk=monitor.pk).registration
    assert (registration and registration.name) == domain
    assert names() == ([domain] if domain else [])
    if registration is not None:
        assert registration.next_lookup_at == NOON, "due at once"


def test_a_patch_keeps_watch_and_expiry_in_step_with_url_and_switch(user: User) -> None:
    monitor = watching(user)
    known(monitor)
    patch(user, monitor, name="another name", url="https://example.com/path")
    assert shown(monitor) == EXPIRY, "the same registration"
    patch(user, monitor, url="https://example.org/")
    assert (shown(monitor), names()) == (None, ["example.com", "example.org"])
    patch(user, monitor, url="https://example.com/")
    assert shown(monitor) == EXPIRY, "known already, and shown at once"
    patch(user, monitor, check_domain=False)
    monitor.refresh_from_db()
    assert (shown(monitor), monitor.registration) == (None, None)
    patch(user, monitor, check_domain=True)
    assert shown(monitor) == EXPIRY
    patch(user, monitor, url="http://127.0.0.1/")
    assert shown(monitor) is None
    assert shown(watching(user)) == EXPIRY, "a second monitor of a known domain"


def test_a_certificate_of_another_origin_is_forgotten(user: User) -> None:
    monitor = MonitorFactory(owner=user, url="https://example.com/a", up=True)

    def kept_by(**given: Any) -> bool:
        MonitorState.objects.filter(pk=monitor.pk).update(cert_expires_at=EXPIRY)
        patch(user, monitor, **given)
        return state_of(monitor).cert_expires_at == EXPIRY

    assert kept_by(name="x", check_ssl=True, interval_sec=600)
    assert kept_by(url="https://example.com/b?c=d")
    assert kept_by(url="https://EXAMPLE.com:443/")
    assert not kept_by(url="https://example.com:8443/")
    assert not kept_by(url="https://www.example.com:8443/")
    assert not kept_by(url="http://www.example.com:8443/")


# Claims


def test_a_due_registration_is_claimed_once_and_again_after_its_lease(user: User) -> None:
    watching(user)
    assert claim_lookup(NOON - timedelta(seconds=1)) is None
    assert claimed().name == "example.com"
    assert claim_lookup(NOON + LEASE - timedelta(seconds=1)) is None
    assert claimed(NOON + LEASE).name == "example.com"


def test_what_only_paused_monitors_watch_is_not_looked_up(user: User) -> None:
    monitor = watching(user)
    patch(user, monitor, enabled=False)
    assert claim_lookup(NOON + DAY) is None
    remove_unused(NOON + DAY)
    assert names() == ["example.com"]
    patch(user, monitor, enabled=True)
    assert claim_lookup(NOON + DAY) is not None


def test_unused_registrations_are_removed_when_due(user: User) -> None:
    monitor, other = watching(user), watching(user, "https://example.org/")
    known(monitor)
    delete_monitor(Caller(user), monitor.public_id)
    remove_unused(NOON + HOUR)
    assert names() == ["example.com", "example.org"], "what is known may serve again today"
    remove_unused(NOON + 2 * DAY)
    assert names() == ["example.org"]
    assert Monitor.objects.filter(pk=other.pk, registration__isnull=False).exists()


# Results of lookups


def test_an_expiry_is_shown_on_every_monitor_of_the_domain(user: User) -> None:
    one, two = watching(user), watching(UserFactory(), "https://example.com/x")
    other = watching(user, "https://example.org/")
    lookup = claimed()
    record_expiry(lookup, EXPIRY, now=NOON)
    assert (shown(one), shown(two), shown(other)) == (EXPIRY, EXPIRY, None)
    found = row()
    assert (found.expires_at, found.looked_up_at, found.failures, found.error) == (EXPIRY, NOON, 0, None)
    assert about(found.next_lookup_at, NOON, INTERVAL)
    record_expiry(lookup, LATER, now=NOON + DAY)
    assert (shown(one), shown(two), shown(other)) == (LATER, LATER, None)


def test_a_lookup_without_news_writes_no_state(user: User, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for _ in range(3):
        watching(user)
    record_expiry(claimed(), EXPIRY, now=NOON)
    lookup = claimed(NOON + 2 * DAY)
    before = _versions()
    with django_assert_num_queries(5):  # among them a savepoint and its release
        record_expiry(lookup, EXPIRY, now=NOON + 2 * DAY)
    assert _versions() == before


def _versions() -> list[str]:
    """Return the position of each row: a write moves it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM monitors_monitorstate ORDER BY 1")
        return [place for (place,) in cursor.fetchall()]


def test_a_failure_keeps_what_is_known_and_is_repeated_ever_later(user: User) -> None:
    monitor = watching(user)
    known(monitor)
    for failures, delay in enumerate([HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, DAY, DAY], start=1):
        now = row().next_lookup_at
        record_failure(claimed(now), "no answer", now=now)
        found = row()
        assert (found.expires_at, found.looked_up_at, found.failures) == (EXPIRY, NOON, failures)
        assert (found.error, shown(monitor)) == ("no answer", EXPIRY)
        assert about(found.next_lookup_at, now, delay)
    record_expiry(claimed(found.next_lookup_at), LATER, now=found.next_lookup_at)
    assert (row().failures, row().error, shown(monitor)) == (0, None, LATER)


def test_retries_double_to_a_day() -> None:
    assert [retry_delay(n) // HOUR for n in (1, 2, 5, 6, 40, 10_000)] == [1, 2, 16, 24, 24, 24]


def test_jitter_spreads_neighbours() -> None:
    delays = [jittered(DAY, number) for number in range(1000)]
    assert len(set(delays)) == 1000
    assert min(delays) >= 0.9 * DAY
    assert max(delays) <= 1.1 * DAY


def test_a_lookup_of_what_is_gone_is_dropped(user: User) -> None:
    monitor = watching(user)
    lookup = claimed()
    delete_monitor(Caller(user), monitor.public_id)
    remove_unused(NOON + HOUR)
    record_expiry(lookup, EXPIRY, now=NOON)
    record_failure(lookup, "no answer", now=NOON)
    assert names() == []


def test_a_registry_is_left_alone(user: User) -> None:
    for url in ("https://a.com/", "https://b.com/", "https://b.org/", "https://c.co.uk/"):
        watching(user, url)
    DomainRegistration.objects.filter(name="b.com").update(next_lookup_at=NOON + DAY)
    put_off("com", HOUR, error="busy", now=NOON)
    end = NOON + HOUR
    assert end <= row("a.com").next_lookup_at <= end + HOUR * JITTER
    assert row("b.com").next_lookup_at == NOON + DAY, "was not due before then"
    assert [row("b.org").next_lookup_at, row("c.co.uk").next_lookup_at] == [NOON, NOON]
    assert (row("a.com").error, row("a.com").failures, row("b.org").error) == ("busy", 0, None)


# The task


@pytest.mark.django_db(transaction=True)
class TestTask:
    def test_a_domain_of_two_tenants_is_looked_up_once(self, registry: Registry, user: User) -> None:
        one, two = watching(user, now=utc_now()), watching(UserFactory(), now=utc_now())
        refresh_registrations()
        refresh_registrations()
        assert registry.asked == ["example.com"]
        assert (shown(one), shown(two)) == (EXPIRY, EXPIRY)

    def test_a_failed_lookup_never_overwrites_a_known_expiry(self, registry: Registry, user: User) -> None:
        monitor = watching(user)
        known(monitor)
        for script in ([answer(500)], [answer(404)], [answer(200, b"{}")], [answer(429)]):
            registry.answers["example.com"] = script
            DomainRegistration.objects.update(next_lookup_at=NOON)
            refresh_registrations()
            assert (row().expires_at, shown(monitor)) == (EXPIRY, EXPIRY)
        assert len(registry.asked) == 4
        assert row().failures == 3

    def test_a_busy_registry_is_asked_nothing_more(self, registry: Registry, user: User) -> None:
        for number in range(4):
            registry.answers[f"x{number}.com"] = [answer(429)]
            watching(user, f"https://x{number}.com/")
        monitor = watching(user, "https://example.org/")
        registry.expires("example.org", "2027-08-13T04:00:00Z")
        start = utc_now()
        refresh_registrations()
        refresh_registrations()
        assert sorted(registry.asked)[0] == "example.org"
        assert len(registry.asked) == 2, "one refusal is enough"
        assert shown(monitor) == EXPIRY
        for found in DomainRegistration.objects.filter(name__endswith=".com"):
            assert start + DEFAULT_WAIT <= found.next_lookup_at <= utc_now() + DEFAULT_WAIT * 1.1

    def test_a_domain_without_a_registry_is_asked_for_weekly(self, registry: Registry, user: User) -> None:
        watching(user, "https://example.cn/")
        start = utc_now()
        refresh_registrations()
        found = row("example.cn")
        assert about(found.next_lookup_at, start, UNSUPPORTED_RETRY)
        assert (registry.asked, found.error) == ([], "The registry of this top-level domain cannot be queried.")

    def test_a_run_has_an_end(self, registry: Registry, user: User) -> None:
        for number in range(LOOKUPS_PER_RUN + 1):
            watching(user, f"https://x{number}.com/")
        refresh_registrations()
        assert len(registry.asked) == LOOKUPS_PER_RUN
        refresh_registrations()
        assert len(set(registry.asked)) == len(registry.asked) == LOOKUPS_PER_RUN + 1

    def test_two_runs_at_once_share_the_work(self, registry: Registry, user: User) -> None:
        for number in range(8):
            registry.expires(f"x{number}.com", "2027-08-13T04:00:00Z")
            watching(user, f"https://x{number}.com/")
        run_concurrently(refresh_registrations, refresh_registrations, refresh_registrations)
        assert sorted(registry.asked) == [f"x{number}.com" for number in range(8)]
        assert not MonitorState.objects.exclude(domain_expires_at=EXPIRY).exists()


# Races

ROUNDS = 12


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_claims_at_once(self, user: User) -> None:
        for number in range(3):
            watching(user, f"https://x{number}.com/")
        outcomes = run_concurrently(*[partial(claim_lookup, NOON)] * 6)
        found = [outcome for outcome in outcomes if isinstance(outcome, DomainRegistration)]
        assert len({lookup.pk for lookup in found}) == len(found) == 3

    def test_first_monitors_of_a_domain_at_once(self, user: User) -> None:
        owners = [UserFactory() for _ in range(4)]
        for turn in range(ROUNDS):
            run_concurrently(*(partial(watching, owner, f"https://x{turn}.com/") for owner in owners))
        assert len(names()) == ROUNDS
        assert not Monitor.objects.filter(registration=None).exists()

    def test_a_patch_beside_a_lookup(self, user: User) -> None:
        """In either order, the monitor shows the expiry of its current domain."""
        for turn in range(ROUNDS):
            monitor = MonitorFactory(owner=user, url=f"https://x{turn}.com/")
            leaving = watching(user, f"https://x{turn}.com/")
            staying = watching(user, f"https://x{turn}.com/")
            run_concurrently(
                partial(record_expiry, claimed(), EXPIRY, now=NOON),
                partial(patch, user, monitor, check_domain=True),
                partial(patch, user, leaving, url="https://127.0.0.1/"),
            )
            assert (shown(monitor), shown(leaving), shown(staying)) == (EXPIRY, None, EXPIRY)

    def test_two_domains_changed_places_beside_their_lookups(self, user: User) -> None:
        for turn in range(ROUNDS):
            one, two = f"https://x{turn}.com/", f"https://y{turn}.com/"
            first, second = watching(user, one), watching(user, two)
            lookups = [claimed(), claimed()]
            dates = {lookup.name[0]: date for lookup, date in zip(lookups, (EXPIRY, LATER), strict=True)}
            run_concurrently(
                *(partial(record_expiry, each, dates[each.name[0]], now=NOON) for each in lookups),
                partial(patch, user, first, url=two),
                partial(patch, user, second, url=one),
            )
            assert (shown(first), shown(second)) == (dates["y"], dates["x"])

    def test_a_monitor_joins_while_its_registration_is_removed(self, user: User) -> None:
        for turn in range(ROUNDS):
            monitor = MonitorFactory(owner=user, url=f"https://x{turn}.com/")
            with transaction.atomic():
                lock_registrations([f"x{turn}.com"], now=NOON)
            run_concurrently(partial(remove_unused, NOON), partial(patch, user, monitor, check_domain=True))
            assert Monitor.objects.get(pk=monitor.pk).registration == row(f"x{turn}.com")

    def test_a_registry_is_put_off_by_two_at_once(self, user: User) -> None:
        for turn in range(ROUNDS):
            watching(user, f"https://x{turn}.com/")
            run_concurrently(
                partial(put_off, "com", HOUR, error="busy", now=NOON),
                partial(put_off, "com", 2 * HOUR, error="busy", now=NOON),
                partial(watching, user, f"https://x{turn}.com/"),
            )
        assert not DomainRegistration.objects.filter(next_lookup_at__lt=NOON + HOUR).exists()
