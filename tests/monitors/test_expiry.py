"""Warnings before certificates and registrations expire: the tightest threshold, each once."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from monitors.expiry.warnings import THRESHOLDS, warn_of_expiries
from monitors.models import ExpiryWarning, Monitor, MonitorState
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, run_concurrently

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
CERTIFICATE, DOMAIN = ExpiryWarning.Subject.CERTIFICATE, ExpiryWarning.Subject.DOMAIN


@pytest.fixture
def user() -> User:
    return UserFactory()


def secured(user: User, expires_at: datetime | None = None, **given: Any) -> Monitor:
    monitor = MonitorFactory(owner=user, url="https://example.com/", **{"check_ssl": True} | given)
    return with_certificate(monitor, expires_at)


def with_certificate(monitor: Monitor, expires_at: datetime | None) -> Monitor:
    MonitorState.objects.filter(pk=monitor.pk).update(cert_expires_at=expires_at)
    return monitor


def registered(user: User, expires_at: datetime | None) -> Monitor:
    monitor = MonitorFactory(owner=user, url="https://example.com/", check_domain=True)
    MonitorState.objects.filter(pk=monitor.pk).update(domain_expires_at=expires_at)
    return monitor


def warned(monitor: Monitor) -> list[int]:
    """Return the thresholds in the order of their warnings."""
    warnings = ExpiryWarning.objects.filter(monitor=monitor).order_by("pk")
    return list(warnings.values_list("threshold_days", flat=True))


@pytest.mark.parametrize(
    ("left", "threshold"),
    [
        (31 * DAY, None),
        (30 * DAY + timedelta(seconds=1), None),
        (30 * DAY, 30),
        (15 * DAY, 30),
        (14 * DAY, 14),
        (7 * DAY + timedelta(seconds=1), 14),
        (7 * DAY, 7),
        (3 * DAY, 3),
        (2 * DAY, 3),
        (DAY, 1),
        (timedelta(hours=3), 1),
        (timedelta(0), 1),
        (-timedelta(hours=3), 1),
        (-400 * DAY, 1),
    ],
)
def test_the_tightest_threshold_that_is_crossed(left: timedelta, threshold: int | None, user: User) -> None:
    certificate, registration = secured(user, NOON + left), registered(user, NOON + left)
    warn_of_expiries(NOON)
    warn_of_expiries(NOON)
    expected = [] if threshold is None else [threshold]
    assert (warned(certificate), warned(registration)) == (expected, expected)


def test_what_a_warning_says(user: User) -> None:
    certificate, registration = secured(user, NOON + 5 * DAY), registered(user, NOON + DAY)
    warn_of_expiries(NOON)
    fields = ("monitor", "subject", "expires_at", "threshold_days", "at", "processed_at")
    assert set(ExpiryWarning.objects.values_list(*fields)) == {
        (certificate.pk, CERTIFICATE, NOON + 5 * DAY, 7, NOON, None),
        (registration.pk, DOMAIN, NOON + DAY, 1, NOON, None),
    }


def test_one_warning_for_each_threshold_as_the_days_go_by(user: User) -> None:
    monitor, late = secured(user, NOON + 40 * DAY), secured(user)
    for hours in range(0, 42 * 24, 6):
        now = NOON + timedelta(hours=hours)
        if now == NOON + 35 * DAY:
            with_certificate(late, NOON + 40 * DAY)  # first seen 5 days before its expiry
        warn_of_expiries(now)
    assert (warned(monitor), warned(late)) == ([30, 14, 7, 3, 1], [7, 3, 1])


def test_a_renewed_certificate_starts_again(user: User) -> None:
    monitor = secured(user, NOON + 2 * DAY)
    warn_of_expiries(NOON)
    with_certificate(monitor, NOON + 90 * DAY)
    warn_of_expiries(NOON + DAY)
    assert warned(monitor) == [3]
    warn_of_expiries(NOON + 61 * DAY)
    assert warned(monitor) == [3, 30]


def test_a_server_that_alternates_between_certificates_warns_of_each_once(user: User) -> None:
    monitor = secured(user)
    for turn in range(6):
        with_certificate(monitor, NOON + (2 + turn % 2) * DAY)
        warn_of_expiries(NOON)
    assert warned(monitor) == [3, 3]


def test_two_monitors_of_one_domain_are_both_warned_about(user: User) -> None:
    monitors = [registered(user, NOON + DAY), registered(UserFactory(), NOON + DAY)]
    warn_of_expiries(NOON)
    assert [warned(monitor) for monitor in monitors] == [[1], [1]]


def test_certificate_and_domain_that_end_together_are_two_things(user: User) -> None:
    monitor = secured(user, NOON + DAY, check_domain=True)
    MonitorState.objects.filter(pk=monitor.pk).update(domain_expires_at=NOON + DAY)
    warn_of_expiries(NOON)
    assert warned(monitor) == [1, 1]


def test_no_warning_without_the_setting_or_while_paused(user: User) -> None:
    silent = [secured(user, NOON, check_ssl=False), secured(user, None), secured(user, NOON, type="heartbeat")]
    paused = secured(user, NOON)
    update_monitor(Caller(user), paused.public_id, {"enabled": False}, now=NOON)
    warn_of_expiries(NOON)
    assert [warned(monitor) for monitor in [*silent, paused]] == [[], [], [], []]
    update_monitor(Caller(user), paused.public_id, {"enabled": True}, now=NOON)
    warn_of_expiries(NOON)
    assert warned(paused) == [1]


def test_a_monitor_that_moved_elsewhere_is_not_warned_about_the_old_certificate(user: User) -> None:
    monitor = MonitorFactory(owner=user, url="https://example.com/", check_ssl=True, up=True)
    with_certificate(monitor, NOON + DAY)
    update_monitor(Caller(user), monitor.public_id, {"url": "https://example.org/"}, now=NOON)
    warn_of_expiries(NOON)
    assert warned(monitor) == []


def test_a_deleted_monitor_leaves_no_warnings(user: User) -> None:
    monitor = secured(user, NOON)
    warn_of_expiries(NOON)
    delete_monitor(Caller(user), monitor.public_id)
    assert not ExpiryWarning.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_warn_once(user: User) -> None:
    monitors = [secured(user, NOON + number * DAY) for number in range(20)]
    for turn in range(6):
        run_concurrently(*[partial(warn_of_expiries, NOON + turn * DAY)] * 4)
    for monitor in monitors:
        thresholds = warned(monitor)
        assert thresholds == sorted(set(thresholds), reverse=True)


# Against the rule in Python


def crossed(expires_at: datetime, now: datetime) -> int | None:
    return min((days for days in THRESHOLDS if expires_at - now <= days * DAY), default=None)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(
        st.tuples(
            st.integers(-24, 10 * 24),  # hours since the last run; the clock of another worker may be behind
            st.sampled_from([0, 1, 2, 10, 20, 29, 45, 100, None]),  # the expiry of the certificate, by day
        ),
        max_size=12,
    )
)
def test_any_history_warns_as_the_rule_says(history: list[tuple[int, int | None]], user: User) -> None:
    monitor, now = secured(user), NOON
    expected: list[tuple[datetime, int]] = []
    for hours, day in history:
        now += timedelta(hours=hours)
        expires_at = None if day is None else NOON + day * DAY
        with_certificate(monitor, expires_at)
        warn_of_expiries(now)
        if expires_at is not None and (threshold := crossed(expires_at, now)) is not None:
            earlier = [days for end, days in expected if end == expires_at]
            if not earlier or min(earlier) > threshold:
                expected.append((expires_at, threshold))
    found = ExpiryWarning.objects.filter(monitor=monitor).order_by("pk")
    assert list(found.values_list("expires_at", "threshold_days")) == expected
    delete_monitor(Caller(user), monitor.public_id)


def test_a_certificate_that_is_not_verified_is_warned_of(user: User) -> None:
    accepted = secured(user, NOON + DAY, check_ssl=False, tls_verify=False)
    ignored = secured(user, NOON + DAY, check_ssl=False)
    warn_of_expiries(NOON)
    warn_of_expiries(NOON)
    assert (warned(accepted), warned(ignored)) == ([1], [])
