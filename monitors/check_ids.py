"""Public ids of results. Pure."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from hashlib import blake2b

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from core.clock import EPOCH, MAX_MS

_PREFIX = "chk_"
_TEXT_CHARS = 26  # 16 bytes in base32
_MILLISECOND = timedelta(milliseconds=1)
_TAG = bytes(4)


class CheckIds:
    """The ids of one monitor's results, made of what names a result: its claim, and when it was checked.

    Rows are numbered across all tenants, so their number would tell anybody how many checks the service makes.
    An id is one block, enciphered under a key made of the monitor's own id, which nobody else knows: it needs no
    column, cannot be guessed, and stays when the server's keys change. The time tells the database where to look.
    """

    def __init__(self, monitor_public_id: str) -> None:
        key = blake2b(monitor_public_id.encode(), digest_size=16, person=b"check ids").digest()
        # One block, never two under the same key that hold the same: what ECB is otherwise wrong for.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305

    def encode(self, claim: int, at: datetime) -> str:
        block = claim.to_bytes(6, "big") + ((at - EPOCH) // _MILLISECOND).to_bytes(6, "big") + _TAG
        encryptor = self._cipher.encryptor()
        enciphered = encryptor.update(block) + encryptor.finalize()
        return _PREFIX + base64.b32encode(enciphered).decode().rstrip("=").lower()

    def decode(self, public_id: str) -> tuple[int, datetime] | None:
        """The claim, and the millisecond it was checked in; None for what is no id of this monitor's."""
        text = public_id.removeprefix(_PREFIX)
        if len(text) != _TEXT_CHARS or len(public_id) != len(_PREFIX) + _TEXT_CHARS:
            return None
        try:
            enciphered = base64.b32decode(text.upper() + "======")
        except binascii.Error:
            return None
        decryptor = self._cipher.decryptor()
        block = decryptor.update(enciphered) + decryptor.finalize()
        claim, at_ms = int.from_bytes(block[:6], "big"), int.from_bytes(block[6:12], "big")
        if block[12:] != _TAG or at_ms > MAX_MS:
            return None
        at = EPOCH + at_ms * _MILLISECOND
        # Base32 spells some bytes in several ways; an id is one spelling.
        return (claim, at) if self.encode(claim, at) == public_id else None
