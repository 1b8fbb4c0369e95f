"""Public ids: a short prefix and 128 random bits, URL-safe. A heartbeat's id is the only secret of its URL."""

from __future__ import annotations

import base64
import secrets
from functools import partial


def random_text(nbytes: int) -> str:
    """Return lower-case base32 without padding: safe in URLs and shells, and selected by a double click."""
    return base64.b32encode(secrets.token_bytes(nbytes)).decode().rstrip("=").lower()


def new_id(prefix: str) -> str:
    return f"{prefix}_{random_text(16)}"


user_id = partial(new_id, "usr")
project_id = partial(new_id, "prj")
member_id = partial(new_id, "mbr")
session_id = partial(new_id, "sin")  # `ses_` is the prefix of the token itself
token_id = partial(new_id, "tok")
monitor_id = partial(new_id, "mon")
incident_id = partial(new_id, "inc")
incident_event_id = partial(new_id, "evt")
window_id = partial(new_id, "mwn")
channel_id = partial(new_id, "chn")
delivery_id = partial(new_id, "dlv")
status_page_id = partial(new_id, "stp")
page_note_id = partial(new_id, "stn")
note_update_id = partial(new_id, "stu")
subscriber_id = partial(new_id, "sub")
audit_entry_id = partial(new_id, "aud")
import_id = partial(new_id, "imp")
badge_key = partial(new_id, "bdg")
