"""Every page of the admin loads, in few queries and without secrets. New models are covered automatically."""

from __future__ import annotations

from collections.abc import Callable

from django.apps import apps
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

import config.urls  # noqa: F401  (finds the admin's pages)
from core.staff import ReadOnlyAdmin, StaffAdmin
from tests.admin.addresses import pages_of
from tests.admin.scene import furnish
from tests.helpers import flush_broker

MOST_QUERIES = 20
ROWS = 15  # a query for each would be too many by itself

NOT_REGISTERED = {
    # Parts of a monitor, shown on its page; their keys have several columns.
    "checks.CheckResult",
    "checks.HourlyRollup",
    "checks.PackedReasons",
    "checks.PackedResults",
    "monitors.DailyUptime",
    "monitors.Dependency",
    "monitors.DnsAlert",
    "monitors.DnsAnswer",
    "monitors.MaintenanceSpan",
    "monitors.MonitorState",
    "monitors.LocationFailure",
    "monitors.PingExcess",
    "monitors.ScheduleSlots",
    "monitors.Verification",
    # Shown by the health page.
    "monitors.Canary",
    # Signals of jobs with their bodies, which are private.
    "monitors.Ping",
    # Parts of registered models, shown on their pages.
    "alerts.DeliveryItem",
    "incidents.IncidentEvent",
    "statuspages.NoteUpdate",
    "statuspages.PageGroup",
    "statuspages.PageMonitor",
    "statuspages.PageLogo",
    # Our own progress: the health page shows it.
    "checks.DeletedMonitor",
    "checks.LateHour",
    "checks.RollupProgress",
    "monitors.SchedulerTick",
    "monitors.UptimeProgress",
    # Only secrets, and rows that are deleted within a day.
    "social_django.Nonce",
    "connectors.OAuthState",
    "manifests.Upload",
    "monitors.BulkEdit",
    "monitors.BulkEditItem",
    "projects.IdempotencyKey",
    "oncall.AcknowledgeLink",
    "statuspages.Badge",
    "account.EmailConfirmation",
    "sessions.Session",
    # Of libraries.
    "social_django.Association",
    "social_django.Code",
    "social_django.Partial",
    "auth.Permission",
    "contenttypes.ContentType",
}


def test_every_model_is_there_or_left_out_on_purpose() -> None:
    registered = {model._meta.label for model in admin.site._registry}
    assert {model._meta.label for model in apps.get_models()} == registered | NOT_REGISTERED
    assert not registered & NOT_REGISTERED


def test_lists_are_bounded_and_searchable() -> None:
    for model, page in admin.site._registry.items():
        assert isinstance(page, StaffAdmin), model
        assert not page.show_full_result_count
        # A list without a search has few rows.
        assert page.search_fields or model._meta.label in {"monitors.PingGap", "monitors.SchedulerGap"}, model


def test_every_page_takes_few_queries_and_tells_no_secret(staff: Client) -> None:
    flush_broker()
    hidden = furnish(ROWS)
    wrong: list[str] = []
    for model, page in admin.site._registry.items():
        assert model._default_manager.count() >= min(ROWS, 2), f"the scene has no {model._meta.label}"
        for address in pages_of(model, page):
            with CaptureQueriesContext(connection) as captured:
                answer = staff.get(address)
            if answer.status_code != 200:
                wrong.append(f"{address}: {answer.status_code} {answer.headers.get('Location', '')}")
                continue
            if len(captured) > MOST_QUERIES:
                wrong.append(f"{address}: {len(captured)} queries")
            html = answer.content.decode()
            wrong += [f"{address} shows {secret!r}" for secret in hidden if secret in html and secret not in address]
    assert not wrong, "\n".join(wrong)


def test_what_is_for_reading_has_no_form_and_strangers_see_no_list(staff: Client) -> None:
    for model, page in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        if isinstance(page, ReadOnlyAdmin):
            assert staff.get(reverse(f"{name}_add")).status_code == 403
        assert Client().get(reverse(f"{name}_changelist")).status_code == 302


def test_what_is_not_shown_cannot_be_guessed(staff: Client) -> None:
    furnish(1)
    for address in (
        "accounts/user/?password__startswith=md5",
        "monitors/monitor/?public_id__startswith=mon_a",
        "monitors/monitor/?header_values__contains=a",
        "incidents/incident/?monitor__public_id__startswith=mon_a",
        "tokens/session/?lookup__startswith=a",
    ):
        assert staff.get(f"/admin/{address}").status_code == 400, address


def test_staff_without_permissions_see_nothing(with_rights: Callable[..., Client]) -> None:
    looking = with_rights()
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
        assert looking.get(reverse(name)).status_code == 403
