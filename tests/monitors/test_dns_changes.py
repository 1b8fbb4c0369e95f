"""The records that a dns monitor finds: what counts as a change, and how often it is recorded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from alerts.notify import notify_dns_changes
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.clock import to_ms
from monitors.models import DnsAlert, DnsAnswer, DnsChange, Monitor, MonitorState
from monitors.recording import record
from monitors.recording.answers import MAX_LISTED, forget_old_changes
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_due
from monitors.services import update_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, run_concurrently

pytestmark = pytest.mark.django_db

A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"


def dns_monitor(**given: Any) -> Monitor:
    return MonitorFactory(**{"type": "dns", "url": "dns:example.com"} | given)


def claim(monitor: Monitor) -> tuple[int, datetime]:
    """Claim the next check when due, or when the lease of the last claim ends. Return its number and the time."""
    at = MonitorState.objects.get(pk=monitor.pk).next_due_at
    assert at is not None
    (found,) = claim_due(at, limit=1)
    return found.number, at


def found(
    monitor: Monitor,
    claimed: tuple[int, datetime],
    *records: str,
    verdict: Verdict = Verdict.UP,
    reason_code: ReasonCode | None = None,
) -> CheckRecord:
    """Return a record of a check, by default a pass. Without `records` the check got no answer."""
    detail = None if reason_code is None else "It failed."
    answer = tuple(sorted(records)) or None
    outcome = CheckOutcome(verdict, claimed[1], latency_ms=5, answer=answer, reason_code=reason_code, detail=detail)
    return CheckRecord(monitor.pk, claimed[0], Monitor.objects.get(pk=monitor.pk).config_version, outcome)


def check(monitor: Monitor, *records: str, **given: Any) -> CheckRecord:
    """Claim the next check and record it: the second one of a verdict takes the fast path."""
    claimed = claim(monitor)
    made = found(monitor, claimed, *records, **given)
    record([made], now=claimed[1])
    return made


def changes() -> list[tuple[list[str], list[str]]]:
    return [(change.added, change.removed) for change in DnsChange.objects.order_by("pk")]


def test_a_change_is_noted_once() -> None:
    monitor = dns_monitor()
    check(monitor, A, B)
    check(monitor, B, A)
    check(monitor, A, B)
    assert changes() == []
    made = check(monitor, B, C)
    check(monitor, B, C)
    assert changes() == [([C], [A])]
    change = DnsChange.objects.get()
    assert (change.at, change.added_count, change.removed_count) == (made.outcome.checked_at, 1, 1)
    alert = DnsAlert.objects.get()
    assert (alert.pk, alert.records, alert.due_at) == (monitor.pk, [A, B], made.outcome.checked_at)


def test_a_failure_between_changes_nothing() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    for _ in range(4):
        check(monitor, verdict=Verdict.DOWN, reason_code=ReasonCode.DNS_FAILURE)
    check(monitor, A)
    assert changes() == []
    check(monitor, verdict=Verdict.DOWN, reason_code=ReasonCode.DNS_FAILURE)
    check(monitor, B)
    assert changes() == [([B], [A])]


def test_a_failure_with_records_counts() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    for _ in range(3):  # on both paths
        check(monitor, B, verdict=Verdict.DOWN, reason_code=ReasonCode.CONTENT_FAILURE)
    check(monitor, C)
    assert changes() == [([B], [A]), ([C], [B])]


def test_a_repeated_record_and_an_older_one_change_nothing() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    first, second = claim(monitor), claim(monitor)
    newer, older = found(monitor, second, B), found(monitor, first, A)
    for batch in ([newer, newer], [newer], [older], [older, newer]):
        record(batch, now=second[1])
    assert changes() == [([B], [A])]
    check(monitor, B)
    assert changes() == [([B], [A])]


def test_several_results_of_a_monitor_in_one_batch() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    first, second, third = claim(monitor), claim(monitor), claim(monitor)
    record([found(monitor, third, A), found(monitor, first, B), found(monitor, second, C)], now=third[1])
    assert changes() == [([B], [A]), ([C], [B]), ([A], [C])]


def test_a_change_of_what_is_checked_starts_over_and_other_settings_do_not() -> None:
    user = UserFactory()
    monitor = dns_monitor(owner=user)
    check(monitor, A)
    update_monitor(Caller(user), monitor.public_id, {"name": "Zone", "interval_sec": 600}, now=NOON)
    check(monitor, B)
    assert changes() == [([B], [A])]
    update_monitor(Caller(user), monitor.public_id, {"url": "dns:example.com?type=MX"}, now=NOON)
    check(monitor, "10 mail.example.com")
    assert len(changes()) == 1
    assert DnsAnswer.objects.get().records == ["10 mail.example.com"]
    assert not DnsAlert.objects.exists()
    check(monitor, "20 mail.example.com")
    assert changes()[1:] == [(["20 mail.example.com"], ["10 mail.example.com"])]


@pytest.mark.parametrize("path", ["pause", "records", "owner"])
def test_a_pause_expected_records_and_another_owner_start_over(path: str) -> None:
    user = UserFactory()
    monitor = dns_monitor(owner=user)
    check(monitor, A)
    match path:
        case "pause":
            for enabled in (False, True):
                update_monitor(Caller(user), monitor.public_id, {"enabled": enabled}, now=NOON)
        case "records":
            update_monitor(Caller(user), monitor.public_id, {"records": [B]}, now=NOON)
            check(monitor)
            update_monitor(Caller(user), monitor.public_id, {"records": None}, now=NOON)
        case "owner":
            Monitor.objects.filter(pk=monitor.pk).update(owner=UserFactory())
    check(monitor, B)
    check(monitor, B)
    assert (changes(), DnsAlert.objects.count()) == ([], 0)
    check(monitor, C)
    assert (changes(), DnsAlert.objects.count()) == ([([C], [B])], 1)


def test_a_result_of_an_older_url_is_no_answer() -> None:
    user = UserFactory()
    monitor = dns_monitor(owner=user)
    check(monitor, A)
    claimed = claim(monitor)
    made = found(monitor, claimed, B)
    update_monitor(Caller(user), monitor.public_id, {"url": "dns:example.org"}, now=claimed[1])
    record([made], now=claimed[1])
    assert (changes(), DnsAnswer.objects.get().records) == ([], [A])


def test_long_sets_are_listed_in_part() -> None:
    monitor = dns_monitor()
    check(monitor, *(f"192.0.2.{number}" for number in range(100)))
    check(monitor, 'a "quoted" \\ record, with {braces}')
    change = DnsChange.objects.get()
    assert (change.added, len(change.removed), change.removed_count, change.more_removed) == (
        ['a "quoted" \\ record, with {braces}'], MAX_LISTED, 100, 100 - MAX_LISTED,
    )  # fmt: skip


def test_a_batch_takes_as_many_statements_for_any_number_of_answers() -> None:
    user = UserFactory()
    counts: list[int] = []
    for number in (1, 20):
        monitors = [dns_monitor(owner=user) for _ in range(number)]
        for records in ((A,), (B,), (C,)):
            at = MonitorState.objects.latest("next_due_at").next_due_at
            assert at is not None
            claims = {claimed.monitor_id: (claimed.number, at) for claimed in claim_due(at, limit=100)}
            batch = [found(monitor, claims[monitor.pk], *records) for monitor in monitors]
            with CaptureQueriesContext(connection) as captured:
                record(batch, now=at)
            counts.append(len(captured))
        Monitor.objects.all().delete()
    assert counts[1:3] == counts[4:]
    assert DnsChange.objects.count() == 0  # deleted with the monitors


@pytest.mark.django_db(transaction=True)
def test_two_recorders_at_once_note_it_once() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    claimed = claim(monitor)
    made = found(monitor, claimed, B)
    run_concurrently(*(lambda: record([made], now=claimed[1]) for _ in range(4)))
    assert changes() == [([B], [A])]


@pytest.mark.django_db(transaction=True)
def test_the_alerts_tick_never_waits_for_a_recorder() -> None:
    monitor = dns_monitor()
    for records in (A, B, B):
        check(monitor, records)
    claimed = claim(monitor)
    with transaction.atomic():
        record([found(monitor, claimed, A)], now=claimed[1])
        run_concurrently(lambda: notify_dns_changes(claimed[1]))
    assert DnsAlert.objects.get().records == [A]
    run_concurrently(lambda: notify_dns_changes(claimed[1]))
    assert not DnsAlert.objects.exists()


def test_a_recorder_that_dies_notes_nothing() -> None:
    monitor = dns_monitor()
    check(monitor, A)
    claimed = claim(monitor)
    made = found(monitor, claimed, B)
    with transaction.atomic():
        record([made], now=claimed[1])
        transaction.set_rollback(True)
    assert (changes(), DnsAnswer.objects.get().records) == ([], [A])
    record([made], now=claimed[1])
    assert changes() == [([B], [A])]


def test_old_changes_are_deleted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.recording.answers.KEPT_OF_MONITOR", 3)
    monitor, other = dns_monitor(), dns_monitor()
    now = NOON + timedelta(days=100)
    columns = {"added": [], "removed": [], "added_count": 0, "removed_count": 0}
    for days in (99, 15, 13, 1, 1, 1):
        DnsChange.objects.create(monitor=monitor, at=now - timedelta(days=days), **columns)
    kept = DnsChange.objects.create(monitor=other, at=now - timedelta(days=13), **columns)
    forget_old_changes(now)
    assert set(DnsChange.objects.filter(monitor=monitor).values_list("at", flat=True)) == {now - timedelta(days=1)}
    assert DnsChange.objects.filter(monitor=monitor).count() == 3
    assert list(DnsChange.objects.filter(monitor=other)) == [kept]


def test_the_api_lists_them() -> None:
    user = UserFactory()
    monitor = dns_monitor(owner=user)
    for records in ((A,), (B,), (C,)):
        check(monitor, *records)
    api, path = Api.signed_in(user), f"/v1/monitors/{monitor.public_id}/dns-changes"
    newest, older = DnsChange.objects.order_by("-pk")
    counts = {"added_count": 1, "removed_count": 1}
    expected = [
        {"at": to_ms(newest.at), "added": [C], "removed": [B], **counts},
        {"at": to_ms(older.at), "added": [B], "removed": [A], **counts},
    ]
    assert api.get(path).json == expected
    first = api.get(f"{path}?limit=1")
    assert first.json == expected[:1]
    following = first.headers["Link"].split(">")[0].removeprefix("<http://testserver")
    assert api.get(following).json == expected[1:]
    assert api.get(f"/v1/monitors/{MonitorFactory(owner=user).public_id}/dns-changes").json == []
