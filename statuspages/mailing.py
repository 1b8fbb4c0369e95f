"""Mails to subscribers, as messages of the outbox.

MAX_CONCURRENT and the interval of the beat limit the rate: ten thousand subscribers take some minutes, and no mail
server is flooded. Accounts take turns, and so do the pages of each account: a small page never waits for a large one,
and an account gets the same share for one page as for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from smtplib import SMTPException
from typing import Any

from cryptography.fernet import InvalidToken

from core.db import release_connection
from core.text import one_line
from notifications.outbox import DUE, Lane, Outbox, SendResult
from notifications.smtp import bounded_connection, problem, send_mail
from statuspages.models import PageMail
from statuspages.subscriptions import CONFIRM, MAILS, UNSUBSCRIBE, link

BATCH = 50
MAX_CONCURRENT = 100
TOTAL_SEC = 60.0

_CHOSEN = f"""
    due AS (
        SELECT candidate.id,
               page.owner_id,
               row_number() OVER (PARTITION BY subscriber.page_id ORDER BY candidate.id) AS turn_of_page
          FROM statuspages_pagemail AS candidate
          JOIN statuspages_subscriber AS subscriber ON subscriber.id = candidate.subscriber_id
          JOIN statuspages_statuspage AS page ON page.id = subscriber.page_id
         WHERE {DUE}
    ), fair AS (
        SELECT id, row_number() OVER (PARTITION BY owner_id ORDER BY turn_of_page, id) AS turn
          FROM due
    ), chosen AS (
        SELECT candidate.id
          FROM statuspages_pagemail AS candidate
          JOIN fair ON fair.id = candidate.id
         WHERE {DUE}
         ORDER BY candidate.event_id IS NOT NULL, fair.turn, candidate.id  -- requests to confirm come first
         LIMIT least(%(batch)s, greatest(0, %(max_concurrent)s - (
                SELECT count(*) FROM statuspages_pagemail WHERE state = 'waiting' AND leased_until > %(now)s)))
           FOR UPDATE OF candidate SKIP LOCKED
    )
"""  # noqa: S608 - only constants


class PageMailOutbox(Outbox[PageMail]):
    model = PageMail
    chosen = _CHOSEN
    lanes = (Lane(1, {"batch": BATCH, "max_concurrent": MAX_CONCURRENT}),)
    lease = timedelta(seconds=120)
    max_per_wake = MAX_CONCURRENT
    counter = MAILS

    def attempt(self, claimed: Sequence[PageMail]) -> Iterator[tuple[PageMail, SendResult]]:
        """Send a batch over one connection. If it breaks, the remaining mails fail and are retried later."""
        ids = [mail.pk for mail in claimed]
        mails = list(PageMail.objects.filter(pk__in=ids).select_related("event", "subscriber__page").order_by("pk"))
        release_connection()
        with bounded_connection(TOTAL_SEC) as connection:
            try:
                connection.open()
            except (SMTPException, OSError) as error:
                failed = SendResult(delivered=False, detail=problem(error))
                yield from ((mail, failed) for mail in mails)
                return
            for mail in mails:
                yield mail, _send(mail, connection)


OUTBOX = PageMailOutbox()


def _send(mail: PageMail, connection: Any) -> SendResult:
    page, subscriber = mail.subscriber.page, mail.subscriber
    if mail.event is not None and not page.published:
        return SendResult(delivered=False, detail="The page is no longer published.", retry=False)
    try:
        address = subscriber.address
    except InvalidToken:
        return SendResult(delivered=False, detail="No known key opens the address.", retry=False)
    subject, text, headers = _confirmation(mail) if mail.event is None else _update(mail)
    key = f"status-mail.{mail.pk}"
    return send_mail(subject, text, to=address, key=key, connection=connection, headers=headers)


def _confirmation(mail: PageMail) -> tuple[str, str, dict[str, str]]:
    page = mail.subscriber.page
    name = one_line(page.name)
    text = (
        f"Confirm that you want updates about {name} at this address:\n\n"
        f"{link(mail.subscriber, CONFIRM)}\n\n"
        "Open this link within 24 hours and confirm. You then get a mail for each outage and each update.\n"
        "If you did not subscribe, ignore this mail: the address is deleted automatically.\n"
    )
    return f"Confirm your subscription to {name}", text, {}


def _update(mail: PageMail) -> tuple[str, str, dict[str, str]]:
    event, page = mail.event, mail.subscriber.page
    assert event is not None
    stop = link(mail.subscriber, UNSUBSCRIBE)
    text = (
        f"{event.title}\n{event.at:%Y-%m-%d %H:%M} UTC\n\n{event.text}\n\n{page.url}\n\n-- \n"
        f"You get this mail because you subscribed to {one_line(page.name)}. To unsubscribe:\n{stop}\n"
    )
    headers = {"List-Unsubscribe": f"<{stop}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return f"[{one_line(page.name)}] {one_line(event.title)}", text, headers
