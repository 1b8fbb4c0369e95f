"""Public ids: a short prefix and 128 random bits, URL-safe. A heartbeat's id is the only secret of its URL."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator
from functools import partial
from hashlib import sha256


def random_text(nbytes: int) -> str:
    """Return lower-case base32 without padding: safe in URLs and shells, and selected by a double click."""
    return _text(secrets.token_bytes(nbytes))


def _text(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def derive(secret_id: str) -> bytes:
    """Return 128 bits that identify a random id, and from which it cannot be computed. They depend on no key.

    `monitors.models.Derived` is the same in PostgreSQL.
    """
    return sha256(secret_id.encode()).digest()[:16]


def derived_id(prefix: str, secret_id: str) -> str:
    """Return another id, always the same, of an object whose id is a secret."""
    return f"{prefix}_{_text(derive(secret_id))}"


def derived_bits(prefix: str, derived: str) -> bytes | None:
    """Return what `derive` returned for an id that `derived_id` made, or None if it made no such id."""
    text = derived.removeprefix(f"{prefix}_")
    try:
        bits = base64.b32decode(f"{text.upper()}======")
    except (binascii.Error, ValueError):
        return None
    return bits if f"{prefix}_{_text(bits)}" == derived else None


def new_id(prefix: str) -> str:
    return f"{prefix}_{random_text(16)}"


def new_ids(prefix: str, count: int) -> Iterator[str]:
    """Yield ids from one read of random bytes: each read may wait until other threads have run."""
    data = secrets.token_bytes(16 * count)
    return (f"{prefix}_{_text(data[at : at + 16])}" for at in range(0, len(data), 16))


user_id = partial(new_id, "usr")
project_id = partial(new_id, "prj")
member_id = partial(new_id, "mbr")
session_id = partial(new_id, "sin")  # `ses_` is the prefix of the token itself
token_id = partial(new_id, "tok")
location_id = partial(new_id, "loc")
agent_id = partial(new_id, "agt")
monitor_id = partial(new_id, "mon")
incident_id = partial(new_id, "inc")
incident_event_id = partial(new_id, "evt")
window_id = partial(new_id, "mwn")
schedule_id = partial(new_id, "ocs")
policy_id = partial(new_id, "esc")
channel_id = partial(new_id, "chn")
delivery_id = partial(new_id, "dlv")
delivery_ids = partial(new_ids, "dlv")
status_page_id = partial(new_id, "stp")
page_note_id = partial(new_id, "stn")
note_update_id = partial(new_id, "stu")
subscriber_id = partial(new_id, "sub")
audit_entry_id = partial(new_id, "aud")
import_id = partial(new_id, "imp")
bulk_edit_id = partial(new_id, "edt")
badge_key = partial(new_id, "bdg")
