"""What `manage.py check` looks at beyond Django's own checks.

Without arguments: what would be wrong anywhere. With `--deploy`: what is wrong in production. With `--database default`
as well: what those settings lead to. Without that nobody is connected to: an image is checked where it is built.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from importlib import import_module
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.http.request import validate_host

from core import mail

TAG = "pulsekeeper"
_FEWEST_BYTES = 16  # different ones, of the 32 of a key; of random ones so few come about never
_OUR_OWN = (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("169.254.0.0/16"))


@register(TAG, Tags.security)
def keys_can_be_used(**_: Any) -> list[CheckMessage]:
    """Each of ENCRYPTION_KEYS is one of Fernet's, and none is told of more than by its place."""
    return [
        Error(
            f"ENCRYPTION_KEYS: number {number} is no Fernet key.",
            hint="docs/operate/operations.md says how one is made.",
            id="pulsekeeper.E001",
        )
        for number, key in enumerate(settings.ENCRYPTION_KEYS, start=1)
        if _bytes_of(key) is None
    ]


def _bytes_of(key: str) -> bytes | None:
    try:
        found = base64.urlsafe_b64decode(key.encode())
    except (binascii.Error, ValueError):
        return None
    return found if len(found) == 32 else None


@register(TAG)
def times_are_utc(**_: Any) -> list[CheckMessage]:
    """Days of results, roll-ups and windows begin where UTC has them begin."""
    from config import celeryconfig

    if settings.USE_TZ and settings.TIME_ZONE == celeryconfig.timezone == "UTC":
        return []
    return [Error("USE_TZ, TIME_ZONE and Celery's timezone must say UTC.", id="pulsekeeper.E002")]


@register(TAG)
def beat_names_tasks(**_: Any) -> list[CheckMessage]:
    """Beat sends names: of one that no worker knows, nothing would ever come."""
    from config import celeryconfig

    return [
        Error(f"beat's entry {name!r} names {entry['task']}, which is no task.", id="pulsekeeper.E003")
        for name, entry in celeryconfig.beat_schedule.items()
        if entry["task"] not in _tasks()
    ]


@register(TAG)
def tasks_have_queues(**_: Any) -> list[CheckMessage]:
    """Check that every task is routed. Workers and beat look for this at their start, too."""
    from config.routing import unrouted

    return [
        Error(f"{task} has no queue.", hint="Add it to config/routing.py.", id="pulsekeeper.E004")
        for task in unrouted(_tasks())
    ]


def _tasks() -> set[str]:
    from config.celery import TASK_MODULES, app

    for module in TASK_MODULES:  # not by Celery's loader, which would run all checks
        import_module(module)
    return set(app.tasks)


@register(TAG, Tags.security, deploy=True)
def keys_are_strong(**_: Any) -> Iterator[CheckMessage]:
    """Django looks at SECRET_KEY itself (security.W009)."""
    keys = settings.ENCRYPTION_KEYS
    if len(set(keys)) < len(keys):
        yield checks.Warning("ENCRYPTION_KEYS names a key twice.", id="pulsekeeper.W010")
    if any(len(set(_bytes_of(key) or b"")) < _FEWEST_BYTES for key in keys):
        yield checks.Warning(
            "ENCRYPTION_KEYS has a key that nobody drew at random.",
            hint="docs/operate/operations.md says how one is made.",
            id="pulsekeeper.W011",
        )


@register(TAG, deploy=True)
def servers_are_given(**_: Any) -> list[CheckMessage]:
    """Else `manage.py` joins private servers, and nothing else finds any."""
    if not settings.SERVERLESS and settings.REDIS_URL:
        return []
    return [Error("DATABASE_URL and REDIS_URL must be set in production.", id="pulsekeeper.E012")]


