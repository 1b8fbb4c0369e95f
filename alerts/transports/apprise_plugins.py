"""Send messages through Apprise's plugins, but over our own sockets.

Apprise has 140 plugins that open sockets, read files and run commands, as a URL asks. Only the plugins of
`SERVICES` are used. Each is imported by name. Its `requests` is replaced by a stand-in behind the egress guard,
and its attachments, which would be read from disk or fetched, by an empty list. Apprise's plugin registry,
configuration files, storage and thread pools are never used.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from html import escape
from types import MappingProxyType, SimpleNamespace
from typing import Any
from urllib.parse import unquote

import requests
from apprise import AppriseAsset, NotifyFormat, NotifyType, OverflowMode
from apprise.plugins.base import NotifyBase
from django.conf import settings

from alerts.messages import Message
from alerts.transports.apprise import BY_SCHEME, Service, service_of
from alerts.transports.http import answered, failure, session
from alerts.wording import uncalling
from checks.probes.target import MAX_URL
from core.egress import literal_address
from core.http import DeadlineExceeded, GuardedSession
from core.outbound import guard
from notifications.outbox import SendResult

TOTAL_SEC = 15.0
MAX_ANSWER = 256 * 1024
MAX_REQUESTS = 12
MAX_TARGETS = 10
_MIN_SECRET = 4

# Plugins may log a whole URL with its secrets. The useful part is in the result of `send`.
_logger = logging.getLogger("apprise")
_logger.propagate = False
_logger.setLevel(logging.CRITICAL)

_loading = threading.Lock()


class _Conversation:
    """The requests of one attempt, limited in number and time. `last` describes the last failure.

    `added` are further fields of JSON bodies, for features of a service that its plugin does not know.
    """

    def __init__(self, session: GuardedSession, added: Mapping[str, Any]) -> None:
        self._session = session
        self._added = added
        self._end = time.monotonic() + TOTAL_SEC
        self._asked = 0
        self.answers = 0
        self.last: str | None = None
        self.gone = False

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:
        if self._added:
            kwargs["data"] = json.dumps(json.loads(kwargs["data"]) | self._added)
        try:
            response = self._session.request(method, url, timeout=self._remaining(), allow_redirects=False, **kwargs)
        except (requests.RequestException, UnicodeError) as error:
            self.last = failure(error, seconds=TOTAL_SEC)
            raise
        self.answers += 1
        if response.status_code >= 300:
            self.last = answered(response)
            self.gone = response.status_code == 410
        return response

    def _remaining(self) -> float:
        """Return the seconds left for one more request."""
        self._asked += 1
        if self._asked > MAX_REQUESTS:
            raise requests.RequestException("more requests than one message needs")
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise DeadlineExceeded("all requests together took too long")
        return remaining


_conversation: ContextVar[_Conversation] = ContextVar("apprise_conversation")

# Certificate verification, redirects and timeouts are ours to set.
_PASSED_ON = frozenset({"params", "data", "json", "headers", "auth", "files", "cookies"})


def _request(method: str, url: str, **kwargs: Any) -> requests.Response:
    conversation = _conversation.get(None)
    if conversation is None:
        raise RuntimeError("no request may be made outside of `send`")
    passed_on = {name: value for name, value in kwargs.items() if name in _PASSED_ON}
    return conversation.request(method, url, **passed_on)


def _verb(method: str) -> Any:
    """Return a function like those of `requests`: the second argument may be positional."""
    second = "data" if method in ("post", "put", "patch") else "params"
    return lambda url, value=None, **kwargs: _request(method.upper(), url, **{second: value} | kwargs)


_SAME = ("codes", "exceptions", "RequestException", "ConnectionError", "Timeout", "TooManyRedirects")
REQUESTS = SimpleNamespace(
    request=_request,
    **{method: _verb(method) for method in ("get", "head", "delete", "post", "put", "patch")},
    **{name: getattr(requests, name) for name in _SAME},
)
"""The stand-in for `requests`. Anything missing raises AttributeError."""


class NoAttachments(list[Any]):
    """The stand-in for `AppriseAttachment`: always empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def add(self, *_: Any, **__: Any) -> bool:
        return False


def load(service: Service) -> Any:
    """Import the plugin of a service, with the stand-ins."""
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


HTTPS = frozenset({"https"})


