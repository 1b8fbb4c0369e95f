"""The environment Pulsekeeper reads, typed. docs/settings.md is the table made of it; a test compares the two."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from config.secret_files import SecretFiles
from core.egress import parse_networks

BASE_DIR = Path(__file__).resolve().parent.parent

CommaSeparated = Annotated[tuple[str, ...], NoDecode]

# The names of `connectors.providers.BACKENDS`, which could not be read before the settings; a test compares the two.
BACKENDS = ("vercel", "netlify")

# Whoever gives `<NAME>_FILE` keeps the secret out of the environment, which every child of a process inherits.
FROM_FILES = (
    "database_url",
    "redis_url",
    "secret_key",
    "encryption_keys",
    "email_url",
    "vercel_client_secret",
    "netlify_client_secret",
    "github_client_secret",
    "google_client_secret",
)


def connectors_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Backends by the word of their paths, of `word=backend` each. Raises ValueError for what cannot be."""
    found: dict[str, str] = {}
    for pair in pairs:
        word, _, backend = (part.strip() for part in pair.partition("="))
        if not re.fullmatch("[a-z0-9][a-z0-9_-]{0,31}", word):
            raise ValueError(
                f"{pair!r} does not begin with a word of a-z, 0-9, - and _, of 32 characters at most"
            )
        if backend not in BACKENDS:
            raise ValueError(f"{pair!r} names no provider; there are {' and '.join(BACKENDS)}")
        if word in found or backend in found.values():
            raise ValueError(f"{pair!r} names a word or a provider for the second time")
        found[word] = backend
    return found


def mail_settings(url: str | None) -> dict[str, Any]:
    """Django's settings of a mail server. Raises ValueError for what is no `smtp://` or `smtps://` address."""
    if url is None:
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}
    parts = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.path.strip("/"):
        raise ValueError("must be smtp://[user:password@]host[:port] or smtps://…")
    tls = parts.scheme == "smtps"
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or (465 if tls else 587 if parts.username else 25),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": tls,
        # A password goes over no open line.
        "EMAIL_USE_TLS": not tls and bool(parts.username),
        "EMAIL_TIMEOUT": 10,
    }


def name_server(text: str) -> str:
    """An address with or without a port, as the resolver takes it. Raises ValueError for what is none."""
    bracketed = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    try:
        parts = urlsplit(f"//{bracketed}")
        address, port = ip_address(parts.hostname or ""), parts.port
        spelt = f"[{address}]" if address.version == 6 else str(address)
        in_full = parts.netloc == bracketed and "@" not in bracketed
        fits = in_full and port != 0 and bracketed.startswith("[") is spelt.startswith("[")
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{text!r} is no address of a name server, like 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353"
        )
    return spelt if port is None else f"{spelt}:{port}"


