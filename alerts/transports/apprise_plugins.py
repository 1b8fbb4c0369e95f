"""Messages to the services of `alerts.transports.apprise_services`, in Apprise's words and over our own sockets.

Apprise is a library of 140 plugins that open sockets, read files and run commands as they see fit, and what a URL
says decides which. So no more of it is used than the modules in our list: each is imported by name, and gets in the
place of `requests` a stand-in that goes through the egress guard, and in the place of attachments, which it would
read from disk or fetch, one that has none. Its registry of plugins, configuration files, storage and thread pools are
never touched.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from html import escape
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import requests
from apprise import AppriseAsset, NotifyFormat, NotifyType, OverflowMode
from apprise.plugins.base import NotifyBase
from django.conf import settings

from alerts.messages import Message
from alerts.transports.apprise_services import BY_SCHEME, Service
from alerts.transports.base import NativeService, Outcome
from alerts.transports.http_errors import answered, failure
from alerts.wording import uncalling
from core.egress import EgressGuard, literal_address
from core.http import DeadlineExceeded, GuardedSession
from core.outbound import guard, trust_store

TOTAL_SEC = 15.0
MAX_ANSWER = 256 * 1024
MAX_REQUESTS = 12
MAX_TARGETS = 10
MAX_URL = 2048
_MIN_SECRET = 4

# What plugins log may quote a URL whole, secrets and all. What matters of it is asked for below.
_logger = logging.getLogger("apprise")
_logger.propagate = False
_logger.setLevel(logging.CRITICAL)

_loading = threading.Lock()


class _Conversation:
    """The requests of one try: so many at most, and in so much time. `last` is what came of the last that failed."""

    def __init__(self, session: GuardedSession) -> None:
        self._session = session
        self._end = time.monotonic() + TOTAL_SEC
        self._asked = 0
        self.answers = 0
        self.last: str | None = None
        self.gone = False

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        try:
            response = self._session.request(
                method, url, timeout=self._remaining(), allow_redirects=False, **kwargs
            )
        except (requests.RequestException, UnicodeError) as error:
            self.last = failure(error, seconds=TOTAL_SEC)
            raise
        self.answers += 1
        if response.status_code >= 300:
            self.last = answered(response)
            self.gone = response.status_code == 410
        return response

    def _remaining(self) -> float:
        """Seconds for one more request."""
        self._asked += 1
        if self._asked > MAX_REQUESTS:
            raise requests.RequestException("more requests than one message needs")
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise DeadlineExceeded("all requests together took too long")
        return remaining


_conversation: ContextVar[_Conversation] = ContextVar("apprise_conversation")

# Ours to set: whether certificates are verified, redirects are followed, and for how long is waited.
_PASSED_ON = frozenset({"params", "data", "json", "headers", "auth", "files", "cookies"})


def _request(method: str, url: str, **kwargs: Any) -> requests.Response:
    conversation = _conversation.get(None)
    if conversation is None:
        raise RuntimeError("no request may be made outside of `send`")
    passed_on = {name: value for name, value in kwargs.items() if name in _PASSED_ON}
    return conversation.request(method, url, **passed_on)


def _verb(method: str, *, second: str) -> Any:
    """As `requests` has it: the second argument may come without its name."""
    return lambda url, value=None, **kwargs: _request(method, url, **{second: value} | kwargs)


REQUESTS = SimpleNamespace(
    request=_request,
    get=_verb("GET", second="params"),
    head=_verb("HEAD", second="params"),
    delete=_verb("DELETE", second="params"),
    post=_verb("POST", second="data"),
    put=_verb("PUT", second="data"),
    patch=_verb("PATCH", second="data"),
    codes=requests.codes,
    exceptions=requests.exceptions,
    RequestException=requests.RequestException,
    ConnectionError=requests.ConnectionError,
    Timeout=requests.Timeout,
    TooManyRedirects=requests.TooManyRedirects,
)
"""What plugins take for `requests`. What it lacks is an AttributeError, and no way out."""


class NoAttachments:
    """What plugins take for `AppriseAttachment`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def add(self, *_: Any, **__: Any) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def load(service: Service) -> Any:
    """The plugin of a service, its way out through the guard."""
    name = f"apprise.plugins.{service.module}"
    with _loading:
        module = importlib.import_module(name)
        for part in [m for n, m in sys.modules.items() if n == name or n.startswith(f"{name}.")]:
            for inner, ours in (("requests", REQUESTS), ("AppriseAttachment", NoAttachments)):
                if hasattr(part, inner):
                    setattr(part, inner, ours)
    return next(
        found
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, NotifyBase) and service.schemes[0] in _schemes(found)
    )


def _schemes(plugin: Any) -> tuple[str, ...]:
    secure = plugin.secure_protocol or ()
    return (secure,) if isinstance(secure, str) else tuple(secure)


def hint(url: str) -> str:
    """Enough to tell a channel apart, and nothing secret: `Slack (slack://)`."""
    service, scheme = _service(url)
    return f"{service.name} ({scheme}://)"


def check_url(url: str) -> None:
    """Raises ValueError with a sentence for a URL that no message can be sent to."""
    _plugin(url, thread="")


