"""Mails to subscribers on their way. A try is claimed, made and finished, each in a transaction of its own.

A sender that dies leaves leases, and when they end its mails are tried again: each arrives at least once, under a
Message-ID that stays. MOST_AT_ONCE bounds how many are being sent, and with the beat's pace the rate: ten thousand
subscribers take some minutes, and no mail server is flooded. Accounts take turns, and so do the pages of each account:
a small page never waits for a large one, and an account with many pages gets no more than one with a single page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parseaddr
from smtplib import SMTPException
from typing import Any

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection
from django.db.models import Q

from alerts.sending import backoff
from core.clock import utc_now
from core.db import release_connection
from notifications.outbox import SendResult
from notifications.smtp import bounded_connection, problem, send_mail
from projects.mail import one_line
from statuspages.links import confirm_url, unsubscribe_url
from statuspages.lookup import page_url
from statuspages.models import PageMail

logger = logging.getLogger(__name__)

BATCH = 50
MOST_AT_ONCE = 100
TOTAL_SEC = 60.0
LEASE = timedelta(seconds=120)
"""Longer than a batch may take."""
TRIED_FOR = timedelta(hours=24)

State = PageMail.State

_CLAIM = """
    WITH due AS (
        SELECT mail.id,
               page.owner_id,
               row_number() OVER (PARTITION BY subscriber.page_id ORDER BY mail.id) AS turn_of_page
          FROM statuspages_pagemail AS mail
          JOIN statuspages_subscriber AS subscriber ON subscriber.id = mail.subscriber_id
          JOIN statuspages_statuspage AS page ON page.id = subscriber.page_id
         WHERE mail.state = 'waiting' AND mail.next_try_at <= %(now)s
           AND (mail.leased_until IS NULL OR mail.leased_until <= %(now)s)
    ), fair AS (
        SELECT id, row_number() OVER (PARTITION BY owner_id ORDER BY turn_of_page, id) AS turn
          FROM due
    ), chosen AS (
        SELECT mail.id
          FROM statuspages_pagemail AS mail
          JOIN fair ON fair.id = mail.id
         WHERE mail.state = 'waiting' AND mail.next_try_at <= %(now)s
           AND (mail.leased_until IS NULL OR mail.leased_until <= %(now)s)
         ORDER BY mail.event_id IS NOT NULL, fair.turn, mail.id  -- somebody waits for a question
         LIMIT least(%(batch)s, greatest(0, %(most)s - (
                SELECT count(*) FROM statuspages_pagemail WHERE state = 'waiting' AND leased_until > %(now)s)))
           FOR UPDATE OF mail SKIP LOCKED
    )
    UPDATE statuspages_pagemail AS mail
       SET leased_until = %(lease_end)s, attempts = least(mail.attempts + 1, 32000)
      FROM chosen
     WHERE mail.id = chosen.id
    RETURNING mail.id, mail.attempts
"""

_at_work = threading.Lock()


@dataclass(frozen=True, slots=True)
class Try:
    mail_id: int
    number: int


def start_sending() -> None:
    """Send what is due in a thread of its own, unless this process is sending already."""
    if not _at_work.locked():
        threading.Thread(target=_send_and_release, name="page-mails", daemon=True).start()


def _send_and_release() -> None:
    try:
        send_due()
    finally:
        release_connection()


def send_due() -> int:
    """Send what is due, a few batches at most; how many tries were made. Nothing while this process is at it."""
    if not _at_work.acquire(blocking=False):
        return 0
    try:
        tried = 0
        while tried < MOST_AT_ONCE and (claimed := claim(utc_now())):
            tried += send(claimed)
        return tried
    finally:
        _at_work.release()


def is_due(now: datetime) -> bool:
    due = PageMail.objects.filter(state=State.WAITING, next_try_at__lte=now)
    return due.filter(Q(leased_until=None) | Q(leased_until__lte=now)).exists()


def claim(now: datetime) -> list[Try]:
    """The next mails that are due, each page's in turn. Committed when this returns."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "lease_end": now + LEASE, "batch": BATCH, "most": MOST_AT_ONCE})
        return [Try(*row) for row in cursor.fetchall()]


def send(claimed: Sequence[Try]) -> int:
    """Over one connection; what is left when it breaks is tried again later. How many there were."""
    numbers = {one.mail_id: one.number for one in claimed}
    mails = list(
        PageMail.objects.filter(pk__in=numbers).select_related("event", "subscriber__page").order_by("pk")
    )
    release_connection()
    with bounded_connection(TOTAL_SEC) as mailer:
        try:
            mailer.open()
        except (SMTPException, OSError) as error:
            outcome = SendResult(delivered=False, detail=problem(error))
            for mail in mails:
                finish(mail, numbers[mail.pk], outcome, now=utc_now())
            return len(claimed)
        for mail in mails:
            finish(mail, numbers[mail.pk], _try(mail, mailer), now=utc_now())
            release_connection()
    return len(claimed)


def finish(mail: PageMail, number: int, outcome: SendResult, *, now: datetime) -> None:
    """Written where the try is still ours: a lease that ended may have been taken by somebody else."""
    ours = PageMail.objects.filter(pk=mail.pk, attempts=number, state=State.WAITING)
    since = mail.subscriber.created_at if mail.event is None else mail.event.addressed_at or mail.event.at
    if outcome.delivered:
        ours.update(state=State.SENT, leased_until=None, last_error=None)
    elif not outcome.retry or now >= since + TRIED_FOR:
        ours.update(state=State.DEAD, leased_until=None, last_error=outcome.detail)
    else:
        ours.update(leased_until=None, next_try_at=now + backoff(number), last_error=outcome.detail)


def _try(mail: PageMail, mailer: Any) -> SendResult:
    page, subscriber = mail.subscriber.page, mail.subscriber
    if mail.event is not None and not page.published:
        return SendResult(delivered=False, detail="The page is not published any more.", retry=False)
    try:
        address = subscriber.address
    except InvalidToken:
        return SendResult(delivered=False, detail="No known key opens the address.", retry=False)
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "pulsekeeper"
    subject, text, headers = _question(mail) if mail.event is None else _news(mail)
    message = EmailMessage(
        subject,
        text,
        to=[address],
        connection=mailer,
        headers={
            "Message-ID": f"<status-mail.{mail.pk}@{domain}>",
            "Auto-Submitted": "auto-generated",
            **headers,
        },
    )
    return send_mail(message)


def _question(mail: PageMail) -> tuple[str, str, dict[str, str]]:
    page = mail.subscriber.page
    name = one_line(page.name)
    text = (
        f"Somebody, you perhaps, wants news of {name} to be sent to this address.\n\n"
        f"{confirm_url(mail.subscriber)}\n\n"
        "Open this link within 24 hours and press the button there, and you will be told of outages and of what is\n"
        "done about them. If you want none of that, there is nothing to do: this address is forgotten by itself.\n"
    )
    return f"Do you want news of {name}?", text, {}


def _news(mail: PageMail) -> tuple[str, str, dict[str, str]]:
    event, page = mail.event, mail.subscriber.page
    assert event is not None
    stop = unsubscribe_url(mail.subscriber)
    text = (
        f"{event.title}\n{event.at:%Y-%m-%d %H:%M} UTC\n\n{event.text}\n\n"
        f"{page_url(page, page.custom_domain)}\n\n-- \n"
        f"You get this because you subscribed to {one_line(page.name)}. To stop it:\n{stop}\n"
    )
    headers = {"List-Unsubscribe": f"<{stop}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return f"[{one_line(page.name)}] {one_line(event.title)}", text, headers
