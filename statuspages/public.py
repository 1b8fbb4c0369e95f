"""Public requests: status pages by slug or on their own domain, badges, and links in subscribers' mails.

`config.middleware` calls this before sessions and CSRF protection: nothing here relies on a cookie, except reading a
page with a password, and that cookie is SameSite=Strict. A page's own domain serves that page and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.hashers import check_password
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.request import split_domain_port, validate_host
from django.utils.crypto import constant_time_compare

from core.addresses import client_network
from core.clock import utc_now
from core.errors import NotFound, ValidationFailed
from core.throttles import seconds_to_wait
from statuspages import caching, lookup, rendering, subscriptions
from statuspages.badges import draw
from statuspages.caching import LocalCache, Rendered
from statuspages.lookup import PublishedPage
from statuspages.models import StatusPage
from statuspages.rendering import HTML, Links

# No nonce, because all readers get the same bytes. Nothing is inline.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
_READ = frozenset({"GET", "HEAD"})
UNLOCKED_SEC = 12 * 3600
_STATIC = ("pulsekeeper/", "vendor/")

_PATHS = ("/status/", "/badge/", "/status-subscriptions/")
# The rest of a path: after the slug, or all of it on a page's own domain.
_SLUG = re.compile(r"/status/([a-z0-9][a-z0-9-]{0,63})(\.json|\.atom|/[a-z0-9/.-]{1,30}|)")
_ON_DOMAIN = {"/": "", "/status.json": ".json", "/status.atom": ".atom"}
_PARTS = {"": "page", ".json": "json", ".atom": "atom", "/theme.css": "theme", "/logo": "logo"}
_MONTH = re.compile(r"/history/(\d{4}-\d{2})")
_BADGE = re.compile(r"/badge/(bdg_[a-z2-7]{26})/([a-z0-9-]{1,20})\.svg")
_LINK = re.compile(r"/status-subscriptions/(confirm|unsubscribe)/([0-9A-Za-z_-]{1,64})")

_published: LocalCache[PublishedPage | None] = LocalCache(1_024)


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for an existing page."""

    request: HttpRequest
    published: PublishedPage
    links: Links
    on_domain: bool

    @property
    def cookie(self) -> str:
        return f"status_{self.published.page_id}"


def is_public(path: str, host_header: str) -> bool:
    """Return whether this module or the static files answer a request with this path and Host header."""
    if path.startswith((*_PATHS, settings.STATIC_URL)):
        return True
    return _is_page_domain(split_domain_port(host_header)[0])


def answer(request: HttpRequest) -> HttpResponse | None:
    """Return the response, or None if another view has to answer."""
    try:
        return _answer(request)
    except NotFound:
        return _not_found()


def _answer(request: HttpRequest) -> HttpResponse | None:
    path = request.path_info
    host = split_domain_port(request.META.get("HTTP_HOST", ""))[0]
    if _is_page_domain(host):
        if path.startswith(tuple(settings.STATIC_URL + folder for folder in _STATIC)):
            # Public static files: WhiteNoise serves them under our own host.
            request.META["HTTP_HOST"] = urlsplit(settings.BASE_URL).netloc
            return None
        return _page(request, host, _ON_DOMAIN.get(path, path if path.startswith("/") else "/"), on_domain=True)
    if not path.startswith(_PATHS):
        return None
    request.get_host()  # raises DisallowedHost
    if found := _SLUG.fullmatch(path):
        return _page(request, found[1], found[2], on_domain=False)
    if found := _BADGE.fullmatch(path):
        return _badge(request, found[1], found[2])
    if found := _LINK.fullmatch(path):
        return _link(request, found[1], found[2])
    raise NotFound


def _is_page_domain(host: str) -> bool:
    domains = settings.STATUS_PAGE_DOMAINS
    return bool(domains and host) and host not in lookup.own_hosts() and validate_host(host, domains)