def send(url: str, message: Message, *, service: NativeService | None = None) -> Outcome:
    """Send a message to an Apprise URL, or to the URL that `service` made of a channel's settings."""
    try:
        plugin = _plugin(url, thread=message.thread, scheme=service.scheme if service else None)
    except ValueError as error:  # stored before the list, or the plugin, became stricter
        return Outcome(delivered=False, detail=str(error), retry=False)
    name = service.label if service else _service(url)[0].name
    conversation = _Conversation(_session(guard(), trust_store()))
    token = _conversation.set(conversation)
    try:
        taken = plugin.notify(
            title=_title(plugin, message),
            body=_body(message),
            notify_type=NotifyType(message.level.value),
            body_format=NotifyFormat.HTML,
            overflow=OverflowMode.TRUNCATE,
        )
    except Exception as error:  # noqa: BLE001 (140 authors' code, fed with whatever a receiver answers)
        conversation.last = conversation.last or f"Its answer makes no sense ({type(error).__name__})."
        taken = False
    finally:
        _conversation.reset(token)
    if not conversation.answers and conversation.last is None:
        # Some say yes without having asked anybody, for example to a note on an alert that they do not know of.
        return Outcome(delivered=False, detail=f"{name}: nothing was sent; look at the URL.", retry=False)
    if taken:
        return Outcome(delivered=True, detail=f"{name} took the message.")
    detail = _masked(conversation.last or "The message was not taken.", url)
    return Outcome(delivered=False, detail=f"{name}: {detail}", retry=not conversation.gone)


def _title(plugin: Any, message: Message) -> str:
    title = uncalling(message.subject)
    # Where a service has no title, Apprise puts it before the body and takes it for what the body is.
    return title if plugin.title_maxlen > 0 else escape(title)


def _body(message: Message) -> str:
    """As HTML, which Apprise makes plain text or Markdown of: of plain text it would break the link in Markdown."""
    said, _, link = message.short.rpartition("\n")
    return f'{escape(said)}<br><a href="{escape(link)}">{escape(link)}</a>'


def _service(url: str) -> tuple[Service, str]:
    scheme = url.partition("://")[0].lower()
    service = BY_SCHEME.get(scheme)
    if service is None:
        raise ValueError(
            "The URL must begin with the scheme of one of the services that alerts can be sent to, "
            "for example slack:// or discord://."
        )
    return service, scheme


def _plugin(url: str, *, thread: str, scheme: str | None = None) -> Any:
    """Return the plugin for a URL. With `scheme` the URL may also be one that the service itself shows.

    Raises ValueError as `check_url` does.
    """
    service, scheme = _service(url) if scheme is None else (BY_SCHEME[scheme], scheme)
    if len(url) > MAX_URL or not url.isprintable() or " " in url:
        raise ValueError(f"The URL must be at most {MAX_URL} characters, without blanks and controls.")
    plugin_class = load(service)
    try:
        native = url.startswith("https://")
        parsed: dict[str, Any] | None = (plugin_class.parse_native_url if native else plugin_class.parse_url)(
            url
        )
    except Exception:  # noqa: BLE001 (as in `send`, fed with whatever a user types)
        parsed = None
    if not parsed:
        raise ValueError(_how(service, scheme))
    _refuse_options(parsed.get("qsd") or {})
    for option, value in service.defaults.items():
        if not parsed.get(option):
            parsed[option] = value.format(thread=thread)
    try:
        plugin = plugin_class(**parsed, asset=_asset(settings.BASE_URL))
        targets = len(plugin)
    except Exception:  # noqa: BLE001
        raise ValueError(_how(service, scheme)) from None
    if targets == 0:
        raise ValueError(_how(service, scheme))
    if targets > MAX_TARGETS:
        raise ValueError(f"The URL names {targets} receivers; a channel may have {MAX_TARGETS}.")
    if service.own_host:
        _refuse_private(plugin.host or "")
    # It would sleep between requests, by its own idea of what each service allows.
    plugin.throttle = lambda *_, **__: None
    return plugin


def _refuse_options(options: dict[str, str]) -> None:
    if options.get("template"):
        raise ValueError("template: messages are not made of templates.")
    if options.get("verify", "yes").lower() in ("no", "false", "0", "off", "n", "f"):
        raise ValueError("verify: certificates are always verified.")


def _refuse_private(host: str) -> None:
    address = literal_address(host)
    if address is not None and not guard().permits(address):
        raise ValueError(
            "The URL's host is a private or reserved address; Pulsekeeper does not connect to such."
        )


def form_of(service: Service, scheme: str) -> tuple[str, str]:
    """What a URL of the service looks like, in one form of several, and the page that has the others."""
    plugin = load(service)
    return plugin.templates[0].replace("{schema}", scheme), plugin.setup_url


def _how(service: Service, scheme: str) -> str:
    form, page = form_of(service, scheme)
    return f"That is no URL of {service.name}; one looks like {form}. See {page}"


@cache
def _asset(base_url: str) -> AppriseAsset:
    return AppriseAsset(
        app_id="Pulsekeeper",
        app_desc="Pulsekeeper",
        app_url=base_url,
        image_url_mask="",
        image_url_logo="",
        storage_mode="memory",
        secure_logging=True,
        async_mode=False,
        allow_templates=False,
        pgp_autogen=False,
        pem_autogen=False,
        http_redirects=False,
    )


@cache
def _session(guard: EgressGuard, ca_file: str | None) -> GuardedSession:
    return GuardedSession(
        guard,
        ca_file=ca_file,
        schemes=frozenset({"https"}),
        total_sec=TOTAL_SEC,
        max_body=MAX_ANSWER,
    )


def _masked(detail: str, url: str) -> str:
    """`detail` without any part of `url` but its scheme: in most of these URLs each part is a secret."""
    parts: set[str] = set()
    rest = url.partition("://")[2]
    for mark in "/?&=@:,#":
        rest = rest.replace(mark, " ")
    for part in rest.split():
        parts |= {part, unquote(part)}
    for part in sorted((p for p in parts if len(p) >= _MIN_SECRET), key=len, reverse=True):
        detail = detail.replace(part, "***")
    return detail
