"""Secrets are masked in texts, and everything else is kept."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver

from core.ids import monitor_id
from core.masking import _of_settings, mask, mask_all

SESSION = "ses_abcdefghijklmnop2345"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"sent {SESSION} twice", "sent ses_[masked] twice"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: [masked]"),
        ("got 'Bearer abc.def' there", "got 'Bearer [masked]' there"),
        ("postgresql://u:p@h:5432/name is away", "postgresql://[masked] is away"),
        ("https://u:p@h/x", "https://[masked]@h/x"),
        ("GET https://h/cb?code=1&state=2 failed", "GET https://h/cb?[masked] failed"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/[masked]"),
        ("Max retries exceeded with url: /services/T0/xyz (Caused", "Max retries exceeded with url: [masked] (Caused"),
        ("tgram://12:ab/34 was refused", "tgram://[masked] was refused"),
        ("password='hunter22', next=1", "password='[masked]', next=1"),
        ('{"client_secret": "hunter22"}', '{"client_secret": "[masked]"}'),
        ("/v1/heartbeats/mon_whatever/ping", "/v1/heartbeats/[masked]/ping"),
        ("/v1/monitors/mon_abcdefghijklmnopqrstuvwxyz", "/v1/monitors/mon_abcdef*"),
        ("/v1/monitors/mon_abcdefghijklmnop", "/v1/monitors/mon_abcdef*"),  # in a truncated path
        ("/what?is?it=1", "/what?is?[masked]"),
        # not masked
        ("https://example.com/shop is down", "https://example.com/shop is down"),
        ("the token of a session is too old?", "the token of a session is too old?"),
        ("/v1/tokens/tok_abcdefghijklmnopqrstuvwxyz", "/v1/tokens/tok_abcdefghijklmnopqrstuvwxyz"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert mask(text) == expected
    assert mask(expected) == expected


@pytest.mark.parametrize("sign", ["?", "=", ":", "://", " ", "a-", "bearer ", "password ", "password=", "?a"])
def test_texts_of_strangers_take_no_longer_than_they_are(sign: str) -> None:
    """In quadratic time this would not end within an hour."""
    assert len(mask(sign * 100_000)) > 0
    assert len(mask(f"password{sign * 100_000}")) > 0


def test_what_this_deployment_knows() -> None:
    known = [settings.SECRET_KEY, *settings.ENCRYPTION_KEYS]
    assert mask(f"<{'|'.join(known)}>") == f"<{'|'.join(['[masked]'] * len(known))}>"


def test_names() -> None:
    given = {
        "user": "usr_1",
        "Authorization": "x",
        "X-Api-Key": "x",
        "password1": "x",
        "inner": [{"client_secret": "x", "token_id": "tok_1", "text": SESSION}],
        "token": None,
        "count": 3,
    }
    assert mask_all(given) == {
        "user": "usr_1",
        "Authorization": "[masked]",
        "X-Api-Key": "[masked]",
        "password1": "[masked]",
        "inner": [{"client_secret": "[masked]", "token_id": "tok_1", "text": "ses_[masked]"}],
        "token": None,
        "count": 3,
    }


def test_passwords_of_all_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "history", {"PASSWORD": "a-password-of-history"})
    _of_settings.cache_clear()
    try:
        assert mask("with a-password-of-history") == "with [masked]"
    finally:
        _of_settings.cache_clear()


SECRET_PARTS = {"token", "key", "code", "secret", "state"}


def _patterns(resolver: URLResolver, before: str = "") -> list[str]:
    found = []
    for each in resolver.url_patterns:
        path = before + str(each.pattern)
        if isinstance(each, URLResolver):
            found += _patterns(each, path)
        elif isinstance(each, URLPattern) and SECRET_PARTS & set(each.pattern.regex.groupindex):
            found.append("/" + path)
    return found


def test_addresses_that_are_secrets() -> None:
    """Fails for a new secret URL: add its pattern to `core.masking`."""
    secret = "Abc-123_xyz"
    made = {
        "/a/<id:key>": f"/a/{secret}",
        "/calendar/<id:token>.ics": f"/calendar/{secret}.ics",
        "/invitations/<id:token>": f"/invitations/{secret}",
        "/alert-channels/confirm/<id:token>": f"/alert-channels/confirm/{secret}",
        "/account/^confirm-email/(?P<key>[-:\\w]+)/$": f"/account/confirm-email/{secret}/",
        "/account/^link/(?P<key>[-:\\w]+)/$": f"/account/link/{secret}/",
        "/account/^signup/(?P<key>[-:\\w]+)/$": f"/account/signup/{secret}/",
        "/account/^password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$": f"/account/password/reset/1-{secret}/",
    }
    assert set(_patterns(get_resolver())) == set(made)
    others = [f"/status-subscriptions/confirm/{secret}", f"/status-subscriptions/unsubscribe/{secret}"]
    for path in [*made.values(), *others, f"/v1/heartbeats/{secret}/ping"]:
        assert secret not in mask(f"GET {path} 200")


def test_an_id_of_a_monitor_is_too_short_to_ping_with() -> None:
    found = mask(monitor_id())
    assert len(found) == len("mon_") + 7
