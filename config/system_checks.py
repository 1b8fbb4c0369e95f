"""System checks for `manage.py check`, in addition to Django's.

Without arguments they find errors in any environment. `--deploy` adds errors in production, and `--database default`
checks of the servers. Only the last one connects to anything, so an image can be checked where it is built.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.http.request import validate_host

from core import mail
from core.text import counted

TAG = "pulsekeeper"
_MIN_DISTINCT_BYTES = 16  # of the 32 bytes of a key; random keys never have fewer
_LOCAL_NETWORKS = (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("169.254.0.0/16"))


@register(TAG, Tags.security)
def check_keys_are_valid(**_: Any) -> list[CheckMessage]:
    """Check that each of ENCRYPTION_KEYS is a Fernet key. Messages name keys only by position."""
    return [
        Error(
            f"ENCRYPTION_KEYS: key {number} is not a Fernet key.",
            hint="docs/operate/operations.md shows how to generate one.",
            id="pulsekeeper.E001",
        )
        for number, key in enumerate(settings.ENCRYPTION_KEYS, start=1)
        if _decode_key(key) is None
    ]


def _decode_key(key: str) -> bytes | None:
    try:
        decoded = base64.urlsafe_b64decode(key.encode())
    except (binascii.Error, ValueError):
        return None
    return decoded if len(decoded) == 32 else None


@register(TAG)
def check_timezone_is_utc(**_: Any) -> Iterator[CheckMessage]:
    """Check that all times are in UTC: days of results and roll-ups begin at midnight UTC."""
    from config import celeryconfig

    if not (settings.USE_TZ and settings.TIME_ZONE == celeryconfig.timezone == "UTC"):
        yield Error("USE_TZ must be True, and TIME_ZONE and Celery's timezone must be UTC.", id="pulsekeeper.E002")


@register(TAG)
def check_beat_tasks_exist(**_: Any) -> list[CheckMessage]:
    """Check that the tasks in beat's schedule exist. Beat sends only names, so it would not notice a wrong one."""
    from config import celeryconfig

    return [
        Error(f"beat's entry {name!r} names {entry['task']}, which is not a task.", id="pulsekeeper.E003")
        for name, entry in celeryconfig.beat_schedule.items()
        if entry["task"] not in _tasks()
    ]


@register(TAG)
def check_tasks_have_queues(**_: Any) -> list[CheckMessage]:
    """Check that every task is routed. Workers and beat check this when they start, too."""
    from config.routing import unrouted

    return [
        Error(f"{task} has no queue.", hint="Add it to config/routing.py.", id="pulsekeeper.E004")
        for task in unrouted(_tasks())
    ]


def _tasks() -> set[str]:
    from config.celery import app

    app.autodiscover_tasks(force=True)  # not with Celery's loader, which would run all checks
    return set(app.tasks)


@register(TAG, Tags.security, deploy=True)
def check_keys_are_strong(**_: Any) -> Iterator[CheckMessage]:
    """Check ENCRYPTION_KEYS. Django checks SECRET_KEY itself (security.W009)."""
    keys = settings.ENCRYPTION_KEYS
    if len(set(keys)) < len(keys):
        yield checks.Warning("ENCRYPTION_KEYS has the same key twice.", id="pulsekeeper.W010")
    if any(len(set(_decode_key(key) or b"")) < _MIN_DISTINCT_BYTES for key in keys):
        yield checks.Warning(
            "ENCRYPTION_KEYS has a key that is not random.",
            hint="docs/operate/operations.md shows how to generate one.",
            id="pulsekeeper.W011",
        )


@register(TAG)
def check_roles_of_groups(**_: Any) -> list[CheckMessage]:
    """Check that groups of the OpenID provider are given roles that exist, other than that of the owner."""
    from projects.groups import GRANTED

    unknown = {role for _, _, role in settings.OIDC_PROJECT_ROLES} - {*GRANTED}
    return [
        Error(
            f"OIDC_PROJECT_ROLES: groups cannot give the role {role!r}, only {', '.join(GRANTED)}.",
            id="pulsekeeper.E007",
        )
        for role in sorted(unknown)
    ]