def _page(request: HttpRequest, address: str, rest: str, *, on_domain: bool) -> HttpResponse:
    published = _published.get(address, lambda: lookup.find(address))
    if published is None:
        raise NotFound
    visit = Visit(request, published, Links.of(published, on_domain=on_domain), on_domain)
    if request.method == "POST":
        if rest == "/unlock":
            return _unlock(visit)
        if rest == "/subscribe":
            return _subscribe(visit) if _may_read(visit) else _ask_for_password(visit)
        return _not_allowed("GET, HEAD")
    if request.method not in _READ:
        return _not_allowed("GET, HEAD")
    if not _may_read(visit):
        return _ask_for_password(visit)
    if rest in _PARTS:
        name = _PARTS[rest]
        content_type, make = rendering.PARTS[name]
        return _respond(visit, name, content_type, make)
    if found := _MONTH.fullmatch(rest):
        month = found[1]
        return _respond(
            visit,
            f"history-{month}",
            HTML,
            lambda published, links: rendering.history(published, links, month),
        )
    raise NotFound


def _respond(visit: Visit, name: str, content_type: str, make: Callable[[PublishedPage, Links], bytes]) -> HttpResponse:
    published, links = visit.published, visit.links
    address = "domain" if visit.on_domain else "slug"
    rendered = caching.fetch(
        f"status-page:{published.page_id}:{published.version}:{address}:{name}",
        content_type,
        lambda: make(published, links),
    )
    response = _rendered(visit.request, rendered)
    if published.lock:
        response["Cache-Control"] = "private, no-cache"
        response["X-Robots-Tag"] = "noindex"
    else:
        response["Cache-Control"] = f"public, max-age={300 if name in ('theme', 'logo') else 10}"
        if name == "json":
            response["Access-Control-Allow-Origin"] = "*"
    return response


def _rendered(request: HttpRequest, rendered: Rendered) -> HttpResponse:
    """Return the bytes, compressed if the client accepts gzip, or 304 if the client has them."""
    packed = bool(rendered.gzipped) and _takes_gzip(request.META.get("HTTP_ACCEPT_ENCODING", ""))
    if rendered.etag in request.META.get("HTTP_IF_NONE_MATCH", ""):
        response = HttpResponse(status=304)
        del response["Content-Type"]
    else:
        body = rendered.gzipped if packed else rendered.body
        response = HttpResponse(b"" if request.method == "HEAD" else body, rendered.content_type)
        response["Content-Length"] = str(len(body))
        if packed:
            response["Content-Encoding"] = "gzip"
        response["Content-Security-Policy"] = _POLICY
    response["ETag"] = rendered.etag
    response["Vary"] = "Accept-Encoding"
    return response


def _takes_gzip(accepted: str) -> bool:
    for coding in accepted.split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _may_read(visit: Visit) -> bool:
    if not visit.published.lock:
        return True
    try:
        opened = _signer(visit).unsign(visit.request.COOKIES.get(visit.cookie, ""), max_age=UNLOCKED_SEC)
    except BadSignature:
        return False
    return constant_time_compare(opened, visit.published.lock)


def _signer(visit: Visit) -> TimestampSigner:
    return TimestampSigner(salt=f"pulsekeeper.status-pages.{visit.published.page_id}")


def _ask_for_password(visit: Visit, *, wrong: str | None = None) -> HttpResponse:
    return _text(rendering.unlock(path=f"{visit.links.root}/unlock", wrong=wrong), status=403)


def _unlock(visit: Visit) -> HttpResponse:
    request, published = visit.request, visit.published
    back = HttpResponseRedirect(visit.links.page)
    if not published.lock:
        return back
    # Count per address first: a blocked address must not use up the page's attempts.
    counted = {
        "status-password": f"{published.page_id} {client_network(request)}",
        "status-password-page": str(published.page_id),
    }
    if (wait := _wait(counted)) is not None:
        return _too_many(wait)
    stored = StatusPage.objects.filter(pk=published.page_id).values_list("password_hash", flat=True).first()
    if not stored or not check_password(request.POST.get("password", "")[:200], stored):
        return _ask_for_password(visit, wrong="Wrong password.")
    back.set_cookie(
        visit.cookie,
        _signer(visit).sign(published.lock),
        max_age=UNLOCKED_SEC,
        path=visit.links.root or "/",
        secure=settings.BASE_URL.startswith("https://"),
        httponly=True,
        samesite="Strict",
    )
    back["Cache-Control"] = "no-store"
    return back


