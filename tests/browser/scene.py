"""A shop's monitors with a month of history, created by the services of production, for screenshots.

Import it after Django is set up. The monitors are not checked, so that pictures are reproducible.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from PIL import Image, ImageDraw

from accounts.models import User
from accounts.services import create_account
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.services import create_channel
from audit.actions import Action
from audit.models import Entry
from benchmarks.seeding import seed_history
from checks.evidence import Evidence
from checks.probes.http.evidence import HttpEvidence
from checks.results.models import CheckResult
from checks.results.store import NewResult, store_results
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.clock import to_ms, utc_now
from core.version import product_version
from incidents import consuming
from incidents.models import Escalation, Incident
from incidents.services import acknowledge, comment
from incidents.windows import create_window
from locations.models import Location
from locations.services import create_location
from monitors import changes, configuration, types
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.services import sweep
from monitors.models import DnsChange, LocationFailure, Monitor, MonitorState, StatusChange, UptimeProgress
from monitors.operations import mute_for
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.services import create_monitor, update_monitor
from oncall.acknowledging import make_links
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.members import add_member
from projects.models import Membership, Project
from projects.services import create_project
from statuspages.services import add_update, create_note, create_page, set_logo
from tests.factories import ConnectorFactory, DeliveryFactory
from tests.helpers import PASSWORD, signal
from tests.locations import add_agent
from tests.processes.waiting import until
from tokens.services import create_token

INTERVAL_SEC = 300
DAYS = 30
OUTAGES = timedelta(days=9)
"""How far back the outages have incidents."""

# Project, name, address.
MONITORS = (
    ("Web shop", "Shop home page", "https://shop.larkandpine.example/"),
    ("Web shop", "Checkout", "https://shop.larkandpine.example/checkout"),
    ("Web shop", "Search", "https://shop.larkandpine.example/search?q=lamp"),
    ("Web shop", "Product images", "https://images.larkandpine.example/health"),
    ("Web shop", "Payments API", "https://api.larkandpine.example/v2/payments/health"),
    ("Web shop", "Orders API", "https://api.larkandpine.example/v2/orders/health"),
    (
        "Web shop",
        "Stock API with an unusually long name that no column was made for",
        "https://api.larkandpine.example/stock",
    ),
    ("Internal tools", "Wiki", "https://wiki.larkandpine.example/"),
    ("Internal tools", "Build server", "https://build.larkandpine.example/login"),
    ("Internal tools", "Mail gateway", "https://mail.larkandpine.example/"),
    ("Internal tools", "Warehouse printer service", "http://192.0.2.17:8631/status"),
    ("Internal tools", "Database", "tls://db.larkandpine.example:5432?starttls=postgres"),
    ("Internal tools", "Telephone exchange", "udp://sip.larkandpine.example:5060"),
    ("Internal tools", "Warehouse router", "icmp://198.51.100.1"),
    ("Internal tools", "Mail servers", "dns:larkandpine.example?type=MX"),
    (None, "Company blog", "https://blog.larkandpine.example/"),
    (None, "Landing page", "https://larkandpine.example/"),
    (None, "Newsletter", "https://news.larkandpine.example/health"),
)
DOWN = {
    "Payments API": (ReasonCode.HTTP_FAILURE, "Answered 503, and 200 was expected."),
    "Wiki": (ReasonCode.TIMEOUT, "No answer within 10 s."),
}
# Evidence of the failed checks of the other types.
EVIDENCE = {
    "Database": (
        ReasonCode.TLS_FAILURE,
        "The server's certificate expired on 2026-11-19 11:58 UTC; renew it.",
        Evidence("198.51.100.7:5432", tls_version="TLSv1.3", tls_issuer="Lark & Pine internal CA"),
    ),
    "Warehouse router": (
        ReasonCode.TIMEOUT,
        "No result within 10000 ms: 1 of 5 packets returned, and 3 are needed; check the routes to it.",
        Evidence(
            "198.51.100.1",
            facts=(
                ("packets", "5 sent, 1 returned, 80 % lost"),
                ("round trips", "lost, lost, 31.02 ms, lost, lost"),
                ("minimum, mean, maximum", "31.02 ms, 31.02 ms, 31.02 ms"),
            ),
        ),
    ),
    "Mail servers": (
        ReasonCode.CONTENT_FAILURE,
        "The records differ: missing 10 mail.larkandpine.example; extra 10 mail.parking.example.",
        Evidence(
            "192.0.2.53:53",
            facts=(("protocol", "UDP"), ("response code", "NOERROR"), ("flags", "qr rd ra"), ("size", "92 bytes")),
            body="larkandpine.example. 300 IN MX 10 mail.parking.example.\n"
            "larkandpine.example. 300 IN MX 20 mail2.larkandpine.example.",
        ),
    ),
}
PUBLIC_NAMES = {"Shop home page": "Home page"}
SLOW, PAUSED, MUTED, FAILING = "Search", "Newsletter", "Build server", "Mail gateway"
STALE = "Product images"


@dataclass(frozen=True)
class Scene:
    """`places`: ids for the paths of pages, by kind of object."""

    owner: User
    places: dict[str, str]


def build(*, calm: bool = False) -> Scene:
    """`calm`: for pictures in README. One monitor is down, the others are ordinary, and no text is hostile."""
    now = utc_now()
    owner = create_account(email="anna@larkandpine.example", password=PASSWORD, plan="pro")
    anna = Caller(owner)
    projects = {name: create_project(anna, name=name, now=now) for name in ("Web shop", "Internal tools")}
    monitors = _with_a_past(owner, projects, now=now, calm=calm)
    # Together, or the application's own beat processes today's changes before those of the past.
    with transaction.atomic():
        _today(anna, monitors, now=now, calm=calm)
        recent = StatusChange.objects.filter(monitor__owner=owner, at__gt=now - OUTAGES)
        recent.exclude(before=None).update(processed_at=None)
    UptimeProgress.objects.update(written_until=None)  # no day is stored for rows created from here on
    incident = _incidents(anna, monitors, now=now)
    _dns_changes(monitors["Mail servers"], now=now)
    shop = projects["Web shop"]
    _people(anna, shop, now=now)
    _entries(owner, shop, now=now)
    if not calm:
        parents = [monitors[name].public_id for name in ("Database", "Warehouse router")]
        for name in ("Checkout", "Shop home page"):
            update_monitor(anna, monitors[name].public_id, {"depends_on": parents}, now=now)
    _changes(anna, monitors["Checkout"])
    return Scene(
        owner,
        {
            "monitor": monitors["Checkout"].public_id,
            "down": monitors["Payments API"].public_id,
            "failing": monitors[FAILING].public_id,
            "muted": monitors[MUTED].public_id,
            "stale": monitors[STALE].public_id,
            "port": monitors["Database"].public_id,
            "udp": monitors["Telephone exchange"].public_id,
            "ping_down": monitors["Warehouse router"].public_id,
            "dns": monitors["Mail servers"].public_id,
            "job": _job(anna, shop, now=now, calm=calm).public_id,
            "heartbeat": _heartbeat(anna, shop, now=now).public_id,
            "ping": _ping(anna, shop, now=now).public_id,
            "incident": incident.public_id,
            "project": shop.public_id,
            "channel": _alerting(anna, monitors, now=now),
            "pager": _pager(anna, now=now),
            "window": _maintenance(anna, shop, now=now, calm=calm),
            **_links(anna, incident),
            **_on_call(anna, shop, now=now),
            **_status_pages(anna, monitors, incident, now=now),
            **({} if calm else _locations(anna, shop, monitors["Checkout"], now=now)),
        },
    )


def _locations(anna: Caller, project: Project, monitor: Monitor, *, now: datetime) -> dict[str, str]:
    """Three locations, from which the monitor is checked in turn. One is offline, and saw a failure on its own.

    The shared one is not preselected: its agents only seem to be online, and monitors of later tests would await them.
    """
    frankfurt = Location.objects.create(public_id="fra", name="Frankfurt", created_at=now)
    for number in (1, 2):
        # The browser looks at it for minutes.
        seen, name = now + timedelta(hours=1), f"fra-probe-{number}.larkandpine.example"
        add_agent(frankfurt, name=name, version=product_version(), seen=seen, checks_per_min=118 * number, lag_ms=38)
    warehouse, _ = create_location(anna, {"name": "Warehouse <Ohio>", "project_id": project.public_id}, now=now)
    add_agent(warehouse, name="ohio-1", version="0.9.1", seen=now - timedelta(hours=5), checks_per_min=0, lag_ms=212)
    create_location(anna, {"name": "Office", "project_id": None}, now=now)
    Monitor.objects.filter(pk=monitor.pk).update(locations=["default", "fra", warehouse.public_id], quorum=2)
    results = CheckResult.objects.filter(monitor_id=monitor.pk)
    for turn, location in enumerate((frankfurt, warehouse)):
        moments = list(results.order_by("-checked_at").values_list("checked_at", flat=True)[turn:30:3])
        results.filter(checked_at__in=moments).update(location_id=location.pk)
    results.filter(checked_at=moments[0]).update(
        verdict=Verdict.DOWN, reason_code=ReasonCode.TIMEOUT, detail="no response within 10 s", confirmed=False
    )
    failing = {"failures": 3, "since": now - timedelta(minutes=9), "detail": "no response within 10 s"}
    LocationFailure.objects.create(
        monitor=monitor, location_id=frankfurt.pk, config_version=monitor.config_version, **failing
    )
    return {"location": "fra", "private_location": warehouse.public_id}


def _changes(caller: Caller, monitor: Monitor) -> None:
    """Entries alone, as an edit would check the monitor again."""
    path = "orders" * 20
    edits = (
        [*changes.changed("interval_sec", 60, INTERVAL_SEC), {"field": "request_headers"}],
        changes.changed("url", f"https://shop.larkandpine.example/{path}", monitor.url),
        changes.changed("enabled", before=True, after=False),
        changes.changed("enabled", before=False, after=True),
        changes.changed("muted_until", None, utc_now()),
    )
    for edit in edits:
        changes.record(caller, [monitor], [edit])


def _dns_changes(monitor: Monitor, *, now: datetime) -> None:
    removed = [f"10 mx{number}.larkandpine.example" for number in range(3)]
    key = f"v=DKIM1; k=rsa; p={'MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDwIRP' * 6}"
    for hours, added in ((300, ["10 mail.larkandpine.example"]), (2, ["10 mail.example.net", key])):
        DnsChange.objects.create(
            monitor=monitor,
            at=now - timedelta(hours=hours),
            added=added,
            removed=removed,
            added_count=len(added),
            removed_count=7,
        )


def _on_call(anna: Caller, project: Project, *, now: datetime) -> dict[str, str]:
    """A schedule with a gap, an override and a person without a confirmed contact, and a policy of three steps."""
    people = Membership.objects.filter(project=project).exclude(user=None).values_list("user__email", "user__public_id")
    ids = {email.partition("@")[0]: public_id for email, public_id in people}
    ben = User.objects.get(public_id=ids["ben"])
    AlertChannel.objects.filter(owner=ben).delete()
    monday = (now - timedelta(days=now.weekday())).replace(hour=8, minute=0, second=0, microsecond=0)
    turns = {"every": {"unit": "day", "count": 1}, "starts_at": to_ms(monday), "hours": []}
    office = [{"days": [1, 2, 3, 4, 5], "from": "09:00", "to": "17:30"}]
    evening = [{"days": [1, 2, 3, 4, 5, 6], "from": "17:30", "to": "09:00"}]
    layers = [
        {**turns, "user_ids": [ids["anna"], ids["ben"]], "hours": office},
        {**turns, "user_ids": [ids["ben"], ids["anna"], ids["anna"]], "hours": evening},
    ]
    saturday = monday + timedelta(days=5, hours=2)
    override = {
        "user_id": ids["anna"],
        "starts_at": to_ms(saturday),
        "ends_at": to_ms(saturday + timedelta(hours=10)),
    }
    body = {"name": "Shop backend", "project_id": project.public_id, "timezone": "Europe/Berlin"}
    schedule = create_schedule(anna, {**body, "layers": layers, "overrides": [override]}, now=now)
    always = {**body, "name": "Second line", "layers": [{**turns, "user_ids": [ids["anna"]]}]}
    create_schedule(anna, always, now=now)
    channel = create_channel(
        anna, {"kind": "email", "address": anna.user.email, "name": "Team", "project_id": project.public_id}, now=now
    )[0]
    targets = (
        [{"type": "schedule", "id": schedule.public_id}],
        [{"type": "user", "id": ids["anna"]}, {"type": "user", "id": ids["ben"]}],
        [{"type": "channel", "id": channel.public_id}],
    )
    steps = [{"after_min": number * 10, "targets": one} for number, one in enumerate(targets)]
    given = {"name": "Shop outages", "project_id": project.public_id, "repeat": 2, "acknowledge_timeout_min": 45}
    policy = create_policy(anna, {**given, "steps": steps}, now=now)
    escalating = _unacknowledged(anna)
    Escalation.objects.create(incident=escalating, policy=policy, step=1, next_at=now + timedelta(minutes=8))
    return {"on_call": schedule.public_id, "policy": policy.public_id, "escalating": escalating.public_id}


def _entries(owner: User, shop: Project, *, now: datetime) -> None:
    """Create entries of the security log, as of browsers and programs."""
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    her = {"actor_id": owner.pk, "actor_public_id": owner.public_id, "actor_email": owner.email}
    here = {"address": "192.0.2.7", "user_agent": firefox}
    kinds = Entry.ActorType
    failed = {"subject_id": owner.pk, "address": "2001:db8::7f", "user_agent": "curl/8.14.1"}
    of_shop = {"project_id": shop.pk, "project_public_id": shop.public_id}
    door = {"door": "web", "ways": ["password", "mfa"]}
    channel: dict[str, Any] = {"target_id": "chn_a", "target_name": "On call", **of_shop}
    rows: list[tuple[Action, str, dict[str, Any]]] = [
        (Action.SIGN_IN_FAILED, kinds.ANONYMOUS, {**failed, "details": {"door": "api"}}),
        (Action.PLAN_CHANGED, kinds.STAFF, {"subject_id": owner.pk, "details": {"before": "free", "plan": "pro"}}),
        (Action.CHANNEL_UPDATED, kinds.TOKEN, {**her, **channel, "details": {"fields": ["name", "secret"]}}),
        (Action.SIGN_IN_SUCCEEDED, kinds.USER, {**her, **here, "details": door}),
    ]
    for minutes, (action, kind, columns) in enumerate(rows):
        at = now - timedelta(minutes=40 - 7 * minutes)
        Entry.objects.create(at=at, action=action, actor_type=kind, **columns)


def _with_a_past(owner: User, projects: dict[str, Project], *, now: datetime, calm: bool) -> dict[str, Monitor]:
    """Create monitors, by name. They are up except for an outage of ten checks every three days."""
    seed_history(owner, monitors=len(MONITORS), days=DAYS, interval_sec=INTERVAL_SEC, now=now)
    found = list(Monitor.objects.filter(owner=owner).order_by("pk"))
    for monitor, (project, name, url) in zip(found, MONITORS, strict=True):
        monitor.project = projects[project] if project else None
        monitor.name, monitor.url, monitor.check_ssl = name, url, url.startswith(("https:", "tls:"))
        kind = types.of_scheme(url.partition(":")[0])
        assert kind is not None
        if kind.name != monitor.type:
            own = {"packets": 5, "min_replies": 3, "records": ("10 mail.larkandpine.example",)}
            built = configuration.build({"type": kind.name, "url": url, **own})
            monitor.type, monitor.config = kind.name, configuration.config_columns(built)["config"]
            CheckResult.objects.filter(monitor_id=monitor.pk).update(http_status=None, ttfb_ms=None, connect_ms=None)
            StatusChange.objects.filter(monitor=monitor, after="down").update(reason_code=ReasonCode.TIMEOUT)
        monitor.check_domain = name in ("Shop home page", "Landing page")
    Monitor.objects.bulk_update(found, ["project", "name", "url", "type", "config", "check_ssl", "check_domain"])
    secured = MonitorState.objects.filter(monitor__owner=owner, monitor__check_ssl=True)
    secured.update(cert_expires_at=now + timedelta(days=61))
    secured.filter(monitor__name="Checkout").update(cert_expires_at=now + timedelta(days=6))
    if calm:
        Monitor.objects.filter(owner=owner, name__startswith="Stock API").update(name="Stock API")
    else:
        secured.filter(monitor__name="Database").update(cert_expires_at=now - timedelta(days=3))
    secured.filter(monitor__check_domain=True).update(domain_expires_at=now + timedelta(days=203))
    return {monitor.name: monitor for monitor in found}


def _today(anna: Caller, monitors: dict[str, Monitor], *, now: datetime, calm: bool) -> None:
    """Give the rows of the overview different states."""
    failing = [monitors[name].pk for name in (*DOWN, *EVIDENCE)]
    CheckResult.objects.filter(monitor_id__in=failing, checked_at__gt=now - timedelta(minutes=28)).delete()
    for minutes in (25, 20, 15):
        at = now - timedelta(minutes=minutes)
        for name, (reason, detail) in DOWN.items():
            if calm and reason is not ReasonCode.HTTP_FAILURE:
                continue
            evidence = HttpEvidence(
                address="192.0.2.80:443",
                status_line="HTTP/1.1 503 Service Unavailable",
                headers=(("content-type", "text/plain"), ("retry-after", "120")),
                body="upstream connect error or disconnect/reset before headers",
            )
            failed = reason is ReasonCode.HTTP_FAILURE
            _check(
                monitors[name],
                CheckOutcome(
                    verdict=Verdict.DOWN,
                    checked_at=at,
                    reason_code=reason,
                    detail=detail,
                    http_status=503 if failed else None,
                    evidence=evidence if failed else None,
                ),
            )
        for name, (reason, detail, seen) in {}.items() if calm else EVIDENCE.items():
            outcome = CheckOutcome(
                verdict=Verdict.DOWN, checked_at=at, reason_code=reason, detail=detail, evidence=seen
            )
            _check(monitors[name], outcome)
    _check(
        monitors[SLOW],
        CheckOutcome(
            verdict=Verdict.SLOW,
            checked_at=now - timedelta(minutes=9),
            latency_ms=2_480,
            connect_ms=31,
            ttfb_ms=2_402,
            http_status=200,
        ),
    )
    if calm:
        up = MonitorState.objects.filter(monitor__owner=anna.user, status=Verdict.UP)
        up.update(last_latency_ms=40 + F("pk") * 37 % 160)
        return
    MonitorState.objects.filter(pk=monitors[STALE].pk).update(
        fault="Pulsekeeper could not run this check: no name server could be reached.",
        fault_since=now - timedelta(minutes=40),
        last_checked_at=now - timedelta(minutes=45),
    )
    update_monitor(anna, monitors[PAUSED].public_id, {"enabled": False}, now=now)
    mute_for([monitors[MUTED].pk], minutes=240, now=now - timedelta(minutes=30))
    for minutes, name in ((12, MUTED), (7, FAILING), (2, FAILING)):
        outcome = CheckOutcome(
            verdict=Verdict.DOWN,
            checked_at=now - timedelta(minutes=minutes),
            reason_code=ReasonCode.TIMEOUT,
            detail="No answer within 10 s.",
        )
        _check(monitors[name], outcome)


def _check(monitor: Monitor, outcome: CheckOutcome) -> None:
    at = outcome.checked_at
    MonitorState.objects.filter(pk=monitor.pk).update(claim=F("claim") + 1, claimed_at=at, slot_at=at)
    claim = MonitorState.objects.get(pk=monitor.pk).claim
    record([CheckRecord(monitor.pk, claim, monitor.config_version, outcome)], now=at)
    MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=None)


def _incidents(anna: Caller, monitors: dict[str, Monitor], *, now: datetime) -> Incident:
    """Create incidents for recent outages, marked as notified. Return the acknowledged one, which has a comment."""
    recent = StatusChange.objects.filter(monitor__owner=anna.user, at__gt=now - OUTAGES)
    untold: list[StatusChange] = []

    def taken_in() -> bool:
        """Return whether all changes are consumed, by this call or by the application's own beat."""
        consuming.consume(now, slow=untold.extend)
        return not recent.filter(processed_at=None).exists()

    until(taken_in, 60, "all changes are taken in")
    hers = Incident.objects.filter(owner=anna.user)
    hers.update(announced_at=F("confirmed_at"))
    hers.filter(resolved_at__isnull=False).update(closing_announced_at=F("resolved_at"))
    open_one = Incident.objects.get(monitor=monitors["Payments API"], resolved_at=None)
    acknowledge(anna, open_one.public_id, now=now - timedelta(minutes=8))
    comment(
        anna,
        open_one.public_id,
        text="The provider is rolling out a fix; orders are kept and charged afterwards.",
        now=now - timedelta(minutes=5),
    )
    return open_one


