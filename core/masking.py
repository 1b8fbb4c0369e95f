"""Mask secrets in logs, Sentry events and traces.

Code must not log secrets in the first place. This is the safety net: names of secrets, formats of our own, and the
values that this deployment is configured with. Usable before Django is set up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

MASKED = "[masked]"
_SHORTEST = 8  # shorter configured values would match ordinary words

_NAMES = (
    r"pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|secret[-_]?key|encryption[-_]?keys?|"
    r"authorization|proxy-authorization|cookies?|set-cookie|csrfmiddlewaretoken|sessionid|dsn|"
    r"credentials?|otp|recovery[-_]?codes?"
)
# `password1`, `client_secret`, `x-api-key`: the name itself, or after a dash or underscore.
_SECRET_NAME = re.compile(rf"(?:\A|[-_.])(?:{_NAMES})\d?\Z", re.IGNORECASE)

_SECRET = re.compile(
    r"""
    (?P<token>\b(?:ses|svc)_[0-9A-Za-z_-]{6,})
    | (?P<monitor>\bmon_[a-z2-7]{6})[a-z2-7]+               # of a heartbeat it is the secret of its pings
    | (?P<scheme>\b(?:bearer|basic)\s+)[^\s"',;]+
    | (?P<other>\b(?!https?:)[a-z][a-z0-9+]{1,19}://)[^\s"'<>]+     # of databases, brokers, mail servers, chats
    | (?P<chat>://(?:hooks\.slack\.com|discord(?:app)?\.com/api/webhooks|api\.telegram\.org)/)[^\s"'<>]+
    | (?P<pool>\bwith\ url:\ )\S+                            # of requests, without a host
    | (?P<user>://)[^\s/@:"']*:[^\s/@"']+@
    | (?P<link>/(?:a|calendar|v1/heartbeats|invitations|alert-channels/confirm
        |status-subscriptions/(?:confirm|unsubscribe)|account/(?:confirm-email|link|signup|password/reset))/)[^\s/?"']+
    | (?P<query>\?)[^\s"'<>=?]*=[^\s"'<>]*                    # of any address: where keys of others are
    | (?P<field>\b(?:[a-z0-9]+[-_.])?(?:"""
    + _NAMES
    + r""")\d?["']?\s*[=:]\s*["']?)(?!\[masked\])(?:(?:bearer|basic)\s+)?[^\s"',;&]+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_USER = re.compile(r"(\w://)[^\s/?#]*@")
_WEB_ADDRESS = re.compile(r"(https?://[^\s?#]*)([?#]\S*)?", re.IGNORECASE)


def mask(text: str) -> str:
    """Mask what looks like a secret, and the secrets of this deployment's settings."""
    from django.conf import settings

    for value in _of_settings() if settings.configured else ():
        if value in text:
            text = text.replace(value, MASKED)
    return _SECRET.sub(_masked, text)


def without_credentials(text: str) -> str:
    """Return the text with its addresses without user, query and fragment, and without known secrets in their paths."""
    text = _USER.sub(r"\1", text)
    return _WEB_ADDRESS.sub(lambda found: mask(found[1]) + ("?…" if found[2] else ""), text)


def mask_all(value: Any, *, name: str = "") -> Any:
    """Mask all texts in dictionaries and lists, and every value under the name of a secret."""
    if name and value not in (None, "") and _SECRET_NAME.search(name):
        return MASKED
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: mask_all(inner, name=str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_all(inner) for inner in value]
    return value


def _masked(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "token":
            return f"{found['token'][:4]}{MASKED}"
        case "monitor":
            return f"{found['monitor']}*"
        case "user":
            return f"://{MASKED}@"
        case kind:
            return f"{found[kind or 0]}{MASKED}"


@cache
def _of_settings() -> tuple[str, ...]:
    """Return the secret values of the settings, the longest first: one may be part of another."""
    from django.conf import settings

    found = {
        settings.SECRET_KEY,
        *settings.ENCRYPTION_KEYS,
        *(database.get("PASSWORD") for database in settings.DATABASES.values()),
        urlsplit(settings.REDIS_URL or "").password,
        getattr(settings, "EMAIL_HOST_PASSWORD", None),
        settings.SENTRY_DSN,
        *(getattr(settings, name) for name in dir(settings) if name.endswith("_CLIENT_SECRET")),
    }
    return tuple(sorted((each for each in found if each and len(each) >= _SHORTEST), key=len, reverse=True))
