"""The environment variables of Pulsekeeper. A test compares docs/operate/settings.md with them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from config.variables import (
    boolean,
    comma_separated,
    decimal,
    http_address,
    one_of,
    read_variables,
    variable,
    variables,
    whole,
)
from core.egress import parse_networks

BASE_DIR = Path(__file__).resolve().parent.parent

# The names of `connectors.providers.BACKENDS`, which cannot be imported before the settings. A test compares the two.
BACKENDS = ("vercel", "netlify")


def connectors_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse `word=backend` pairs into backends by word. Raises ValueError."""
    backends: dict[str, str] = {}
    for pair in pairs:
        word, _, backend = (part.strip() for part in pair.partition("="))
        if not re.fullmatch("[a-z0-9][a-z0-9_-]{0,31}", word):
            raise ValueError(f"{pair!r} must begin with a word of at most 32 characters: a-z, 0-9, - and _")
        if backend not in BACKENDS:
            raise ValueError(f"{pair!r} names an unknown provider; known are {' and '.join(BACKENDS)}")
        if word in backends or backend in backends.values():
            raise ValueError(f"{pair!r} repeats a word or a provider")
        backends[word] = backend
    return backends


def mail_settings(url: str | None) -> dict[str, Any]:
    """Return Django's settings for a mail server. Raises ValueError unless it is an smtp:// or smtps:// URL."""
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
        # Never send a password unencrypted.
        "EMAIL_USE_TLS": not tls and bool(parts.username),
        "EMAIL_TIMEOUT": 10,
    }


def name_server(text: str) -> str:
    """Normalize an IP address with an optional port for the resolver. Raises ValueError."""
    bracketed = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    try:
        parts = urlsplit(f"//{bracketed}")
        address, port = ip_address(parts.hostname or ""), parts.port
        normalized = f"[{address}]" if address.version == 6 else str(address)
        is_netloc_only = parts.netloc == bracketed and "@" not in bracketed
        valid = is_netloc_only and port != 0 and bracketed.startswith("[") is normalized.startswith("[")
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"{text!r} is not the address of a name server, like 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353"
        )
    return normalized if port is None else f"{normalized}:{port}"


def name_servers(text: str) -> tuple[str, ...]:
    return tuple(map(name_server, comma_separated(text)))


def known_providers(text: str) -> tuple[str, ...]:
    pairs = comma_separated(text)
    connectors_of(pairs)
    return pairs


def mail_server(text: str) -> str:
    mail_settings(text)
    return text


