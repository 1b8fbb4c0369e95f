"""Which tables belong to accounts, by their foreign keys, and which ones the account export leaves out, and why.

`tests/privacy/living.py` stores a row in each that belongs to accounts, for tests of exports, deletion and permissions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from django.apps import apps
from django.db.models import Model, QuerySet

from accounts.models import User
from projects.access import key_to, owned
from projects.models import Project

Models = Collection[type[Model]]

_OPERATION = "of Pulsekeeper's own operation, not of an account"
_LIBRARY = "of a library, without personal data"
_SECRET = "nothing but a secret that expires within the hour"

NOT_EXPORTED = {
    "accounts.User_groups": "rights in the admin, which the operator gives",
    "accounts.User_user_permissions": "rights in the admin, which the operator gives",
    "admin.LogEntry": "staff's work on what the operator runs",
    "account.EmailConfirmation": "not used: links that confirm addresses are signed, not stored",
    "auth.Group": "rights in the admin",
    "auth.Group_permissions": "rights in the admin",
    "auth.Permission": "rights in the admin",
    "checks.CheckResult": "too many; NOT_INCLUDED names them",
    "checks.DeletedMonitor": "what is left to erase of a deleted monitor",
    "checks.HourlyRollup": "too many; NOT_INCLUDED names them",
    "checks.LateHour": _OPERATION,
    "checks.PackedReasons": "too many; NOT_INCLUDED names them",
    "checks.PackedResults": "too many; NOT_INCLUDED names them",
    "checks.RollupProgress": _OPERATION,
    "connectors.OAuthState": _SECRET,
    "contenttypes.ContentType": _LIBRARY,
    "incidents.Escalation": "how far alerts have come; the steps are in the timeline of the incident",
    "locations.JoinToken": _SECRET,
    "manifests.Upload": "a file of the person's own, with passwords, that expires within the hour",
    "monitors.BulkEdit": "what undoing a change needs for ten minutes; the changes are in the audit log",
    "monitors.BulkEditItem": "what undoing a change needs for ten minutes; the changes are in the audit log",
    "monitors.Canary": _OPERATION,
    "monitors.Dependency": "exported with the monitor, as `depends_on`",
    "monitors.DnsAlert": "an outbox; the changes that it announces are exported",
    "monitors.DomainRegistration": "shared by all accounts; the expiry is exported with the monitor",
    "monitors.PingGap": _OPERATION,
    "monitors.ScheduleSlots": "computed from the schedule of the monitor",
    "monitors.SchedulerGap": _OPERATION,
    "monitors.SchedulerTick": _OPERATION,
    "monitors.UptimeProgress": _OPERATION,
    "monitors.LocationFailure": "counted from results, which are exported",
    "monitors.Verification": "a failed check that other locations are asked about; its result is exported",
    "oncall.AcknowledgeLink": "nothing but a secret that expires within a week",
    "projects.IdempotencyKey": "answers that the account has had, kept for a day",
    "sessions.Session": "a secret; the browsers are exported",
    "social_django.Association": _LIBRARY,
    "social_django.Code": _LIBRARY,
    "social_django.Nonce": _LIBRARY,
    "social_django.Partial": _LIBRARY,
    "statuspages.PageLogo": "an image, which the page itself returns",
    "statuspages.PageMail": "mails to subscribers, whose addresses are theirs; their events are exported",
}


def all_models() -> Models:
    return [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]


def undecided(models: Models, statements: Iterable[str]) -> list[str]:
    """Return what to decide about models that an export, with these SQL statements, does not select columns of."""
    selected = {table for text in statements for table in re.findall(r'"(\w+)"\."', text.partition(" FROM ")[0])}
    return [
        f"{model._meta.label} is not in the account export: add it to account_export.py of its app, or to NOT_EXPORTED "
        "in tests/ownership.py with the reason."
        for model in models
        if model._meta.db_table not in selected and model._meta.label not in NOT_EXPORTED
    ]


def rows_of(user: User, models: Models) -> dict[str, QuerySet[Any]]:
    """Return the account's rows of the models that belong to accounts, by label."""
    keyed = [model for model in models if key_to(User, model) or key_to(Project, model)]
    return {model._meta.label: owned(model._default_manager.all(), user) for model in keyed}


def rows_in(project: Project, models: Models) -> dict[str, QuerySet[Any]]:
    """Return the rows that are deleted with the project, by label."""
    keys = {model: key for model in models if (key := key_to(Project, model))}
    return {model._meta.label: model._default_manager.filter(**{key: project.pk}) for model, key in keys.items()}


def untested(rows: dict[str, QuerySet[Any]]) -> list[str]:
    """Return what to add to the rows of a test."""
    return [
        f"{label} belongs to accounts: store a row of it in tests/privacy/living.py, so that the tests of exports, "
        "deletion and permissions include it."
        for label, found in rows.items()
        if not found.exists()
    ]
