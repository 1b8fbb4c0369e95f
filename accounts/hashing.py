"""Hash passwords a few at once, shared between clients and accounts.

A hash takes a processor and 19 MiB for a while, and strangers may ask for one. All hashing goes through these hashers:
sign-in, sign-up, changes and resets of passwords, reauthentication, the admin, and passwords of status pages.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.contrib.auth.hashers import Argon2PasswordHasher, PBKDF2PasswordHasher

from audit import origin
from core.shares import Shares
from core.turns import paused

AT_ONCE = max(2, (os.cpu_count() or 1) // 2)
"""The libraries release the GIL while they hash."""

NICE = 5
"""The niceness of their threads: those that answer pings and pages take precedence."""

shares = Shares(at_once=AT_ONCE, most_waiting=16, most_present=8, patience_sec=10.0)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere priorities apply to processes, not threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hashing", initializer=_give_way)
"""Few, as malloc keeps what each thread that ever hashed a password has used."""
Result = TypeVar("Result")


class SharedHasher(Argon2PasswordHasher):
    """Argon2id at OWASP's recommended minimum. Raises TooManyRequests if the client or account has had its share.

    Django's own parameters take 100 MiB, and PBKDF2 ten times the processor time for less protection.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        return _in_turn(super().encode, password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        return _in_turn(super().verify, password, encoded)


class EarlierHasher(PBKDF2PasswordHasher):
    """Hasher of passwords that were set before Argon2. Each is hashed with Argon2 when it is used."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        return _in_turn(super().encode, password, salt, iterations)


def _in_turn(work: Callable[..., Result], *args: Any) -> Result:
    with paused(), shares.turn(*origin.users()):
        return _threads.submit(work, *args).result()
