"""The environment that Pulsekeeper reads, typed. A test compares docs/operate/settings.md with it."""

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
    networks,
    one_of,
    read_variables,
    variable,
    variables,
    whole,
)

BASE_DIR = Path(__file__).resolve().parent.parent

# The names of `connectors.providers.BACKENDS`, which could not be read before the settings; a test compares the two.
BACKENDS = ("vercel", "netlify")


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
    """Every variable has a default that is safe; what production must give is said in its description."""

    database_url: str | None = variable(
        None,
        "PostgreSQL address, `postgresql://user:password@host:5432/name`. Without it `manage.py` "
        "joins a private PostgreSQL in `DATA_DIR`. Production gives it.",
        from_file=True,
    )
    redis_url: str | None = variable(
        None,
        "Valkey or Redis address, `redis://:password@host:6379/0`: broker, cache and throttles. "
        "Without it `manage.py` joins a private Valkey in `DATA_DIR`. Production gives it.",
        from_file=True,
    )
    secret_key: str | None = variable(
        None,
        "Signs cookies and keys the digests of tokens; at least 50 random characters. Changing it "
        "signs everybody out and revokes every token. Required with `DATABASE_URL`.",
        from_file=True,
    )
    encryption_keys: tuple[str, ...] = variable(
        (),
        "Comma-separated Fernet keys for secrets at rest (of monitors and alert channels). The first "
        "encrypts, all decrypt; `docs/operate/operations.md` says how to change it. Required with `DATABASE_URL`.",
        read=comma_separated,
        from_file=True,
    )
    data_dir: Path = variable(
        BASE_DIR / ".data",
        "Where the private servers, their generated keys and beat's schedule live.",
        read=Path,
    )
    debug: bool = variable(
        default=False, description="Django's debug pages. Never in production.", read=boolean
    )
    allowed_hosts: tuple[str, ...] = variable(
        ("localhost", "127.0.0.1", "[::1]"),
        "Comma-separated host names the web server answers for.",
        read=comma_separated,
    )
    base_url: str = variable(
        "http://localhost:8000",
        "Public address of this deployment, named in `/openapi.json`. `manage.py up` names its own.",
    )
    staging_url: str = variable(
        "http://localhost:8001", "Public address of the staging deployment, named in `/openapi.json`."
    )
    allowed_private_networks: tuple[IPv4Network | IPv6Network, ...] = variable(
        (),
        "Comma-separated CIDRs that probes may reach although they are private or reserved. "
        "`manage.py up` sets the loopback networks when it is not given.",
        read=networks,
    )
    email_url: str | None = variable(
        None,
        "Mail server, `smtp://user:password@host:587` (STARTTLS where a user is given), `smtps://…:465` "
        "(TLS) or `smtp://localhost:25`; `%`-escape what is special in a URL. Without it the links of accounts and "
        "invitations are printed to the log, which is enough on one's own machine, and alerts and status page mails "
        "are not sent. Production gives it.",
        read=mail_server,
        from_file=True,
    )
    email_from: str = variable("pulsekeeper@localhost", "Sender of the e-mails, an address of yours.")
    ssl_cert_file: str | None = variable(
        None, "PEM file of the certificate authorities that probes trust, instead of the system's."
    )
    dns_servers: tuple[str, ...] = variable(
        (),
        "Comma-separated addresses of the name servers that probes ask, with or without a port: "
        "`192.0.2.1`, `192.0.2.1:5353`, `[2001:db8::1]:5353`. Without it those of the system.",
        read=name_servers,
    )
    rdap_bootstrap_url: str = variable(
        "https://data.iana.org/rdap/",
        "Folder of IANA's list of RDAP registries, or of a mirror of it (`dns.json`). Registries are asked "
        "by https only, unless this address itself is `http://`.",
        read=http_address,
    )
    connectors: tuple[str, ...] = variable(
        ("vercel=vercel", "netlify=netlify"),
        "Comma-separated `word=provider`: the providers that people can link, and the word that the paths "
        "of `/v1/connectors` have for each. Providers are `vercel` and `netlify` (`docs/use/connectors.md`).",
        read=known_providers,
    )
    vercel_url: str = variable(
        "https://vercel.com", "Where Vercel's page of consent is, for tests and mirrors.", read=http_address
    )
    vercel_api_url: str = variable(
        "https://api.vercel.com", "Where Vercel's API is, for tests and mirrors.", read=http_address
    )
    vercel_client_id: str | None = variable(
        None,
        "Client id of this deployment's integration at Vercel; `docs/use/connectors.md` says how to register "
        "it. Without it, its secret and `VERCEL_SLUG` accounts at Vercel cannot be linked.",
    )
    vercel_client_secret: str | None = variable(None, "Client secret of that integration.", from_file=True)
    vercel_slug: str | None = variable(
        None, "URL slug of that integration, as in `https://vercel.com/integrations/<slug>`."
    )
    netlify_url: str = variable(
        "https://app.netlify.com",
        "Where Netlify's page of consent is, for tests and mirrors.",
        read=http_address,
    )
    netlify_api_url: str = variable(
        "https://api.netlify.com", "Where Netlify's API is, for tests and mirrors.", read=http_address
    )
    netlify_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth application at Netlify; `docs/use/connectors.md` says how to "
        "register it. Without it and its secret accounts at Netlify cannot be linked.",
    )
    netlify_client_secret: str | None = variable(None, "Client secret of that application.", from_file=True)
    sign_up: bool = variable(
        default=False,
        description="Whether anybody may sign up. Without it accounts are for those who were invited to a project, and "
        "for those that `manage.py create_account` or staff makes (`docs/use/accounts.md`).",
        read=boolean,
    )
    github_url: str = variable(
        "https://github.com", "Where GitHub's page of consent is, for tests and mirrors.", read=http_address
    )
    github_api_url: str = variable(
        "https://api.github.com", "Where GitHub's API is, for tests and mirrors.", read=http_address
    )
    github_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth app at GitHub; `docs/use/accounts.md` says how to register it. "
        "Without it and its secret nobody signs in with GitHub.",
    )
    github_client_secret: str | None = variable(None, "Client secret of that app.", from_file=True)
    google_url: str = variable(
        "https://accounts.google.com",
        "Where Google's page of consent is, for tests and mirrors.",
        read=http_address,
    )
    google_token_url: str = variable(
        "https://oauth2.googleapis.com",
        "Where Google redeems codes, for tests and mirrors.",
        read=http_address,
    )
    google_api_url: str = variable(
        "https://openidconnect.googleapis.com",
        "Where Google tells who somebody is, for tests and mirrors.",
        read=http_address,
    )
    google_client_id: str | None = variable(
        None,
        "Client id of this deployment's OAuth client at Google; `docs/use/accounts.md` says how to register it."
        " Without it and its secret nobody signs in with Google.",
    )
    google_client_secret: str | None = variable(None, "Client secret of that client.", from_file=True)
    throttle_scale: float = variable(
        1.0, "Multiplies every throttle; 0 turns throttling off.", read=decimal(0)
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = variable(
        (),
        "Comma-separated CIDRs of reverse proxies whose `X-Forwarded-For` tells a client's address to "
        "the throttles. Without it the address is that of the connection. Their `X-Forwarded-Proto` and "
        "`X-Request-ID` count, too.",
        read=networks,
    )
    hsts_seconds: int = variable(
        2_592_000,
        "How long browsers are to insist on https, told where `BASE_URL` is reached by it "
        "(`Strict-Transport-Security`); 0 for not at all.",
        read=whole(0),
    )
    metrics_allowed: tuple[IPv4Network | IPv6Network, ...] = variable(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        "Comma-separated CIDRs that may read `/metrics`; to all others it is 404. A reverse proxy in "
        "front of it must be named in `TRUSTED_PROXIES`.",
        read=networks,
    )
    status_page_domains: tuple[str, ...] = variable(
        (),
        "Comma-separated host names that people may give their status pages, `.example.com` for all below "
        "it, `*` for any. Such a host serves its page and nothing else (`docs/use/status-pages.md`). Without it pages "
        "have no domains of their own.",
        read=comma_separated,
    )
    results_kept_days: int = variable(
        14,
        "Days for which single checks are kept; the day they end in is dropped whole.",
        read=whole(2, 3650),
    )
    rollups_kept_days: int = variable(
        400,
        "Days for which hourly roll-ups are kept; the month they end in is dropped whole.",
        read=whole(2, 36500),
    )
    audit_kept_days: int = variable(
        400,
        "Days for which entries of the audit log are kept (`docs/operate/audit.md`).",
        read=whole(1, 36500),
    )
    flapping_changes: int = variable(
        3,
        "A monitor that goes down or recovers so many times within `FLAPPING_MINUTES` is flapping: that is "
        "told once, and nothing more until it has settled.",
        read=whole(3, 100),
    )
    flapping_minutes: int = variable(
        30,
        "See `FLAPPING_CHANGES`. It has settled when it kept its status for half of this, and for three of "
        "its checks.",
        read=whole(2, 1440),
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = variable(
        "INFO",
        "Level of Pulsekeeper's own log lines. At `DEBUG` every check has one.",
        read=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    )
    log_format: Literal["text", "json"] = variable(
        "text",
        "How log lines are written: `text` for people, `json` one object a line for machines "
        "(`docs/operate/observability.md`). Production gives `json`.",
        read=one_of("text", "json"),
    )
    sentry_dsn: str | None = variable(
        None,
        "Where errors are told to Sentry, or to what understands its protocol "
        "(`docs/operate/observability.md`). Without it to nobody.",
        read=http_address,
        from_file=True,
    )
    sentry_environment: str = variable("production", "Environment that those errors are filed under.")
    sentry_release: str | None = variable(
        None, "Release that they are filed under, such as a version or a commit."
    )
    sentry_traces_sample_rate: float = variable(
        0.0,
        "Share of requests and tasks of which Sentry gets a trace, 0 to 1. Pings are never among them.",
        read=decimal(0, 1),
    )
    otel_exporter_otlp_endpoint: str | None = variable(
        None,
        "Address of an OpenTelemetry collector that takes OTLP by HTTP, like `http://localhost:4318`. "
        "With it requests and tasks are traced; the SDK reads the other `OTEL_` variables, too.",
        read=http_address,
    )
    port: int = variable(8000, "Port of the web server under `make up`.", read=whole(1, 65535))
    admin_email: str = variable(
        "admin@example.com", "E-mail address of the first account that `make up` creates."
    )
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
    """Raises `config.variables.InvalidEnvironment`."""
    return read_variables(Env, os.environ)
