"""Read environment variables (docs/adr/0023). Every process does it, including beat, so this module imports little."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload
from urllib.parse import unquote, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from core.hosts import comma_separated

T = TypeVar("T")

# The names of `connectors.providers.BACKENDS`, which cannot be imported before the settings. A test compares the two.
BACKENDS = ("vercel", "netlify")


class Environment:
    """Reads variables, and remembers their defaults and all errors."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._errors: list[str] = []
        self.defaults: dict[str, str] = {}
        self.from_files: list[str] = []

    @overload
    def __call__(self, name: str, default: str = "", *, from_file: bool = False) -> str: ...
    @overload
    def __call__(
        self, name: str, default: str, parse: Callable[[str], T], *, from_file: bool = False, or_empty: bool = False
    ) -> T: ...
    def __call__(
        self,
        name: str,
        default: str = "",
        parse: Callable[[str], Any] = str,
        *,
        from_file: bool = False,
        or_empty: bool = False,
    ) -> Any:
        """Return the parsed value. `parse` may raise ValueError. An empty variable counts as unset unless `or_empty`.

        With `from_file` the variable `<NAME>_FILE` may name a file with the text. This keeps a secret out of the
        environment, which child processes inherit.
        """
        self.defaults[name] = default
        text = self._environment.get(name, "")
        if from_file:
            self.from_files.append(name)
            try:
                text = self._read_file(name) or text
            except ValueError as error:
                self._errors.append(str(error))
                return parse(default)
        try:
            return parse(text if or_empty and name in self._environment else text or default)
        except ValueError as error:
            self._errors.append(f"{name}: {error}")
            return parse(default)

    def _read_file(self, name: str) -> str | None:
        """Return the content of the file that `<NAME>_FILE` names, without trailing newlines. Raises ValueError."""
        path = self._environment.get(f"{name}_FILE")
        if not path:
            return None
        if self._environment.get(name):
            raise ValueError(f"{name} and {name}_FILE are both set: remove one of them")
        try:
            text = Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise ValueError(f"{name}_FILE: {path}: {reason}") from None
        if not text:
            raise ValueError(f"{name}_FILE: {path}: is empty")
        return text

    def raise_errors(self) -> None:
        """Raise ImproperlyConfigured with all invalid variables."""
        if self._errors:
            raise ImproperlyConfigured("; ".join(self._errors))


def is_set(name: str) -> bool:
    """Return whether the environment has the variable `name`, or a file for it (`<NAME>_FILE`)."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def boolean(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError("must be true or false")


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if text.strip().isascii() and text.strip().lstrip("-").isdecimal() else None
        if value is None or value < minimum or (maximum is not None and value > maximum):
            raise ValueError(f"must be a whole number, {_range(minimum, maximum)}")
        return value

    return parse


def decimal(minimum: float, maximum: float | None = None) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value < float("inf") or (maximum is not None and value > maximum):
            raise ValueError(f"must be a number, {_range(minimum, maximum)}")
        return value

    return parse


def _range(minimum: float, maximum: float | None) -> str:
    return f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts any of `words`, in any case, and returns it in the case given here."""

    def parse(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return parse


def http_url(text: str) -> str:
    """Check an http address, or the empty text of a variable that is not set."""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise ValueError("must be an http:// or https:// address")
    return text


def base_url(text: str) -> str:
    return http_url(text).rstrip("/")


def database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for PostgreSQL, or nothing for an empty URL. Raises ValueError.

    The URL may name several hosts, which are tried in their order: `postgresql://user@host1:5432,host2:5433/name`.
    """
    if not url:
        return {}
    # Some versions of urlsplit refuse several hosts with an IPv6 address among them.
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    user, at, hosts = netloc.rpartition("@")
    one_host = f"{scheme}://{user}{at}{hosts.partition(',')[0]}{slash}{path}"
    try:
        is_postgresql = scheme in ("postgres", "postgresql", "pgsql")
        found: dict[str, Any] = dict(dj_database_url.parse(one_host)) if is_postgresql else {}
        addresses = [urlsplit(f"//{host}") for host in hosts.split(",")] if "," in hosts else []
        several = [(each.hostname, str(each.port or 5432)) for each in addresses]
        valid = bool(found.get("NAME")) and all(host for host, _ in several)
    except (ValueError, dj_database_url.ParseError):
        valid = False
    if not valid:
        raise ValueError("must be postgresql://user:password@host[:port][,host[:port]…]/name")
    if several:
        found["HOST"], found["PORT"] = (",".join(each) for each in zip(*several, strict=True))
        found["OPTIONS"] = {"target_session_attrs": "read-write"} | found.get("OPTIONS", {})  # no standby
    return found


def broker_url(url: str) -> str:
    """Return the address of Valkey or Redis, or the empty text. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme.startswith("sentinel"):
        raise ValueError("Sentinel is not supported: give a redis:// address that always leads to the primary")
    if url and (parts.scheme not in ("redis", "rediss") or not parts.hostname):
        raise ValueError("must be redis://[user:password@]host[:port][/database] or rediss://…")
    if parts.scheme == "rediss" and "ssl_cert_reqs=" not in parts.query:
        # Without it Celery would accept every certificate.
        query = "&".join(filter(None, [parts.query, "ssl_cert_reqs=required"]))
        return parts._replace(query=query).geturl()
    return url


def mail_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for a mail server. Raises ValueError unless it is an smtp:// or smtps:// URL."""
    if not url:
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


def connectors_of(text: str) -> dict[str, str]:
    """Parse comma-separated `word=backend` pairs into backends by word. Raises ValueError."""
    backends: dict[str, str] = {}
    for pair in comma_separated(text):
        word, _, backend = (part.strip() for part in pair.partition("="))
        if not re.fullmatch("[a-z0-9][a-z0-9_-]{0,31}", word):
            raise ValueError(f"{pair!r} must begin with a word of at most 32 characters: a-z, 0-9, - and _")
        if backend not in BACKENDS:
            raise ValueError(f"{pair!r} names an unknown provider; known are {' and '.join(BACKENDS)}")
        if word in backends or backend in backends.values():
            raise ValueError(f"{pair!r} repeats a word or a provider")
        backends[word] = backend
    return backends


def group_roles(text: str) -> tuple[tuple[str, str, str], ...]:
    """Parse comma-separated `group=project-id:role` into triples. Raises ValueError.

    A system check compares roles and projects with those that exist.
    """
    triples = []
    for item in comma_separated(text):
        group, _, place = item.rpartition("=")
        project, _, role = place.partition(":")
        if not (group and project and role):
            raise ValueError(f"{item!r} must be group=project-id:role, like ops=prj_0123:admin")
        triples.append((group, project, role))
    return tuple(triples)