@register(TAG, Tags.database)
def check_projects_of_groups(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that OIDC_PROJECT_ROLES names projects that exist. Sign-ins leave out a missing one."""
    named = {project for _, project, _ in settings.OIDC_PROJECT_ROLES}
    if "default" not in (databases or ()) or settings.SERVERLESS or not named:
        return
    from django.db import DatabaseError

    from projects.access import project_named

    try:
        missing = sorted(public_id for public_id in named if project_named(public_id) is None)
    except DatabaseError:
        return  # not migrated yet, or away, which `check_servers_are_ready` reports
    for public_id in missing:
        yield checks.Warning(f"OIDC_PROJECT_ROLES: project {public_id} does not exist.", id="pulsekeeper.W008")


@register(TAG, Tags.security, deploy=True)
def check_openid_is_encrypted(**_: Any) -> Iterator[CheckMessage]:
    if settings.OIDC_ISSUER and not settings.OIDC_ISSUER.startswith("https://"):
        yield checks.Warning(
            "OIDC_ISSUER is not https: an attacker who changes the traffic can sign in to any account.",
            id="pulsekeeper.W024",
        )


@register(TAG)
def check_pings_are_allowed(**_: Any) -> Iterator[CheckMessage]:
    """Check that a worker that is started as this process may send pings."""
    from checks.probes.ping.rights import HOW_TO_ALLOW, may_ping

    if not may_ping():
        yield checks.Warning(
            "This process may not send pings. A worker with the same rights makes no checks of ping monitors.",
            hint=f"For workers: {HOW_TO_ALLOW}. docs/operate/deployment.md shows both.",
            id="pulsekeeper.W005",
        )


@register(TAG, deploy=True)
def check_servers_are_set(**_: Any) -> Iterator[CheckMessage]:
    """Check that the servers are set. Otherwise `manage.py` starts private ones, and other processes fail."""
    if settings.SERVERLESS or not settings.REDIS_URL:
        yield Error("DATABASE_URL and REDIS_URL must be set in production.", id="pulsekeeper.E012")


@register(TAG, Tags.security, deploy=True)
def check_public_addresses(**_: Any) -> Iterator[CheckMessage]:
    """Check that BASE_URL, ALLOWED_HOSTS and TRUSTED_PROXIES fit together."""
    base = urlsplit(settings.BASE_URL)
    if base.scheme != "https":
        yield checks.Warning(
            "BASE_URL is not https: passwords, tokens and cookies would be sent unencrypted.", id="pulsekeeper.W013"
        )
    elif not settings.TRUSTED_PROXIES:
        yield checks.Warning(
            "BASE_URL is https, but TRUSTED_PROXIES does not name the proxy that terminates TLS.",
            hint="Without it all requests seem to come from the proxy over http: throttles count all clients as "
            "one, and no HSTS header is sent.",
            id="pulsekeeper.W014",
        )
    if "*" in settings.ALLOWED_HOSTS:
        yield checks.Warning(
            "ALLOWED_HOSTS accepts every Host header.",
            hint="List the host of BASE_URL and those that health checks use.",
            id="pulsekeeper.W015",
        )
    elif not validate_host(base.hostname or "", settings.ALLOWED_HOSTS):
        yield Error(f"ALLOWED_HOSTS does not contain {base.hostname}, the host of BASE_URL.", id="pulsekeeper.E016")


@register(TAG, deploy=True)
def check_mail_is_configured(**_: Any) -> Iterator[CheckMessage]:
    """Check the settings of e-mail, which sign-up and alerts need."""
    if not mail.has_server():
        yield checks.Warning("EMAIL_URL is not set: e-mails are printed to the log.", id="pulsekeeper.W017")
    if settings.DEFAULT_FROM_EMAIL.rstrip(">").endswith("@localhost"):
        yield checks.Warning("EMAIL_FROM is not an address that mail servers accept.", id="pulsekeeper.W018")


@register(TAG, Tags.security, deploy=True)
def check_probes_cannot_reach_this_host(**_: Any) -> Iterator[CheckMessage]:
    """Check that probes cannot reach this host and the metadata service of its cloud.

    Whether they may reach other private networks is up to the operator.
    """
    allowed = [
        str(network)
        for network in settings.ALLOWED_PRIVATE_NETWORKS
        if any(network.version == local.version and network.overlaps(local) for local in _LOCAL_NETWORKS)
    ]
    if allowed:
        yield checks.Warning(
            f"ALLOWED_PRIVATE_NETWORKS lets all users' checks reach this host: {', '.join(allowed)}.",
            id="pulsekeeper.W019",
        )


@register(TAG, Tags.database)
def check_history(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that this code knows all applied migrations. `migrate` runs this too."""
    if settings.SERVERLESS:
        return
    import psycopg

    from config.history import find_refusal

    for alias in databases or ():
        try:
            refusal = find_refusal(using=alias)
        except psycopg.OperationalError:
            continue  # `migrate` and `check_servers_are_ready` report this
        if refusal:
            yield Error(refusal.message, id="pulsekeeper.E006")


@register(TAG, Tags.database, deploy=True)
def check_servers_are_ready(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that PostgreSQL and the broker answer, migrations are applied and the database is in UTC.

    Only with `--deploy`, because `migrate` runs database checks before it applies migrations.
    """
    if "default" not in (databases or ()) or settings.SERVERLESS:
        return
    from config.health import OK, check_broker

    if (problem := check_broker()) != OK:
        yield Error(f"The broker of REDIS_URL {problem}.", id="pulsekeeper.E020")
    for alias, name in {"default": "DATABASE_URL", "history": "HISTORY_DATABASE_URL"}.items():
        if alias in settings.DATABASES:
            yield from _check_database(alias, name)


def _check_database(alias: str, name: str) -> Iterator[CheckMessage]:
    import psycopg

    from config.health import known_migrations
    from config.history import PATIENCE_SEC, applied_migrations
    from core.db import separate_connection

    try:
        with separate_connection(patience_sec=PATIENCE_SEC, using=alias) as database:
            zone = database.execute("SHOW timezone").fetchone()
            applied = applied_migrations(database)
    except psycopg.Error:
        yield Error(f"The database of {name} does not answer.", id="pulsekeeper.E021")
        return
    if missing := len(known_migrations() - applied):
        where = f" to the database of {name}" if alias != "default" else ""
        yield Error(
            f"{counted(missing, 'migration')} not applied{where}.", hint="manage.py migrate", id="pulsekeeper.E022"
        )
    if zone is not None and zone[0] not in ("UTC", "Etc/UTC", "GMT"):
        yield checks.Warning(
            f"The database server's time zone is {zone[0]}.",
            hint="ALTER DATABASE … SET timezone TO 'UTC', so that psql shows the same times as Pulsekeeper.",
            id="pulsekeeper.W023",
        )


@register(TAG, Tags.database, deploy=True)
def check_history_is_moved(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that HISTORY_DATABASE_URL names another database, and that the main one has nothing of the history."""
    if "default" not in (databases or ()) or "history" not in settings.DATABASES:
        return
    import psycopg

    from checks.results.moving import is_same, left_behind, opened

    try:
        with opened("default") as main, opened("history") as history:
            if is_same(main, history):
                yield Error(
                    "HISTORY_DATABASE_URL names the database of DATABASE_URL.",
                    hint="Leave it out, or name another database.",
                    id="pulsekeeper.E025",
                )
            elif tables := left_behind(main):
                yield Error(
                    f"The main database has rows of the history, which nothing reads: {', '.join(tables)}.",
                    hint="Stop all processes, then run manage.py move_history (docs/operate/operations.md).",
                    id="pulsekeeper.E026",
                )
    except psycopg.OperationalError:
        return  # `check_servers_are_ready` reports this