def _links(anna: Caller, acknowledged: Incident) -> dict[str, str]:
    """Return the paths of links in messages to her about two outages, one of which she has acknowledged."""
    incidents = {"to_acknowledge": _unacknowledged(anna), "acknowledged": acknowledged}
    items = [
        DeliveryItem(pk=number, incident=incident, user=anna.user) for number, incident in enumerate(incidents.values())
    ]
    urls = make_links(items)
    return {name: urls[number].rpartition("/")[2] for number, name in enumerate(incidents)}


def _unacknowledged(anna: Caller) -> Incident:
    """Return an open incident of a monitor."""
    found = Incident.objects.filter(owner=anna.user, resolved_at=None, acknowledged_at=None, monitor__isnull=False)
    return found.order_by("pk")[0]


def _ping(anna: Caller, project: Project, *, now: datetime) -> Monitor:
    """A router that loses packets for two hours of the day, and all of them for a moment."""
    given = {"type": "ping", "name": "Office router", "url": "icmp://gateway.larkandpine.example", "packets": 10}
    monitor = create_monitor(anna, {**given, "interval_sec": INTERVAL_SEC, "project_id": project.public_id}, now=now)
    results = []
    for number in range(288, 0, -1):
        lost = 100 if number == 100 else number * 37 % 50 // 10 * 10 if 90 < number < 115 else 10 * (number % 60 == 0)
        at = now - timedelta(seconds=number * INTERVAL_SEC)
        outcome = CheckOutcome(Verdict.UP, at, latency_ms=18 + number * 7919 % 9 + lost // 4, loss=lost)
        if lost == 100:
            detail = "No result within 10000 ms: 0 of 10 packets returned (100 % lost)."
            outcome = CheckOutcome(Verdict.DOWN, at, loss=100, reason_code=ReasonCode.TIMEOUT, detail=detail)
        results.append(NewResult(monitor.pk, number + 10, outcome))
    with transaction.atomic():
        store_results(results)
    _check(monitor, CheckOutcome(Verdict.UP, now, latency_ms=19, loss=0))
    return monitor


def _heartbeat(anna: Caller, project: Project, *, now: datetime) -> Monitor:
    return create_monitor(
        anna,
        {
            "type": "heartbeat",
            "name": "Nightly database backup",
            "interval_sec": 86_400,
            "grace_sec": 3_600,
            "project_id": project.public_id,
        },
        now=now,
    )


def _job(anna: Caller, project: Project, *, now: datetime, calm: bool) -> Monitor:
    """Create a job with 500 runs, including failed and unfinished ones, and bodies that pages do not expect."""
    settings = {"schedule": "*/15 * * * *", "timezone": "Europe/Berlin", "grace_sec": 480, "max_duration_sec": 540}
    begin = now - timedelta(minutes=15 * 500)
    monitor = create_monitor(
        anna, {"type": "heartbeat", "name": "Import of orders", "project_id": project.public_id, **settings}, now=begin
    )
    odd = {
        497: "<script>alert('x')</script>\nTraceback (most recent call last):\n  " + "0123456789" * 990,
        498: "Imported \u202eredro\u202c 7 \U0001f4e6\U0001f4a5 \u05e9\u05dc\u05d5\u05dd 3 orders",
    }
    for number in range(500):
        at, rid = begin + timedelta(minutes=15 * number + 1), UUID(int=number)
        if number % 97 == 60:
            MonitorState.objects.filter(pk=monitor.pk).update(claimed_at=at)
            sweep([monitor.pk], now=at + timedelta(minutes=14))
            continue
        common: dict[str, Any] = {"rid": rid, "user_agent": "curl/8.14.1", "remote_addr": "192.0.2.7"}
        heartbeats.record(signal(monitor.public_id, "start", now=at, **common))
        lasted = timedelta(seconds=60 + number * 7919 % 241 + (number % 50 == 49) * 200)
        failed = number % 31 == 30 or (number == 497 and not calm)
        usual = f"Imported {number * 37 % 100} orders"
        body = usual if calm else odd.get(number, usual)
        end = signal(monitor.public_id, "1" if failed else "", now=at + lasted, body=body, **common)
        heartbeats.record(end)
    heartbeats.record(signal(monitor.public_id, "start", now=now - timedelta(seconds=70), rid=UUID(int=500)))
    return monitor


def _alerting(anna: Caller, monitors: dict[str, Monitor], *, now: datetime) -> str:
    channel, _ = create_channel(
        anna,
        {"kind": "webhook", "name": "On-call pager", "url": "https://pager.larkandpine.example/hooks/pulsekeeper"},
        now=now,
    )
    create_channel(anna, {"kind": "email", "address": "operations@larkandpine.example"}, now=now)
    for hours, state in (
        (70, Delivery.State.SENT),
        (44, Delivery.State.DEAD),
        (20, Delivery.State.SENT),
        (1, Delivery.State.WAITING),
    ):
        DeliveryFactory(
            channel=channel, state=state, created_at=now - timedelta(hours=hours), monitor=monitors["Payments API"]
        )
    return channel.public_id


def _pager(anna: Caller, *, now: datetime) -> str:
    channel, _ = create_channel(
        anna, {"kind": "pagerduty", "integration_key": "R0ABCDEF0123456789ABCDEF01234567", "region": "eu"}, now=now
    )
    return channel.public_id


def _maintenance(anna: Caller, project: Project, *, now: datetime, calm: bool) -> str:
    night = (now + timedelta(days=1)).replace(hour=2, minute=0, second=0, microsecond=0)
    place = {"project_id": project.public_id, "monitors": "all"}
    if not calm:
        _window(anna, "Database upgrade", night, timedelta(hours=1), made=now, **place)
    weekly = create_window(
        anna,
        {
            "name": "Weekly deploy",
            "starts_at": night + timedelta(days=2),
            "ends_at": night + timedelta(days=2, minutes=45),
            "rrule": "FREQ=WEEKLY;COUNT=52",
            "time_zone": "Europe/Berlin",
            **place,
        },
        now=now,
    )
    if calm:
        return weekly.public_id
    start = now - timedelta(minutes=20)
    _window(anna, "Router firmware", start, timedelta(hours=2), made=now - timedelta(days=1), **place)
    _window(anna, "Move to the new rack", now - timedelta(days=6), timedelta(hours=5), made=now - timedelta(days=9))
    nightly = {"rrule": f"FREQ=DAILY;UNTIL={now + timedelta(days=9):%Y%m%d}", "time_zone": "America/New_York"}
    start = (now + timedelta(days=4)).replace(hour=3, minute=30, second=0, microsecond=0)
    _window(anna, "Nightly import of the catalogue", start, timedelta(minutes=50), made=now, **nightly)
    _window(anna, "Certificate rotation", now + timedelta(days=80), timedelta(hours=1), made=now)
    return weekly.public_id


def _window(anna: Caller, name: str, starts_at: datetime, lasts: timedelta, *, made: datetime, **given: str) -> None:
    times = {"starts_at": starts_at, "ends_at": starts_at + lasts}
    create_window(anna, {"name": name, "monitors": "all", **times, **given}, now=made)


def _status_pages(anna: Caller, monitors: dict[str, Monitor], incident: Incident, *, now: datetime) -> dict[str, str]:
    groups = {
        "Shop": ("Shop home page", "Checkout", "Search", "Product images"),
        "For developers": ("Payments API", "Orders API"),
        "": ("Newsletter",),
    }
    page = create_page(
        anna,
        {
            "name": "Lark & Pine status",
            "slug": "lark-and-pine",
            "description": "Status of the shop and its services. Times are in your time zone.",
            "accent": "#5b7f3a",
            "show_locations": True,
            "groups": [
                {
                    "name": name,
                    "monitors": [
                        {
                            "monitor_id": monitors[one].public_id,
                            "name": one.removeprefix("Shop ").replace("home", "Home"),
                        }
                        for one in members
                    ],
                }
                for name, members in groups.items()
            ],
        },
        now=now,
    )
    logo = io.BytesIO()
    picture = Image.new("RGBA", (256, 256))
    drawing = ImageDraw.Draw(picture)
    drawing.ellipse((8, 8, 248, 248), fill="#5b7f3a")
    drawing.polygon([(128, 48), (70, 180), (186, 180)], fill="#eef3e6")
    picture.save(logo, "PNG")
    set_logo(anna, page.public_id, logo.getvalue())
    note = create_note(
        anna,
        page.public_id,
        {
            "title": "Payments fail for some cards",
            "status": "investigating",
            "text": "Some payments are refused. Orders are stored and charged later.",
            "incident_id": incident.public_id,
        },
        now=now - timedelta(minutes=12),
    )
    add_update(
        anna,
        page.public_id,
        note.public_id,
        {"status": "identified", "text": "A deployment of our provider is the cause. It is being rolled back."},
        now=now - timedelta(minutes=4),
    )
    locked = create_page(anna, {"name": "For staff", "slug": "staff", "password": "a fine long password"}, now=now)
    return {"status_page": page.public_id, "slug": page.slug, "locked": locked.slug}


def _people(anna: Caller, project: Project, *, now: datetime) -> None:
    ben = create_account(email="ben@larkandpine.example", password=PASSWORD)
    for email, role in ((ben.email, "admin"), ("carla@larkandpine.example", "member")):
        add_member(anna, project.public_id, email=email, role=role, now=now)
    for name in ("Deploy pipeline", "Grafana"):
        create_token(anna, project_id=project.public_id, name=name, ttl_seconds=90 * 86_400, now=now)
    ConnectorFactory(user=anna.user, provider="vercel")
