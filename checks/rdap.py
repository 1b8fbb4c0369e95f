"""Look up when a domain registration expires, by RDAP (RFC 9082, 9083). Plain Python.

whoisit knows the registries: IANA's list (RFC 9224) and country codes that are missing from it. Answers are parsed
here, because whoisit's parser guesses dates: "unknown 12" becomes the 12th of this month.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

import requests
from whoisit.bootstrap import Bootstrap
from whoisit.errors import UnsupportedError, WhoisItError
from whoisit.query import QueryBuilder

from core.http import BodyTooLarge, ForbiddenTarget

DEFAULT_WAIT = timedelta(hours=1)
SHORTEST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(days=1)
_LIST_LIFETIME = timedelta(days=7)
_LIST_RETRY = timedelta(hours=1)  # an old list is still used if a new one cannot be read
_FIRST_LIST_RETRY = timedelta(minutes=1)
# Registries without a date report the beginning of some epoch. No registration of today ended before this.
_NO_DATE_BEFORE = datetime(2000, 1, 1, tzinfo=UTC)


class RdapError(Exception):
    """The lookup failed. The text is a sentence for the user, without text of the registry."""


class LookupFailed(RdapError):
    """The registry, or the list of registries, sent no usable answer."""


class NoRegistry(RdapError):
    """The top-level domain has no RDAP service."""


class RegistryBusy(RdapError):
    """The registry limits requests. Retry after `retry_after`, between SHORTEST_WAIT and LONGEST_WAIT."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("The registry accepts no more requests for now.")
        self.retry_after = retry_after


class _Directory(Bootstrap):  # type: ignore[misc]  # whoisit is untyped
    """whoisit's map of top-level domains to registries, without those of addresses and numbers."""

    BOOTSTRAP_URLS: ClassVar[dict[str, str]] = {"dns": "dns.json"}

    def __init__(self, session: requests.Session) -> None:
        super().__init__(session)
        self.bootstrap_parsers = {"dns": self.parse_dns_data}


# The reason of each error of a session, the first that matches.
_FAULTS = {
    requests.Timeout: "did not answer in time",
    ForbiddenTarget: "has a private or reserved address",
    BodyTooLarge: "sent too much",
    requests.exceptions.SSLError: "has no certificate that can be trusted",
    requests.RequestException: "cannot be reached",
}


class RdapClient:
    """Looks up registrations. Thread-safe. Create one per process: it keeps the list of registries."""

    def __init__(self, session: requests.Session, bootstrap_url: str) -> None:
        """`bootstrap_url` is the folder of IANA's `dns.json`. Registries are asked by http only if the folder is
        read by http; `session` should refuse it otherwise."""
        self._session = session
        self._list_url = f"{bootstrap_url.rstrip('/')}/dns.json"
        self._lock = threading.Lock()
        self._registries: QueryBuilder | None = None
        self._error = ""  # why the list of registries is missing
        self._stale_at = datetime.min.replace(tzinfo=UTC)

    def look_up(self, domain: str, *, now: datetime) -> datetime:
        """Return when the registration of a registrable domain (ASCII, lower case) expires. Raises RdapError."""
        try:
            _, url, _ = self._queries(now).build(query_type="domain", query_value=domain)
        except UnsupportedError:
            raise NoRegistry("The registry of this top-level domain cannot be queried.") from None
        response = self._get(url, "The registry")
        if response.status_code == 429 or (response.status_code == 503 and "Retry-After" in response.headers):
            raise RegistryBusy(retry_after(response.headers.get("Retry-After"), now=now))
        if response.status_code == 404:
            raise LookupFailed("The registry does not know this domain.")
        if response.status_code != 200:
            raise LookupFailed(f"The registry answered {response.status_code}.")
        return expiration(_json(response, "The registry"))

    def _queries(self, now: datetime) -> QueryBuilder:
        """Return the list of registries, loaded again if it is stale. After a failure the known one serves on."""
        with self._lock:
            if now >= self._stale_at:
                try:
                    self._registries, lifetime = self._fetch(now), _LIST_LIFETIME
                except LookupFailed as error:
                    self._error = str(error)
                    lifetime = _FIRST_LIST_RETRY if self._registries is None else _LIST_RETRY
                self._stale_at = now + lifetime
            if self._registries is None:
                raise LookupFailed(self._error)
            return self._registries

    def _fetch(self, now: datetime) -> QueryBuilder:
        what = "The list of registries"
        response = self._get(self._list_url, what)
        if response.status_code != 200:
            raise LookupFailed(f"{what}: answered {response.status_code}.")
        directory = _Directory(self._session)
        try:
            directory.load_bootstrap_data(
                {"timestamp": int(now.timestamp()), "dns": _json(response, what)},
                overrides=True,
                allow_insecure=self._list_url.startswith("http:"),
                from_json=False,
            )
        except (WhoisItError, AttributeError, TypeError, ValueError) as error:
            raise LookupFailed(f"{what} is not in the form of RFC 9224.") from error
        return QueryBuilder(directory)

    def _get(self, url: str, what: str) -> requests.Response:
        accept = {"Accept": "application/rdap+json, application/json;q=0.9"}
        try:
            return self._session.get(url, headers=accept)
        except requests.RequestException as error:
            fault = next(text for kind, text in _FAULTS.items() if isinstance(error, kind))
            raise LookupFailed(f"{what} {fault}.") from error


def _json(response: requests.Response, what: str) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError) as error:
        raise LookupFailed(f"{what} sent no JSON.") from error


def expiration(answer: Any) -> datetime:
    """Return the latest `expiration` event of a domain object (RFC 9083, 4.5 and 5.3) in UTC. Raises LookupFailed."""
    if not isinstance(answer, dict) or answer.get("objectClassName") != "domain":
        raise LookupFailed("The registry sent no domain.")
    events = answer.get("events")
    dates = [
        event.get("eventDate")
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict) and str(event.get("eventAction")).strip().lower() == "expiration"
    ]
    if not dates:
        raise LookupFailed("The registry reports no expiration date.")
    read = [moment for moment in map(_moment, dates) if moment is not None]
    if not read:
        raise LookupFailed("The registry's expiration date cannot be read.")
    return max(read)


def _moment(text: Any) -> datetime | None:
    """Parse ISO 8601: without a zone as UTC, a date as its beginning."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip().upper())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment >= _NO_DATE_BEFORE else None


def retry_after(header: str | None, *, now: datetime) -> timedelta:
    """Return how long a Retry-After header (RFC 9110, 10.2.3) asks to wait, within limits."""
    text = (header or "")[:100].strip()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=min(int(text[:9]), int(LONGEST_WAIT.total_seconds())))
    else:
        try:
            until = parsedate_to_datetime(text)
            wait = (until if until.tzinfo is not None else until.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            wait = DEFAULT_WAIT
    return min(max(wait, SHORTEST_WAIT), LONGEST_WAIT)
