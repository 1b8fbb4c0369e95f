"""The second factor: codes of an authenticator app (RFC 6238), or recovery codes. allauth stores secrets and rows.

Codes are verified only here, for the web and the API. allauth remembers used codes in the cache for 30 seconds, but a
code is valid for longer, and the cache may be down. Here the locked row stores the last used one.
"""

from __future__ import annotations

from allauth.core.internal.cryptokit import compare_user_code
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.mfa.utils import decrypt
from django.db import transaction

import audit.services
from accounts.models import User
from audit.actions import Action

LAST_COUNTER = "last_counter"


def is_on(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


def use_code(user: User, code: str) -> Authenticator | None:
    """Use up a code. Return the authenticator it belongs to, or None if it is wrong or was used before."""
    with transaction.atomic():
        rows = Authenticator.objects.select_for_update().filter(user=user).order_by("pk")
        for row in rows:
            is_totp = row.type == Authenticator.Type.TOTP
            if _use_totp(row, code) if is_totp else row.wrap().validate_code(code):
                details = {"type": str(row.type)}
                audit.services.record(Action.SECOND_FACTOR_USED, actor=user, details=details)
                return row
    audit.services.record_failure(Action.SECOND_FACTOR_FAILED, subject=user)
    return None


def _use_totp(row: Authenticator, code: str) -> bool:
    secret = decrypt(row.data["secret"])
    for counter in yield_hotp_counters_from_time():
        fits = compare_user_code(actual=code, expected=format_hotp_value(hotp_value(secret, counter)))
        if fits and counter > row.data.get(LAST_COUNTER, -1):
            row.data[LAST_COUNTER] = counter
            row.save(update_fields=["data"])
            return True
    return False
