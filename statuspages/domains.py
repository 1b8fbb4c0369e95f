"""Prove custom domains of status pages by a TXT record. Only verified ones are served.

Any number of pages may claim a domain. It belongs to the first whose record is found. Another page takes it over when
its own record is there and that of the former page is gone: then its editor controls the zone. The look-up is a dns
check by a worker, never in a transaction. See docs/adr/0037.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from html import escape
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

import audit.services
from audit.actions import Action
from checks.probes.dns.spec import DnsSpec
from checks.probes.http.spec import HttpSpec
from checks.spec import ContentRule, RuleType, Verdict
from core.clock import utc_now
from core.db import lock_in_turn
from core.egress import literal_address
from core.errors import DomainUnverified, NotFound, NoWorker
from monitors.checking.interactive import check_draft
from projects.access import Caller
from statuspages import caching
from statuspages.models import DomainRecord, StatusPage
from statuspages.selectors import get_page

logger = logging.getLogger(__name__)

TIMEOUT_MS = 5_000
FIRST_RETRY, LONGEST_RETRY = timedelta(minutes=1), timedelta(days=1)
LEASE = timedelta(minutes=5)
PAGES_AT_ONCE = 20
RUN_SEC = 40.0
_TAKEN = (
    "Another status page has verified this domain. To move it here, remove its TXT record from {name} so that only "
    "{value} is left, then verify the domain again."
)


def verify(caller: Caller, public_id: str) -> StatusPage:
    """Look up the TXT record of a page's domain, and serve the domain if it exists. Return the page.

    Raises DomainUnverified, or NoWorker if the record could not be looked up.
    """
    page = get_page(caller, public_id)
    caller.require_write(page)
    if page.custom_domain is None:
        raise DomainUnverified("The page has no custom domain.")
    if page.domain_verified_at is None and (problem := _verify(page, caller)):
        raise DomainUnverified(problem)
    return get_page(caller, public_id)


def address_record(page: StatusPage) -> tuple[str, str]:
    """Return type and value of the record that points a page's domain to the host of BASE_URL."""
    host = urlsplit(settings.BASE_URL).hostname or ""
    address = literal_address(host)
    if address is None:
        return "CNAME", f"{host}."
    return ("A" if address.version == 4 else "AAAA"), str(address)


def unreachable(page: StatusPage) -> str | None:
    """Request a published page on its verified domain. Return why it is not shown there, or None.

    Raises NoWorker.
    """
    rules = () if page.is_protected else (ContentRule(RuleType.TEXT_CONTAINS, escape(page.name)),)
    expected = 403 if page.is_protected else 200
    spec = HttpSpec(url=page.url, method="GET", expect_status=expected, rules=rules, timeout_ms=TIMEOUT_MS)
    result = check_draft(spec, owner_id=page.owner_id)
    return (result["detail"] or "") if result["status"] == Verdict.DOWN else None


def verify_due(now: datetime) -> None:
    """Look for the records of pages whose domains are not verified yet. Owners take turns."""
    started = time.monotonic()
    due = StatusPage.objects.filter(domain_check_at__lte=now, owner__is_active=True)
    with transaction.atomic():
        keys, _ = lock_in_turn(due, account="owner", most=PAGES_AT_ONCE)
        StatusPage.objects.filter(pk__in=keys).update(domain_check_at=now + LEASE)
    for page in StatusPage.objects.select_related("owner", "project").filter(pk__in=keys, domain_verified_at=None):
        if time.monotonic() - started > RUN_SEC:
            return  # the others' leases end
        try:
            _verify(page, Caller(page.owner))
        except NoWorker as error:
            logger.warning("no worker looked up the record of %s: %s", page.public_id, error)  # after its lease, again
        except NotFound:
            pass  # deleted, or its domain changed


def _verify(page: StatusPage, caller: Caller) -> str | None:
    """Verify the domain of a page. Return why it is not verified, or None."""
    record = page.domain_record
    assert record is not None
    holder = _holders(page).first()
    problem = _problem(page, record, holder)
    try:
        with transaction.atomic():
            return _store(page, holder, problem, caller)
    except IntegrityError:  # another page was verified at the same time
        return _TAKEN.format(**record._asdict())


def _problem(page: StatusPage, record: DomainRecord, holder: StatusPage | None) -> str | None:
    """Return why the domain does not belong to the page with this record, or None."""
    detail = _look_up(page, record.name, ContentRule(RuleType.TEXT_CONTAINS, record.value))
    if detail is not None:
        return f"The TXT record {record.name} with the value {record.value} was not found. {detail}"
    former = None if holder is None else holder.domain_record
    gone = ContentRule(RuleType.TEXT_ABSENT, former.value) if former is not None else None
    if gone is not None and _look_up(page, record.name, gone) is not None:
        return _TAKEN.format(**record._asdict())
    return None


def _look_up(page: StatusPage, name: str, rule: ContentRule) -> str | None:
    """Return why the TXT records of a name do not match the rule, or None."""
    spec = DnsSpec(name=name, record_type="TXT", rules=(rule,), timeout_ms=TIMEOUT_MS)
    result = check_draft(spec, owner_id=page.owner_id)
    return (result["detail"] or "") if result["status"] == Verdict.DOWN else None


def _holders(page: StatusPage) -> QuerySet[StatusPage]:
    """Return the other page that has verified the domain, if any."""
    return StatusPage.objects.filter(custom_domain=page.custom_domain, domain_verified_at__isnull=False).exclude(
        pk=page.pk
    )


def _store(page: StatusPage, holder: StatusPage | None, problem: str | None, caller: Caller) -> str | None:
    """Store the result of a look-up, in a transaction. Raises NotFound if the page or its domain has changed since."""
    now = utc_now()
    concerned = StatusPage.objects.filter(Q(pk=page.pk) | Q(pk__in=_holders(page)), custom_domain=page.custom_domain)
    locked = {one.pk: one for one in concerned.select_for_update(of=["self"], no_key=True).order_by("pk")}
    current = locked.pop(page.pk, None)
    if current is None:
        raise NotFound
    if current.domain_verified_at is not None:
        return None
    former = list(locked.values())
    if problem is None and [one.pk for one in former] != ([] if holder is None else [holder.pk]):
        problem = "Another page with this domain was changed at the same time; verify the domain again."
    if problem is not None:
        delay = min(FIRST_RETRY * 2 ** min(current.domain_failures, 11), LONGEST_RETRY)
        current.domain_failures, current.domain_check_at = min(current.domain_failures + 1, 1_000), now + delay
        current.save(update_fields=["domain_failures", "domain_check_at"])
        return problem
    for one in former:
        _change(one, None, check_at=now + LONGEST_RETRY)
        audit.services.record(Action.DOMAIN_LOST, actor=None, **_what(one))
    _change(current, now, check_at=None)
    audit.services.record(
        Action.DOMAIN_VERIFIED, actor=caller.user, by_token=caller.project is not None, **_what(current)
    )
    return None


def _change(page: StatusPage, verified_at: datetime | None, *, check_at: datetime | None) -> None:
    page.domain_verified_at, page.domain_check_at, page.domain_failures = verified_at, check_at, 0
    page.version += 1
    page.save(update_fields=["domain_verified_at", "domain_check_at", "domain_failures", "version"])
    caching.forget_on_commit(page.slug, page.custom_domain)


def _what(page: StatusPage) -> dict[str, object]:
    return {
        "subject": page.owner,
        "project": page.project,
        "target_id": page.public_id,
        "target_name": page.name,
        "details": {"domain": page.custom_domain},
    }
