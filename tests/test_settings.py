"""Reading the environment."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import settings
from config.env import BACKENDS, broker_url, database_settings, mail_settings
from connectors import providers


def read_settings() -> dict[str, Any]:
    """Evaluate the settings again, as a new process does."""
    return runpy.run_path(str(Path(settings.__file__)))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://localhost:2525", ("localhost", 2525, "", "", False, False)),
        ("smtp://mail.example.com", ("mail.example.com", 25, "", "", False, False)),
        ("smtp://me%40x:p%2Fw@mail.example.com", ("mail.example.com", 587, "me@x", "p/w", False, True)),
        ("smtps://me:pw@mail.example.com", ("mail.example.com", 465, "me", "pw", True, False)),
    ],
)
def test_mail_servers(url: str, expected: tuple[object, ...]) -> None:
    made = mail_settings(url)
    names = ("HOST", "PORT", "HOST_USER", "HOST_PASSWORD", "USE_SSL", "USE_TLS")
    assert tuple(made[f"EMAIL_{name}"] for name in names) == expected
    assert mail_settings("")["EMAIL_BACKEND"].endswith("console.EmailBackend")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p%40@db:5433/name", ("db", 5433, "u", "p@", "name", None)),
        ("postgresql://u:p@h1:5432,h2:5433/name", ("h1,h2", "5432,5433", "u", "p", "name", "read-write")),
        ("postgresql://u:p@h1,[::1]:5433/name", ("h1,::1", "5432,5433", "u", "p", "name", "read-write")),
        ("postgresql://u@h1,h2/name?target_session_attrs=any", ("h1,h2", "5432,5432", "u", "", "name", "any")),
    ],
)
def test_databases(url: str, expected: tuple[object, ...]) -> None:
    found = database_settings(url)
    values = tuple(found[name] for name in ("HOST", "PORT", "USER", "PASSWORD", "NAME"))
    assert (*values, found.get("OPTIONS", {}).get("target_session_attrs")) == expected


@pytest.mark.parametrize(
    "url", ["mysql://h/name", "h/name", "postgresql://h1,/name", "postgresql://h1,h2:x/name", "postgresql://h"]
)
def test_invalid_databases(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL: must be postgresql://"):
        read_settings()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://:p@h:6379/0", "redis://:p@h:6379/0"),
        ("rediss://h/0", "rediss://h/0?ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_ca_certs=/ca.pem", "rediss://h/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
    ],
)
def test_brokers(url: str, expected: str) -> None:
    assert broker_url(url) == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sentinel://h:26379", "Sentinel is not supported"),
        ("amqp://h", "must be redis://"),
        ("h:6379", "must be redis://"),
    ],
)
def test_invalid_brokers(monkeypatch: pytest.MonkeyPatch, url: str, problem: str) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    with pytest.raises(ImproperlyConfigured, match=f"REDIS_URL: {problem}"):
        read_settings()


@pytest.mark.parametrize("url", ["mail.example.com", "http://x", "smtp://", "smtp://h:port", "smtp://h/path"])
def test_invalid_mail_servers(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("EMAIL_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^EMAIL_URL: "):
        read_settings()


@pytest.mark.parametrize("networks", ["10.0.0.1/8", "proxy"])
def test_invalid_networks(monkeypatch: pytest.MonkeyPatch, networks: str) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", networks)
    with pytest.raises(ImproperlyConfigured):
        read_settings()


def test_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNS_SERVERS", "192.0.2.1, 192.0.2.1:5353,2001:db8::1,[2001:DB8::1],[::1]:5353,")
    expected = ("192.0.2.1", "192.0.2.1:5353", "[2001:db8::1]", "[2001:db8::1]", "[::1]:5353")
    assert read_settings()["DNS_SERVERS"] == expected


@pytest.mark.parametrize(
    "server",
    [
        "ns.example.com",
        "192.0.2",
        "192.0.2.1:0",
        "192.0.2.1:99999",
        "192.0.2.1:53 54",
        "[192.0.2.1]:53",
        "a@192.0.2.1",
        "::1/53",
        "2001:db8::1:x",
        "[::1",
        "[::1]:dns",
    ],
)
def test_invalid_name_servers(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv("DNS_SERVERS", f"192.0.2.1,{server}")
    with pytest.raises(ImproperlyConfigured, match="is not the address of a name server") as caught:
        read_settings()
    assert repr(server) in str(caught.value)


def test_connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(BACKENDS) == set(providers.BACKENDS)
    assert read_settings()["CONNECTORS"] == {"vercel": "vercel", "netlify": "netlify"}
    monkeypatch.setenv("CONNECTORS", "provider_a=vercel, provider-b = netlify,")
    assert read_settings()["CONNECTORS"] == {"provider_a": "vercel", "provider-b": "netlify"}


@pytest.mark.parametrize(
    "pairs",
    [
        "vercel",
        "vercel=",
        "=vercel",
        "vercel=github",
        "a=vercel,a=netlify",
        "a=vercel,b=vercel",
        "a/b=vercel",
        "Vercel=vercel",
        "-=vercel",
        f"{'x' * 33}=vercel",
        "a=b=vercel",
    ],
)
def test_invalid_connectors(monkeypatch: pytest.MonkeyPatch, pairs: str) -> None:
    monkeypatch.setenv("CONNECTORS", pairs)
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings()
    assert repr(pairs.rpartition(",")[2]) in str(caught.value)


OPENID = {"OIDC_ISSUER": "https://id.example.com/realms/acme/", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}


def test_openid(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = "ops=prj_1:admin, cn=dev=prj_2:member,"
    for name, text in {**OPENID, "OIDC_PROJECT_ROLES": roles, "OIDC_STAFF_GROUPS": "ops, /acme/on call"}.items():
        monkeypatch.setenv(name, text)
    made = read_settings()
    assert made["OIDC_ISSUER"] == OPENID["OIDC_ISSUER"], "with its slash: the ID token must have the same"
    assert made["OIDC_PROJECT_ROLES"] == (("ops", "prj_1", "admin"), ("cn=dev", "prj_2", "member"))
    assert made["OIDC_STAFF_GROUPS"] == ("ops", "/acme/on call")


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"OIDC_ISSUER": "id.example.com"}, "OIDC_ISSUER: must be an http:// or https:// address"),
        ({"OIDC_ISSUER": "https://id.example.com/?tenant=1"}, "OIDC_ISSUER: must be an http:// or https:// address"),
        ({"OIDC_CLIENT_SECRET": ""}, "OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET must be set together"),
        ({"OIDC_ISSUER": ""}, "OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET must be set together"),
        (
            {**dict.fromkeys(OPENID, ""), "OIDC_ONLY": "true"},
            "OIDC_ONLY needs OIDC_ISSUER to sign in with",
        ),
        ({"OIDC_PROJECT_ROLES": "ops=prj_1"}, "'ops=prj_1' must be group=project-id:role, like ops=prj_0123:admin"),
        ({"OIDC_PROJECT_ROLES": "ops=:admin"}, "'ops=:admin' must be group"),
        ({"OIDC_PROJECT_ROLES": "=prj_1:admin"}, "'=prj_1:admin' must be group"),
        ({"OIDC_PROJECT_ROLES": "prj_1:admin"}, "'prj_1:admin' must be group"),
    ],
)
def test_invalid_openid(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], wrong: str) -> None:
    for name, text in (OPENID | given).items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings()
    assert wrong in str(caught.value)


@pytest.mark.parametrize("url", ["data.iana.org/rdap/", "ftp://data.iana.org/", "https://", "https://x/?y"])
def test_invalid_rdap_bootstrap_urls(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("RDAP_BOOTSTRAP_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^RDAP_BOOTSTRAP_URL: "):
        read_settings()


def test_secrets_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" a long key, with blanks about it \n")
    (tmp_path / "keys").write_text("one,two\r\n")
    for name in ("SECRET_KEY", "ENCRYPTION_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SECRET_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("ENCRYPTION_KEYS_FILE", str(tmp_path / "keys"))
    made = read_settings()
    assert (made["SECRET_KEY"], made["ENCRYPTION_KEYS"]) == (" a long key, with blanks about it ", ("one", "two"))


@pytest.mark.parametrize(
    ("content", "also", "wrong"),
    [
        (None, "", "EMAIL_URL_FILE: {path}: No such file or directory"),
        (b"\n", "", "EMAIL_URL_FILE: {path}: is empty"),
        (b"\xff\xfe", "", "EMAIL_URL_FILE: {path}: is not text"),
        (b"smtp://a", "smtp://b", "EMAIL_URL and EMAIL_URL_FILE are both set: remove one of them"),
    ],
)
def test_invalid_secret_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, also: str, wrong: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("EMAIL_URL_FILE", str(path))
    monkeypatch.setenv("EMAIL_URL", also)
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings()
    assert str(caught.value) == wrong.format(path=path)


def test_a_secret_from_a_file_is_validated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("http://mail.example.com\n")
    monkeypatch.setenv("EMAIL_URL_FILE", str(tmp_path / "secret"))
    with pytest.raises(ImproperlyConfigured):
        read_settings()


def test_all_errors_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"PORT": "65536", "DEBUG": "perhaps", "THROTTLE_SCALE": "nan", "LOG_FORMAT": "xml"}.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings()
    assert str(caught.value).split("; ") == [
        "DEBUG: must be true or false",
        "THROTTLE_SCALE: must be a number, at least 0",
        "LOG_FORMAT: must be one of text, json",
        "PORT: must be a whole number, 1 to 65535",
    ]


def test_parsed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"PORT": "65535", "DEBUG": "Yes", "THROTTLE_SCALE": "0.5", "LOG_LEVEL": "debug", "SIGN_UP": "0"}
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("BASE_URL", "")  # counts as not set
    made = read_settings()
    names = ("PORT", "DEBUG", "THROTTLE_SCALE", "LOG_LEVEL", "SIGN_UP")
    assert tuple(made[name] for name in names) == (65535, True, 0.5, "DEBUG", False)
    assert made["BASE_URL"] == "http://localhost:8000"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "\u0661", "8000x"])
def test_invalid_ports(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PORT", text)
    with pytest.raises(ImproperlyConfigured):
        read_settings()


def test_connectivity_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTIVITY_TARGETS", "192.0.2.1:443, example.com:80,[2001:db8::1]:443")
    expected = (("192.0.2.1", 443), ("example.com", 80), ("2001:db8::1", 443))
    assert read_settings()["CONNECTIVITY_TARGETS"] == expected
    monkeypatch.setenv("CONNECTIVITY_TARGETS", "")
    assert read_settings()["CONNECTIVITY_TARGETS"] == (), "off"
    monkeypatch.delenv("CONNECTIVITY_TARGETS")
    assert read_settings()["CONNECTIVITY_TARGETS"], "on by default"


@pytest.mark.parametrize(
    "server",
    ["192.0.2.1", "example.com", ":443", "example.com:0", "example.com:65536", "a@example.com:443", "2001:db8::1:443",
     "https://example.com:443", "example.com:443/x", "exa mple.com:443", "example..com:443", "example.com:https"],
)  # fmt: skip
def test_invalid_connectivity_targets(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv("CONNECTIVITY_TARGETS", f"192.0.2.1:443,{server}")
    with pytest.raises(ImproperlyConfigured, match=r"^CONNECTIVITY_TARGETS: .* is not a host with a port"):
        read_settings()
