"""Hash passwords a few at once, shared between clients and accounts.

A hash takes a processor for a quarter of a second, and strangers may ask for one. All hashing goes through this hasher:
sign-in, sign-up, changes and resets of passwords, reauthentication, the admin, and passwords of status pages.
"""

from __future__ import annotations

import os

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from audit import origin
from core.shares import Shares
from core.turns import paused

AT_ONCE = max(2, (os.cpu_count() or 1) // 2)
"""The other processors have to answer pings. OpenSSL releases Python's lock meanwhile."""

shares = Shares(at_once=AT_ONCE, most_waiting=16, most_present=8, patience_sec=10.0)


class SharedHasher(PBKDF2PasswordHasher):
    """PBKDF2 as Django has it. Raises TooManyRequests before hashing, if the client or account has had its share."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        with paused(), shares.turn(*origin.users()):
            return super().encode(password, salt, iterations)
