"""Public ids of results and signals. Pure."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from hashlib import blake2b

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from core.clock import EPOCH, MAX_MS

_TEXT_CHARS = 26  # 16 bytes in base32
_MILLISECOND = timedelta(milliseconds=1)
_TAG = bytes(4)


class CheckIds:
    """The public ids of one monitor's results, derived from the claim and the time of the check. Those of its signals
    have another prefix and a separate number.

    Row numbers count the checks of all tenants and would reveal how many the service makes. An id is one block,
    encrypted with a key derived from the monitor's own id, which other tenants do not know: it needs no column, cannot
    be guessed, and does not depend on the server's keys. The time in it narrows the database lookup.
    """

    def __init__(self, monitor_public_id: str, *, prefix: str = "chk_") -> None:
        self._prefix = prefix
        key = blake2b(monitor_public_id.encode(), digest_size=16, person=b"check ids").digest()
        # ECB is safe here: an id is a single block, and no two blocks with the same key are equal.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305

    def encode(self, claim: int, at: datetime) -> str:
        block = claim.to_bytes(6, "big") + ((at - EPOCH) // _MILLISECOND).to_bytes(6, "big") + _TAG
        encryptor = self._cipher.encryptor()
        enciphered = encryptor.update(block) + encryptor.finalize()
        return self._prefix + base64.b32encode(enciphered).decode().rstrip("=").lower()

    def decode(self, public_id: str) -> tuple[int, datetime] | None:
        """Return the claim and the time of the check in milliseconds, or None if it is not an id of this monitor."""
        text = public_id.removeprefix(self._prefix)
        if len(text) != _TEXT_CHARS or len(public_id) != len(self._prefix) + _TEXT_CHARS:
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
        # Several base32 texts decode to the same bytes. Accept only the one that `encode` returns.
        return (claim, at) if self.encode(claim, at) == public_id else None