class Env(BaseSettings):
    """Every variable has a default that is safe; what production must give is said in its description."""

    model_config = SettingsConfigDict(case_sensitive=False, extra="ignore", env_ignore_empty=True)

    database_url: str | None = Field(
        default=None,
        description="PostgreSQL address, `postgresql://user:password@host:5432/name`. Without it `manage.py` "
        "joins a private PostgreSQL in `DATA_DIR`. Production gives it.",
    )
    redis_url: str | None = Field(
        default=None,
        description="Valkey or Redis address, `redis://:password@host:6379/0`: broker, cache and throttles. "
        "Without it `manage.py` joins a private Valkey in `DATA_DIR`. Production gives it.",
    )
    secret_key: str | None = Field(
        default=None,
        description="Signs cookies and keys the digests of tokens; at least 50 random characters. Changing it "
        "signs everybody out and revokes every token. Required with `DATABASE_URL`.",
    )
    encryption_keys: CommaSeparated = Field(
        default=(),
        description="Comma-separated Fernet keys for secrets at rest (of monitors and alert channels). The first "
        "encrypts, all decrypt; `docs/operations.md` says how to change it. Required with `DATABASE_URL`.",
    )
    data_dir: Path = Field(
        default=BASE_DIR / ".data",
        description="Where the private servers, their generated keys and beat's schedule live.",
    )
    debug: bool = Field(default=False, description="Django's debug pages. Never in production.")
    allowed_hosts: CommaSeparated = Field(
        default=("localhost", "127.0.0.1", "[::1]"),
        description="Comma-separated host names the web server answers for.",
    )
    base_url: str = Field(
        default="http://localhost:8000",
        description="Public address of this deployment, named in `/openapi.json`. `manage.py up` names its own.",
    )
    staging_url: str = Field(
        default="http://localhost:8001",
        description="Public address of the staging deployment, named in `/openapi.json`.",
    )
    allowed_private_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="Comma-separated CIDRs that probes may reach although they are private or reserved. "
        "`manage.py up` sets the loopback networks when it is not given.",
    )
    email_url: str | None = Field(
        default=None,
        description="Mail server, `smtp://user:password@host:587` (STARTTLS where a user is given), `smtps://…:465` "
        "(TLS) or `smtp://localhost:25`; `%`-escape what is special in a URL. Without it e-mails are printed to the "
        "log, which is enough on one's own machine. Production gives it.",
    )
    email_from: str = Field(
        default="pulsekeeper@localhost", description="Sender of the e-mails, an address of yours."
    )
    ssl_cert_file: str | None = Field(
        default=None,
        description="PEM file of the certificate authorities that probes trust, instead of the system's.",
    )
    dns_servers: CommaSeparated = Field(
        default=(),
        description="Comma-separated addresses of the name servers that probes ask, with or without a port: "
        "`192.0.2.1`, `192.0.2.1:5353`, `[2001:db8::1]:5353`. Without it those of the system.",
    )
    rdap_bootstrap_url: str = Field(
        default="https://data.iana.org/rdap/",
        description="Folder of IANA's list of RDAP registries, or of a mirror of it (`dns.json`). Registries are asked "
        "by https only, unless this address itself is `http://`.",
    )
    connectors: CommaSeparated = Field(
        default=("vercel=vercel", "netlify=netlify"),
        description="Comma-separated `word=provider`: the providers that people can link, and the word that the paths "
        "of `/v1/connectors` have for each. Providers are `vercel` and `netlify` (`docs/connectors.md`).",
    )
    vercel_url: str = Field(
        default="https://vercel.com",
        description="Where Vercel's page of consent is, for tests and mirrors.",
    )
    vercel_api_url: str = Field(
        default="https://api.vercel.com", description="Where Vercel's API is, for tests and mirrors."
    )
    vercel_client_id: str | None = Field(
        default=None,
        description="Client id of this deployment's integration at Vercel; `docs/connectors.md` says how to register "
        "it. Without it, its secret and `VERCEL_SLUG` accounts at Vercel cannot be linked.",
    )
    vercel_client_secret: str | None = Field(default=None, description="Client secret of that integration.")
    vercel_slug: str | None = Field(
        default=None,
        description="URL slug of that integration, as in `https://vercel.com/integrations/<slug>`.",
    )
    netlify_url: str = Field(
        default="https://app.netlify.com",
        description="Where Netlify's page of consent is, for tests and mirrors.",
    )
    netlify_api_url: str = Field(
        default="https://api.netlify.com", description="Where Netlify's API is, for tests and mirrors."
    )
    netlify_client_id: str | None = Field(
        default=None,
        description="Client id of this deployment's OAuth application at Netlify; `docs/connectors.md` says how to "
        "register it. Without it and its secret accounts at Netlify cannot be linked.",
    )
    netlify_client_secret: str | None = Field(default=None, description="Client secret of that application.")
    sign_up: bool = Field(
        default=False,
        description="Whether anybody may sign up. Without it accounts are for those who were invited to a project, and "
        "for those that `manage.py create_account` or staff makes (`docs/accounts.md`).",
    )
    github_url: str = Field(
        default="https://github.com", description="Where GitHub's page of consent is, for tests and mirrors."
    )
    github_api_url: str = Field(
        default="https://api.github.com", description="Where GitHub's API is, for tests and mirrors."
    )
    github_client_id: str | None = Field(
        default=None,
        description="Client id of this deployment's OAuth app at GitHub; `docs/accounts.md` says how to register it. "
        "Without it and its secret nobody signs in with GitHub.",
    )
    github_client_secret: str | None = Field(default=None, description="Client secret of that app.")
    google_url: str = Field(
        default="https://accounts.google.com",
        description="Where Google's page of consent is, for tests and mirrors.",
    )
    google_token_url: str = Field(
        default="https://oauth2.googleapis.com",
        description="Where Google redeems codes, for tests and mirrors.",
    )
    google_api_url: str = Field(
        default="https://openidconnect.googleapis.com",
        description="Where Google tells who somebody is, for tests and mirrors.",
    )
    google_client_id: str | None = Field(
        default=None,
        description="Client id of this deployment's OAuth client at Google; `docs/accounts.md` says how to register it."
        " Without it and its secret nobody signs in with Google.",
    )
    google_client_secret: str | None = Field(default=None, description="Client secret of that client.")
    throttle_scale: float = Field(
        default=1.0, ge=0, description="Multiplies every throttle; 0 turns throttling off."
    )
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="Comma-separated CIDRs of reverse proxies whose `X-Forwarded-For` tells a client's address to "
        "the throttles. Without it the address is that of the connection. Their `X-Forwarded-Proto` and "
        "`X-Request-ID` count, too.",
    )
    hsts_seconds: int = Field(
        default=2_592_000,
        ge=0,
        description="How long browsers are to insist on https, told where `BASE_URL` is reached by it "
        "(`Strict-Transport-Security`); 0 for not at all.",
    )
    metrics_allowed: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(ip_network("127.0.0.0/8"), ip_network("::1/128")),
        description="Comma-separated CIDRs that may read `/metrics`; to all others it is 404. A reverse proxy in "
        "front of it must be named in `TRUSTED_PROXIES`.",
    )
    status_page_domains: CommaSeparated = Field(
        default=(),
        description="Comma-separated host names that people may give their status pages, `.example.com` for all below "
        "it, `*` for any. Such a host serves its page and nothing else (`docs/status-pages.md`). Without it pages have "
        "no domains of their own.",
    )
    results_kept_days: int = Field(
        default=14,
        ge=2,
        le=3650,
        description="Days for which single checks are kept; the day they end in is dropped whole.",
    )
    rollups_kept_days: int = Field(
        default=400,
        ge=2,
        le=36500,
        description="Days for which hourly roll-ups are kept; the month they end in is dropped whole.",
    )
    audit_kept_days: int = Field(
        default=400,
        ge=1,
        le=36500,
        description="Days for which entries of the audit log are kept (`docs/audit.md`).",
    )
    flapping_changes: int = Field(
        default=3,
        ge=3,
        le=100,
        description="A monitor that goes down or recovers so many times within `FLAPPING_MINUTES` is flapping: that is "
        "told once, and nothing more until it has settled.",
    )
    flapping_minutes: int = Field(
        default=30,
        ge=2,
        le=1440,
        description="See `FLAPPING_CHANGES`. It has settled when it kept its status for half of this, and for three of "
        "its checks.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = Field(
        default="INFO",
        description="Level of Pulsekeeper's own log lines. At `DEBUG` every check has one.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="How log lines are written: `text` for people, `json` one object a line for machines "
        "(`docs/observability.md`). Production gives `json`.",
    )
    port: int = Field(default=8000, ge=1, le=65535, description="Port of the web server under `make up`.")
    admin_email: str = Field(
        default="admin@example.com", description="E-mail address of the first account that `make up` creates."
    )
    admin_password: str | None = Field(
        default=None, description="Password of that account. Without it one is generated and printed once."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, SecretFiles(settings_cls, names=FROM_FILES)

    @field_validator(
        "rdap_bootstrap_url",
        "vercel_url",
        "vercel_api_url",
        "netlify_url",
        "netlify_api_url",
        "github_url",
        "github_api_url",
        "google_url",
        "google_token_url",
        "google_api_url",
    )
    @classmethod
    def _http_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must be an http:// or https:// address")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("email_url")
    @classmethod
    def _mail_server(cls, value: str | None) -> str | None:
        if value is not None:
            mail_settings(value)
        return value

    @field_validator(
        "encryption_keys", "allowed_hosts", "dns_servers", "connectors", "status_page_domains", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("dns_servers")
    @classmethod
    def _name_servers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(name_server, value))

    @field_validator("connectors")
    @classmethod
    def _known_providers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        connectors_of(value)
        return value

    @field_validator("allowed_private_networks", "trusted_proxies", "metrics_allowed", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return parse_networks(value) if isinstance(value, str) else value