@register(TAG, Tags.security, deploy=True)
def addresses_are_public(**_: Any) -> Iterator[CheckMessage]:
    """BASE_URL, ALLOWED_HOSTS and TRUSTED_PROXIES, which must fit each other."""
    base = urlsplit(settings.BASE_URL)
    if base.scheme != "https":
        yield checks.Warning(
            "BASE_URL is not https: passwords and tokens would go over open lines, and cookies with them.",
            id="pulsekeeper.W013",
        )
    elif not settings.TRUSTED_PROXIES:
        yield checks.Warning(
            "BASE_URL is https and TRUSTED_PROXIES names nobody who ends the TLS.",
            hint="Without it all requests seem to come from the proxy, by http: throttles count everybody as one, and "
            "no browser is told of HSTS.",
            id="pulsekeeper.W014",
        )
    if "*" in settings.ALLOWED_HOSTS:
        yield checks.Warning(
            "ALLOWED_HOSTS lets everybody say what this host is called.",
            hint="Name the host of BASE_URL, and those by which probes of health ask.",
            id="pulsekeeper.W015",
        )
    elif not validate_host(base.hostname or "", settings.ALLOWED_HOSTS):
        yield Error(
            f"ALLOWED_HOSTS does not name {base.hostname}, the host of BASE_URL.", id="pulsekeeper.E016"
        )


@register(TAG, deploy=True)
def mail_can_be_sent(**_: Any) -> Iterator[CheckMessage]:
    """Without mail nobody gets in, and nobody is alerted."""
    if not mail.has_server():
        yield checks.Warning("EMAIL_URL is not set: e-mails are printed to the log.", id="pulsekeeper.W017")
    if settings.DEFAULT_FROM_EMAIL.rstrip(">").endswith("@localhost"):
        yield checks.Warning(
            "EMAIL_FROM is no address that anybody would take mail from.", id="pulsekeeper.W018"
        )


@register(TAG, Tags.security, deploy=True)
def probes_stay_outside(**_: Any) -> list[CheckMessage]:
    """A network of one's own is a decision; this host and the cloud's metadata are never one."""
    opened = [
        str(network)
        for network in settings.ALLOWED_PRIVATE_NETWORKS
        if any(network.version == own.version and network.overlaps(own) for own in _OUR_OWN)
    ]
    if not opened:
        return []
    return [
        checks.Warning(
            f"ALLOWED_PRIVATE_NETWORKS lets everybody's checks reach this host: {', '.join(opened)}.",
            id="pulsekeeper.W019",
        )
    ]


@register(TAG, Tags.database, deploy=True)
def what_is_reached_is_ready(*, databases: Sequence[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """PostgreSQL and the broker answer, all migrations are applied, and the server's days are those of UTC.

    Not before `migrate`, which runs the checks of databases too: hence only with `--deploy`.
    """
    if "default" not in (databases or ()) or settings.SERVERLESS:
        return
    import psycopg

    from config.health import OK, PATIENCE_SEC, broker_answers, known_migrations
    from core.db import hasty_connection

    if (found := broker_answers()) != OK:
        yield Error(f"The broker of REDIS_URL {found}.", id="pulsekeeper.E020")
    try:
        with hasty_connection(patience_sec=PATIENCE_SEC) as database:
            zone = database.execute("SHOW timezone").fetchone()
            applied: set[Any] = set()
            if database.execute("SELECT to_regclass('django_migrations')").fetchone() != (None,):
                applied |= set(database.execute("SELECT app, name FROM django_migrations").fetchall())
    except psycopg.Error:
        yield Error("The database of DATABASE_URL does not answer.", id="pulsekeeper.E021")
        return
    if missing := len(known_migrations() - applied):
        yield Error(f"{missing} migrations are not applied.", hint="manage.py migrate", id="pulsekeeper.E022")
    if zone is not None and zone[0] not in ("UTC", "Etc/UTC", "GMT"):
        yield checks.Warning(
            f"The database server's time zone is {zone[0]}.",
            hint="ALTER DATABASE … SET timezone TO 'UTC': what people read in psql is then what Pulsekeeper says.",
            id="pulsekeeper.W023",
        )
