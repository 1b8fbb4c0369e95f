"""Public ids: a short prefix and 128 random bits, URL-safe. A heartbeat's id is the only secret of its URL."""

from __future__ import annotations

import base64
import secrets

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def random_text(nbytes: int) -> str:
    """Return lower-case base32 without padding: safe in URLs and shells, and selected by a double click."""
    return base64.b32encode(secrets.token_bytes(nbytes)).decode().rstrip("=").lower()


def new_id(prefix: str) -> str:
    return f"{prefix}_{random_text(16)}"


def user_id() -> str:
    return new_id("usr")


def project_id() -> str:
    return new_id("prj")


def member_id() -> str:
    return new_id("mbr")


def session_id() -> str:
    return new_id("sin")  # `ses_` is the prefix of the token itself


def token_id() -> str:
    return new_id("tok")


def monitor_id() -> str:
    return new_id("mon")


def incident_id() -> str:
    return new_id("inc")


def incident_event_id() -> str:
    return new_id("evt")


def window_id() -> str:
    return new_id("mwn")


def channel_id() -> str:
    return new_id("chn")


def delivery_id() -> str:
    return new_id("dlv")


def status_page_id() -> str:
    return new_id("stp")


def page_note_id() -> str:
    return new_id("stn")


def note_update_id() -> str:
    return new_id("stu")


def subscriber_id() -> str:
    return new_id("sub")


def audit_entry_id() -> str:
    return new_id("aud")


def badge_key() -> str:
    return new_id("bdg")