@dataclass(frozen=True, kw_only=True)
class Env:
    """The variables. Every default is safe; descriptions name those that production must set."""

    database_url: str | None = variable(
        None,
        "PostgreSQL address, `postgresql://user:password@host:5432/name`. Without it `manage.py` "
        "uses a private PostgreSQL in `DATA_DIR`. Set it in production.",
        from_file=True,
    )
    redis_url: str | None = variable(
        None,
        "Valkey or Redis address, `redis://:password@host:6379/0`: broker, cache and throttles. "
        "Without it `manage.py` uses a private Valkey in `DATA_DIR`. Set it in production.",
        from_file=True,
    )
    secret_key: str | None = variable(
        None,
        "Signs cookies and digests of tokens; at least 50 random characters. Changing it "
        "signs out all users and revokes all tokens. Required with `DATABASE_URL`.",
        from_file=True,
    )
    encryption_keys: tuple[str, ...] = variable(
        (),
        "Comma-separated Fernet keys for secrets at rest. The first one "
        "encrypts, all decrypt; `docs/operate/operations.md` explains rotation. Required with `DATABASE_URL`.",
        read=comma_separated,
        from_file=True,
    )
    data_dir: Path = variable(
        BASE_DIR / ".data",
        "Folder of the private servers, their generated keys and beat's schedule.",
        read=Path,
    )
    debug: bool = variable(default=False, description="Django's debug pages. Never in production.", read=boolean)
    allowed_hosts: tuple[str, ...] = variable(
        ("localhost", "127.0.0.1", "[::1]"),
        "Comma-separated host names that the web server accepts.",
        read=comma_separated,
    )
    base_url: str = variable(
        "http://localhost:8000",
        "Public address of this deployment, shown in `/openapi.json`. `manage.py up` sets its own.",
    )
    staging_url: str = variable(
        "http://localhost:8001", "Public address of the staging deployment, shown in `/openapi.json`."
    )
    allowed_private_networks: tuple[IPv4Network | IPv6Network, ...] = variable(
        (),
        "Comma-separated private or reserved CIDRs that probes may reach. "
        "`manage.py up` sets the loopback networks if it is not set.",
        read=parse_networks,
    )
    email_url: str | None = variable(
        None,
        "Mail server, `smtp://user:password@host:587` (STARTTLS if a user is given), `smtps://…:465` "
        "(TLS) or `smtp://localhost:25`; percent-encode special characters. Without it the links of accounts and "
        "invitations are printed to the log, and alerts and status page mails "
        "are not sent. Set it in production.",
        read=mail_server,
        from_file=True,
    )
    email_from: str = variable("pulsekeeper@localhost", "Sender address of e-mails.")
    ssl_cert_file: str | None = variable(
        None, "PEM file of the certificate authorities that probes trust, instead of the system's."
    )
    dns_servers: tuple[str, ...] = variable(
        (),
        "Comma-separated addresses of the name servers that probes query, with or without a port: "
        "`192.0.2.1`, `192.0.2.1:5353`, `[2001:db8::1]:5353`. Default: those of the system.",
        read=name_servers,
    )
    rdap_bootstrap_url: str = variable(
        "https://data.iana.org/rdap/",
        "Folder of IANA's list of RDAP registries, or of a mirror of it (`dns.json`). Registries are queried "
        "over https only, unless this address itself is `http://`.",
        read=http_address,
    )
    connectors: tuple[str, ...] = variable(
        ("vercel=vercel", "netlify=netlify"),
        "Comma-separated `word=provider`: the providers that users can link, and the word for each in the paths "
        "of `/v1/connectors`. Providers are `vercel` and `netlify` (`docs/use/connectors.md`).",
        read=known_providers,
    )
    vercel_url: str = variable(
        "https://vercel.com", "Address of Vercel's consent page, for tests and mirrors.", read=http_address
    )
    vercel_api_url: str = variable(
        "https://api.vercel.com", "Address of Vercel's API, for tests and mirrors.", read=http_address
    )
    vercel_client_id: str | None = variable(
        None,
        "Client id of this deployment's integration at Vercel; `docs/use/connectors.md` explains how to register "
        "it. Vercel accounts can be linked only with it, its secret and `VERCEL_SLUG`.",
    )
    vercel_client_secret: str | None = variable(None, "Client secret of that integration.", from_file=True)
    vercel_slug: str | None = variable(
        None, "URL slug of that integration, as in `https://vercel.com/integrations/<slug>`."
    )
    netlify_url: str = variable(
        "https://app.netlify.com",
        "Address of Netlify's consent page, for tests and mirrors.",
        read=http_address,
    )
    netlify_api_url: str = variable(
        "https://api.netlify.com", "Address of Netlify's API, for tests and mirrors.", read=http_address
    )
    netlify_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth application at Netlify; `docs/use/connectors.md` explains how to "
        "register it. Netlify accounts can be linked only with it and its secret.",
    )
    netlify_client_secret: str | None = variable(None, "Client secret of that application.", from_file=True)
    sign_up: bool = variable(
        default=False,
        description="Whether anyone may sign up. Otherwise accounts need an invitation to a project, or are created "
        "by `manage.py create_account` or staff (`docs/use/accounts.md`).",
        read=boolean,
    )
    github_url: str = variable(
        "https://github.com", "Address of GitHub's consent page, for tests and mirrors.", read=http_address
    )
    github_api_url: str = variable(
        "https://api.github.com", "Address of GitHub's API, for tests and mirrors.", read=http_address
    )
    github_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth app at GitHub; `docs/use/accounts.md` explains how to register it. "
        "Sign-in with GitHub needs it and its secret.",
    )
    github_client_secret: str | None = variable(None, "Client secret of that app.", from_file=True)
    google_url: str = variable(
        "https://accounts.google.com",
        "Address of Google's consent page, for tests and mirrors.",
        read=http_address,
    )
    google_token_url: str = variable(
        "https://oauth2.googleapis.com",
        "Address of Google's token endpoint, for tests and mirrors.",
        read=http_address,
    )
    google_api_url: str = variable(
        "https://openidconnect.googleapis.com",
        "Address of Google's user info, for tests and mirrors.",
        read=http_address,
    )
    google_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth client at Google; `docs/use/accounts.md` explains how to register it."
        " Sign-in with Google needs it and its secret.",
    )
    google_client_secret: str | None = variable(None, "Client secret of that client.", from_file=True)
    throttle_scale: float = variable(1.0, "Multiplies every throttle; 0 turns throttling off.", read=decimal(0))
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = variable(
        (),
        "Comma-separated CIDRs of reverse proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and "
        "`X-Request-ID` are trusted. Without it the client is the address of the connection.",
        read=parse_networks,
    )
    hsts_seconds: int = variable(
        2_592_000,
        "How long browsers must use https (`Strict-Transport-Security`, sent over https only); 0 turns it off.",
        read=whole(0),
    )
    metrics_allowed: tuple[IPv4Network | IPv6Network, ...] = variable(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        "Comma-separated CIDRs that may read `/metrics`; others get 404. A reverse proxy in "
        "front of it must be in `TRUSTED_PROXIES`.",
        read=parse_networks,
    )
    status_page_domains: tuple[str, ...] = variable(
        (),
        "Comma-separated host names that users may set as domains of status pages; `.example.com` stands for all "
        "subdomains, `*` for any. Such a host serves only its page (`docs/use/status-pages.md`). Without it pages "
        "cannot have domains.",
        read=comma_separated,
    )
    results_kept_days: int = variable(
        14,
        "Days for which single checks are kept; whole days are dropped.",
        read=whole(2, 3650),
    )
    rollups_kept_days: int = variable(
        400,
        "Days for which hourly roll-ups are kept; whole months are dropped.",
        read=whole(2, 36500),
    )
    audit_kept_days: int = variable(
        400,
        "Days for which entries of the audit log are kept (`docs/operate/audit.md`).",
        read=whole(1, 36500),
    )
    flapping_changes: int = variable(
        3,
        "A monitor that goes down or recovers this many times within `FLAPPING_MINUTES` is flapping: one alert says "
        "so, and further alerts are suppressed until it is stable.",
        read=whole(3, 100),
    )
    flapping_minutes: int = variable(
        30,
        "See `FLAPPING_CHANGES`. A monitor is stable when it kept its status for half of this time and for three "
        "checks.",
        read=whole(2, 1440),
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = variable(
        "INFO",
        "Level of Pulsekeeper's own log lines. `DEBUG` logs every check.",
        read=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    )
    log_format: Literal["text", "json"] = variable(
        "text",
        "Format of log lines: `text` for people, `json` with one object per line for machines "
        "(`docs/operate/observability.md`). Use `json` in production.",
        read=one_of("text", "json"),
    )
    sentry_dsn: str | None = variable(
        None,
        "DSN of Sentry, or of a compatible service, for error reports "
        "(`docs/operate/observability.md`). Without it errors are not reported.",
        read=http_address,
        from_file=True,
    )
    sentry_environment: str = variable("production", "Environment of error reports.")
    sentry_release: str | None = variable(None, "Release of error reports, such as a version or a commit.")
    sentry_traces_sample_rate: float = variable(
        0.0,
        "Share of requests and tasks that send a trace to Sentry, 0 to 1. Pings never do.",
        read=decimal(0, 1),
    )
    otel_exporter_otlp_endpoint: str | None = variable(
        None,
        "Address of an OpenTelemetry collector with OTLP over HTTP, like `http://localhost:4318`. "
        "Enables traces of requests and tasks; the SDK also reads the other `OTEL_` variables.",
        read=http_address,
    )
    port: int = variable(8000, "Port of the web server under `make up`.", read=whole(1, 65535))
    admin_email: str = variable("admin@example.com", "E-mail address of the first account that `make up` creates.")
    admin_password: str | None = variable(
        None, "Password of that account. Without it one is generated and printed once."
    )
    admin_plan: str = variable(
        "local",
        "Its plan: `local` (intervals from 10 s, no limit on monitors), `pro` (from 60 s, 1,000 monitors), "
        "`free` (from 300 s, 50 monitors), or another. An account that exists keeps its plan.",
    )


FROM_FILES = tuple(each.name for each in variables(Env) if each.metadata["from_file"])


def read_env() -> Env:
    """Read the environment. Raises `config.variables.InvalidEnvironment`."""
    return read_variables(Env, os.environ)
