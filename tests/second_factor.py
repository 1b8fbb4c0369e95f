"""An authenticator app."""

from __future__ import annotations

import time

from allauth.mfa import app_settings
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value

from accounts.models import User


class App:
    """Enable the second factor of an account, or use an existing `secret`."""

    def __init__(self, user: User | None = None, *, secret: str | None = None) -> None:
        self.secret = secret or generate_totp_secret()
        self.recovery_codes: list[str] = []
        if user is not None:
            TOTP.activate(user, self.secret)
            self.recovery_codes = RecoveryCodes.activate(user).generate_codes()

    def code(self, *, steps: int = 0) -> str:
        """Return the current code, or the one `steps` periods of 30 seconds later."""
        counter = int(time.time()) // app_settings.TOTP_PERIOD + steps
        return str(format_hotp_value(hotp_value(self.secret, counter)))

    def wrong_code(self) -> str:
        shown = {self.code(steps=steps) for steps in range(-2, 3)}
        return next(code for code in ("000000", "111111", "222222", "333333", "444444", "555555") if code not in shown)


def stored(user: User) -> str:
    return " ".join(str(row.data) for row in Authenticator.objects.filter(user=user))
