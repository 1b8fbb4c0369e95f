"""The account as one JSON file, written while it is read: it may be larger than what memory there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import audit.services
from accounts.models import User
from audit.actions import Action
from core.clock import to_ms
from privacy import sections

FORMAT = 1
CHUNK = 64 * 1024


def export(user: User, *, now: datetime) -> Iterator[str]:
    """Pieces of a JSON object, of about CHUNK characters each; noted in the audit log before the first.

    The last member is `"complete": true`: a file that ends without it was cut off.
    """
    audit.services.record(
        Action.ACCOUNT_EXPORTED, actor=user, target_id=user.public_id, target_name=user.email
    )
    return _in_chunks(_pieces(user, now=now))


def file_name(now: datetime) -> str:
    return f"pulsekeeper-account-{now:%Y-%m-%d}.json"


def _pieces(user: User, *, now: datetime) -> Iterator[str]:
    head = {
        "format": FORMAT,
        "exported_at": to_ms(now),
        "not_included": sections.NOT_INCLUDED,
        "account": sections.account(user),
    }
    yield _json(head)[:-1]
    for name, rows in sections.lists(user, now=now).items():
        yield f",\n{_json(name)}: ["
        separator = "\n"
        for row in rows():
            yield separator + _json(row)
            separator = ",\n"
        yield "]"
    yield ',\n"complete": true}\n'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _in_chunks(pieces: Iterator[str]) -> Iterator[str]:
    waiting, size = [], 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield "".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting)
