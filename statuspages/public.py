"""Public requests: status pages by slug or on their own domain, badges, and links in subscribers' mails.

`config.middleware` calls this before sessions and CSRF protection: nothing here relies on a cookie, except reading a
page with a password, and that cookie is SameSite=Strict. A page's own domain serves that page and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.hashers import check_password
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.request import split_domain_port, validate_host
from django.template.loader import render_to_string
from django.utils.crypto import constant_time_compare

from audit.origin import origin_of
from core import mail
from core.addresses import client_network
from core.clock import utc_now
from core.errors import BodyTooLarge, NotFound, TooManyRequests, ValidationFailed
from core.forms import require_small_form
from core.packed import respond
from core.throttles import count_request
from statuspages import badges, caching, rendering, subscriptions
from statuspages.caching import PublishedPage, Rendered
from statuspages.models import StatusPage, own_hosts
from statuspages.rendering import HTML

# No nonce, because all readers get the same bytes. Nothing is inline.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
_READ = frozenset({"GET", "HEAD"})
UNLOCKED_SEC = 12 * 3600
_STATIC = ("pulsekeeper/", "vendor/")

PATHS = ("/status/", "/badge/", "/status-subscriptions/")
# The rest of a path: after the slug, or all of it on a page's own domain.
_SLUG = re.compile(r"/status/([a-z0-9][a-z0-9-]{0,63})(\.json|\.atom|/[a-z0-9/.-]{1,30}|)")
_ON_DOMAIN = {"/": "", "/status.json": ".json", "/status.atom": ".atom"}
_BADGE = re.compile(r"/badge/(bdg_[a-z2-7]{26})/([a-z0-9-]{1,20})\.svg")
_LINK = re.compile(r"/status-subscriptions/(confirm|unsubscribe)/([0-9A-Za-z_.-]{1,100})")


def is_public(path: str, host_header: str) -> bool:
    """Return whether this module or the static files answer a request with this path and Host header."""
    if path.startswith((*PATHS, settings.STATIC_URL)):
        return True
    return _is_page_domain(split_domain_port(host_header)[0])


def answer(request: HttpRequest) -> HttpResponse | None:
    """Return the response, or None if another view has to answer."""
    try:
        return _answer(request)
    except NotFound:
        return _message("Page not found", "It may have been moved or deleted.", status=404)
    except BodyTooLarge as error:
        return _message("Form too large", status=error.status)
    except TooManyRequests as error:
        response = _message("Too many requests", "Wait before you try again.", status=error.status)
        response["Retry-After"] = error.headers["Retry-After"]
        return response


def _answer(request: HttpRequest) -> HttpResponse | None:
    path = request.path_info
    host = split_domain_port(request.META.get("HTTP_HOST", ""))[0]
    if _is_page_domain(host):
        if path.startswith(tuple(settings.STATIC_URL + folder for folder in _STATIC)):
            # Public static files: WhiteNoise serves them under our own host.
            request.META["HTTP_HOST"] = urlsplit(settings.BASE_URL).netloc
            return None
        return _page(request, host, _ON_DOMAIN.get(path, path if path.startswith("/") else "/"))
    if not path.startswith(PATHS):
        return None
    request.get_host()  # raises DisallowedHost
    if found := _SLUG.fullmatch(path):
        return _page(request, found[1], found[2])
    if found := _BADGE.fullmatch(path):
        return _badge(request, found[1], found[2])
    if found := _LINK.fullmatch(path):
        return _link(request, found[1], found[2])
    raise NotFound


def _is_page_domain(host: str) -> bool:
    domains = settings.STATUS_PAGE_DOMAINS
    return bool(domains and host) and host not in own_hosts() and validate_host(host, domains)


def _page(request: HttpRequest, address: str, rest: str) -> HttpResponse:
    page = caching.find_page(address)
    if page is None:
        raise NotFound
    if request.method == "POST" and rest == "/unlock":
        return _unlock(request, page)
    may_subscribe = request.method == "POST" and rest == "/subscribe"
    if request.method not in _READ and not may_subscribe:
        return _not_allowed("GET, HEAD")
    if not _may_read(request, page):
        return _ask_for_password(page)
    if may_subscribe:
        return _subscribe(request, page)
    content_type, make = rendering.part(rest)
    key = f"status-page:{page.page_id}:{page.version}:{page.root}:{rest}"
    users = (client_network(request), f"owner:{page.owner_id}")
    found = caching.fetch(key, content_type, lambda: make(rendering.load_page(page), page), users=users)
    response = _rendered(request, found)
    if page.lock:
        response["Cache-Control"] = "private, no-cache"
        response["X-Robots-Tag"] = "noindex"
    else:
        response["Cache-Control"] = f"public, max-age={300 if rest in ('/theme.css', '/logo') else 10}"
        if rest == ".json":
            response["Access-Control-Allow-Origin"] = "*"
    return response


def _rendered(request: HttpRequest, rendered: Rendered) -> HttpResponse:
    response = respond(request, rendered)
    response["Content-Security-Policy"] = _POLICY
    return response


def _may_read(request: HttpRequest, page: PublishedPage) -> bool:
    if not page.lock:
        return True
    opened = request.get_signed_cookie(_cookie(page), default="", max_age=UNLOCKED_SEC)
    return constant_time_compare(opened or "", page.lock)


def _cookie(page: PublishedPage) -> str:
    return f"status_{page.page_id}"


def _ask_for_password(page: PublishedPage, *, wrong: str | None = None) -> HttpResponse:
    """Return the password form, which reveals nothing about the page."""
    return _uncached("statuspages/unlock.html", {"path": f"{page.root}/unlock", "wrong": wrong}, status=403)


def _unlock(request: HttpRequest, page: PublishedPage) -> HttpResponse:
    back = HttpResponseRedirect(page.page)
    if not page.lock:
        return back
    require_small_form(request)
    # Count per address first: a blocked address must not use up the page's attempts.
    count_request("status-password", f"{page.page_id} {client_network(request)}")
    count_request("status-password-page", str(page.page_id))
    stored = StatusPage.objects.filter(pk=page.page_id).values_list("password_hash", flat=True).first()
    with origin_of(request):  # whose share of hashing it is
        is_right = bool(stored and check_password(request.POST.get("password", "")[:200], stored))
    if not is_right:
        return _ask_for_password(page, wrong="Wrong password.")
    back.set_signed_cookie(
        _cookie(page),
        page.lock,
        max_age=UNLOCKED_SEC,
        path=f"{page.page.rpartition('/')[0]}/",  # which the paths of the feeds begin with as well
        secure=settings.BASE_URL.startswith("https://"),
        httponly=True,
        samesite="Strict",
    )
    back["Cache-Control"] = "no-store"
    return back


def _subscribe(request: HttpRequest, page: PublishedPage) -> HttpResponse:
    require_small_form(request)
    email = request.POST.get("email", "")[:254]
    count_request("status-subscribe", client_network(request))
    count_request("status-subscribe-address", email.strip().lower())
    try:
        subscriptions.subscribe(page.page_id, email, now=utc_now())
    except ValidationFailed as error:
        reason = (error.reason or "").removeprefix("email: ")
        form = {"path": f"{page.root}/subscribe", "email": email, "reason": reason}
        return _message("Subscription failed", status=422, form=form)
    if problem := mail.server_problem(staff=False):
        return _message("No e-mail was sent", problem, back=page.page)
    return _message(
        "Check your e-mail",
        "If this address is not subscribed yet, we have sent a message to it. Follow its link within 24 hours to "
        "confirm the subscription.",
        back=page.page,
    )


def _link(request: HttpRequest, action: str, token: str) -> HttpResponse:
    """Answer a link of a mail. GET asks, POST acts: mail scanners follow links with GET and must change nothing."""
    count_request("status-links", client_network(request))
    if request.method == "POST" and action == subscriptions.UNSUBSCRIBE:
        subscriptions.unsubscribe(token)
        return _message("Unsubscribed", "This address was deleted and gets no more mail.")
    if request.method not in {*_READ, "POST"}:
        return _not_allowed("GET, HEAD, POST")
    try:
        subscriber = subscriptions.find(token, action)
        if request.method == "POST":
            subscriptions.confirm(subscriber, now=utc_now())
    except NotFound:
        return _message("This link is no longer valid", "It has expired, or the address was unsubscribed.", status=404)
    name, hint = subscriber.page.name, subscriber.hint
    if request.method == "POST":
        text = f"You will receive updates about {name} by e-mail. Each message has a link to unsubscribe."
        return _message("Subscribed", text, back=subscriber.page.url)
    button, verb = ("Subscribe", "will") if action == subscriptions.CONFIRM else ("Unsubscribe", "will no longer")
    text = f"Updates about {name} {verb} be sent to {hint}."
    return _message(f"{button}?", text, button=button, path=request.path_info)


def _badge(request: HttpRequest, key: str, name: str) -> HttpResponse:
    if request.method not in _READ:
        return _not_allowed("GET, HEAD")
    draw = partial(badges.draw, key, name, now=utc_now())
    users = (client_network(request), f"badge:{key}")
    response = _rendered(request, caching.fetch(f"badge:{key}:{name}", "image/svg+xml", draw, users=users))
    response["Content-Security-Policy"] = "default-src 'none'"
    response["Cache-Control"] = "public, max-age=30"
    return response


def _message(title: str, text: str = "", *, status: int = 200, **context: Any) -> HttpResponse:
    return _uncached("statuspages/message.html", {"title": title, "text": text, **context}, status=status)


def _uncached(template: str, context: Mapping[str, Any], *, status: int) -> HttpResponse:
    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex",
        "Referrer-Policy": "no-referrer",  # mails contain secret links
    }
    return HttpResponse(render_to_string(template, context), HTML, status, headers=headers)


def _not_allowed(allowed: str) -> HttpResponse:
    response = _message("Method not allowed", status=405)
    response["Allow"] = allowed
    return response