def send(
    url: str,
    message: Message,
    *,
    scheme: str | None = None,
    label: str | None = None,
    schemes: frozenset[str] = HTTPS,
    added: Mapping[str, Any] = MappingProxyType({}),
) -> SendResult:
    """Send a message to an Apprise URL. With `scheme` the URL may also be one that the service itself shows.

    `schemes` are those of the requests. Plain http is sent only to private networks that the operator allows.
    `added` are further fields of the JSON that the plugin sends.
    """
    try:
        plugin = plugin_for(url, thread=message.thread, scheme=scheme)
    except ValueError as error:  # the list of services, or the plugin, became stricter
        return SendResult(delivered=False, detail=str(error), retry=False)
    name = label or service_of(url)[0].name
    title = uncalling(message.subject)
    guarded = session(total_sec=TOTAL_SEC, max_body=MAX_ANSWER, schemes=schemes, public="http" not in schemes)
    conversation = _Conversation(guarded, added)
    token = _conversation.set(conversation)
    try:
        taken = plugin.notify(
            # Without a title field Apprise prepends the title to the body and treats it as HTML.
            title=title if plugin.title_maxlen > 0 else escape(title),
            # HTML, which Apprise converts to text or Markdown. Plain text would break the link in Markdown.
            body="<br>".join(_html_lines(message)),
            notify_type=NotifyType(message.level.value),
            body_format=NotifyFormat.HTML,
            overflow=OverflowMode.TRUNCATE,
        )
    except Exception as error:  # noqa: BLE001 (code of 140 authors, which parses a receiver's response)
        conversation.last = conversation.last or f"Its answer is invalid ({type(error).__name__})."
        taken = False
    finally:
        _conversation.reset(token)
    if not conversation.answers and conversation.last is None:
        # Some plugins report success without a request, for example for an update of an unknown alert.
        return SendResult(delivered=False, detail=f"{name}: nothing was sent; check the URL.", retry=False)
    if taken:
        return SendResult(delivered=True, detail=f"{name} accepted the message.")
    detail = _masked(conversation.last or "The message was not accepted.", url)
    return SendResult(delivered=False, detail=f"{name}: {detail}", retry=not conversation.gone)


def _html_lines(message: Message) -> list[str]:
    """Return the short text with the links to acknowledge, which come before its own link."""
    *before, last = message.short.split("\n")
    if not _is_link(last):
        before, last = [*before, last], ""
    links = (f"{escape(label)}: {_as_html(address)}" for label, address in message.acknowledge)
    return [*map(_as_html, before), *links, *([_as_html(last)] if last else [])]


def _as_html(line: str) -> str:
    """Return a line of text, as a link if it is an address. Texts of targets are none (`alerts.wording`)."""
    text = escape(line)
    return f'<a href="{text}">{text}</a>' if _is_link(line) else text


def _is_link(line: str) -> bool:
    return line.startswith(("https://", "http://")) and " " not in line


def plugin_for(url: str, *, thread: str = "", scheme: str | None = None) -> Any:
    """Return the plugin for a URL. With `scheme` the URL may also be one that the service itself shows.

    Raise ValueError with a sentence if no message can be sent to the URL.
    """
    service, scheme = service_of(url) if scheme is None else (BY_SCHEME[scheme], scheme)
    if len(url) > MAX_URL or not url.isprintable() or " " in url:
        raise ValueError(f"The URL must be at most {MAX_URL} characters, without spaces and control characters.")
    plugin_class = load(service)
    try:
        native = url.startswith("https://")
        parsed: dict[str, Any] | None = (plugin_class.parse_native_url if native else plugin_class.parse_url)(url)
    except Exception:  # noqa: BLE001 (as in `send`, parsing user input)
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
        targets = 0
    if not targets:
        raise ValueError(_how(service, scheme))
    if targets > MAX_TARGETS:
        raise ValueError(f"The URL names {targets} receivers; the maximum is {MAX_TARGETS}.")
    if service.own_host:
        address = literal_address(plugin.host or "")
        if address is not None and not guard().permits(address):
            raise ValueError("The URL's host is a private or reserved address, which Pulsekeeper does not connect to.")
    # Plugins would sleep between requests to respect limits of their services.
    plugin.throttle = lambda *_, **__: None
    return plugin


def _refuse_options(options: dict[str, str]) -> None:
    if options.get("template"):
        raise ValueError("template: templates are not supported.")
    if options.get("verify", "yes").lower() in ("no", "false", "0", "off", "n", "f"):
        raise ValueError("verify: certificates are always verified.")


def form_of(service: Service, scheme: str) -> tuple[str, str]:
    """Return one format of the service's URLs, and the page that lists the others."""
    plugin = load(service)
    return plugin.templates[0].replace("{schema}", scheme), plugin.setup_url


def _how(service: Service, scheme: str) -> str:
    form, page = form_of(service, scheme)
    return f"This is not a URL of {service.name}. Format: {form}. See {page}"


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


def _masked(detail: str, url: str) -> str:
    """Remove all parts of `url` but its scheme from `detail`: most parts of these URLs are secrets."""
    parts = re.split(r"[/?&=@:,#\s]+", url.partition("://")[2])
    for part in sorted({*parts, *map(unquote, parts)}, key=len, reverse=True):
        if len(part) >= _MIN_SECRET:
            detail = detail.replace(part, "***")
    return detail