def _subscribe(visit: Visit) -> HttpResponse:
    request, published = visit.request, visit.published
    email = request.POST.get("email", "")[:254]
    counted = {
        "status-subscribe": client_network(request),
        "status-subscribe-address": email.strip().lower(),
    }
    if (wait := _wait(counted)) is not None:
        return _too_many(wait)
    try:
        subscriptions.subscribe(published.page_id, email, now=utc_now())
    except ValidationFailed as error:
        reason = (error.reason or "").removeprefix("email: ")
        body = rendering.message(
            "Subscription failed",
            "",
            form={"path": f"{visit.links.root}/subscribe", "email": email, "reason": reason},
        )
        return _text(body, status=422)
    return _text(
        rendering.message(
            "Check your e-mail",
            "If this address is not subscribed yet, we have sent a message to it. Follow its link within 24 hours to "
            "confirm the subscription.",
            back=visit.links.page,
        )
    )


def _link(request: HttpRequest, to: str, token: str) -> HttpResponse:
    """Answer a link of a mail. GET asks, POST acts: mail scanners follow links with GET and must change nothing."""
    wait = seconds_to_wait("status-links", client_network(request))
    if wait is not None:
        return _too_many(wait)
    if request.method == "POST" and to == "unsubscribe":
        subscriptions.unsubscribe(token)
        return _text(rendering.message("Unsubscribed", "This address was deleted and gets no more mail."))
    if request.method not in {*_READ, "POST"}:
        return _not_allowed("GET, HEAD, POST")
    try:
        subscriber = subscriptions.find(token, to=to)
        if request.method == "POST":
            subscriptions.confirm(token, now=utc_now())
    except NotFound:
        return _text(
            rendering.message("This link is no longer valid", "It has expired, or the address was unsubscribed."),
            status=404,
        )
    name = subscriber.page.name
    back = lookup.page_url(subscriber.page, subscriber.page.custom_domain)
    if request.method == "POST":
        text = f"You will receive updates about {name} by e-mail. Each message has a link to unsubscribe."
        return _text(rendering.message("Subscribed", text, back=back))
    asked = {
        "confirm": ("Subscribe?", f"Updates about {name} will be sent to {subscriber.hint}.", "Subscribe"),
        "unsubscribe": (
            "Unsubscribe?",
            f"Updates about {name} will no longer be sent to {subscriber.hint}.",
            "Unsubscribe",
        ),
    }
    title, text, button = asked[to]
    return _text(rendering.message(title, text, button=button, path=request.path_info))


def _badge(request: HttpRequest, key: str, name: str) -> HttpResponse:
    if request.method not in _READ:
        return _not_allowed("GET, HEAD")
    rendered = caching.fetch(f"badge:{key}:{name}", "image/svg+xml", lambda: draw(key, name, now=utc_now()))
    response = _rendered(request, rendered)
    response["Content-Security-Policy"] = "default-src 'none'"
    response["Cache-Control"] = "public, max-age=30"
    return response


def _text(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(
        body,
        HTML,
        status,
        headers={
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-store",
            "X-Robots-Tag": "noindex",
            "Referrer-Policy": "no-referrer",  # mails contain secret links
            **(headers or {}),
        },
    )


def _wait(counted: Mapping[str, str]) -> float | None:
    """Count a request in each scope until one refuses it. Return the seconds until that one's window ends."""
    waits = (seconds_to_wait(scope, identity) for scope, identity in counted.items())
    return next((wait for wait in waits if wait is not None), None)


def _not_found() -> HttpResponse:
    return _text(rendering.message("Page not found", "It may have been moved or deleted."), status=404)


def _too_many(wait: float) -> HttpResponse:
    body = rendering.message("Too many attempts", "Wait before you try again.")
    return _text(body, status=429, headers={"Retry-After": str(max(1, round(wait)))})


def _not_allowed(allowed: str) -> HttpResponse:
    return _text(rendering.message("Method not allowed", ""), status=405, headers={"Allow": allowed})


def clear_local_caches() -> None:
    """Clear the caches of this process, for tests."""
    _published.clear()
    caching.clear_local_caches()
